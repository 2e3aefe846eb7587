//! A real control plane, as a rule one for each test program: kube-apiserver and etcd, started by `tests/controlplane`, which
//! `make controlplane` builds. It ends with the program, whose end it sees in its standard input.
//!
//! A machine without Go has none: its tests say so and pass, unless `CI` is set.

use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

use serde::Deserialize;

use crate::built;
use crate::daemon::Setup;
use crate::pki::Pair;

/// The control plane.
#[derive(Debug)]
pub struct Plane {
    ready: Ready,
    /// With its standard input, which is open as long as it is to run.
    _process: Child,
}

#[derive(Debug, Deserialize)]
struct Ready {
    control: String,
    folder: PathBuf,
}

impl Plane {
    /// The control plane of this program, started by whoever asks first. None, and a word about it, where it was not built.
    ///
    /// # Panics
    /// Where `CI` is set and it was not built.
    pub fn shared() -> Option<&'static Self> {
        static SHARED: OnceLock<Option<Plane>> = OnceLock::new();
        SHARED.get_or_init(Self::own).as_ref()
    }

    /// One that nobody else uses, for a test that lets it fail. It ends when dropped.
    ///
    /// # Panics
    /// Where `CI` is set and it was not built.
    pub fn own() -> Option<Self> {
        let program = program("controlplane")?;
        let mut child = Command::new(program)
            .arg("--apply")
            .arg(built::workspace().join("deploy").join("rbac.yaml"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let ready = serde_json::from_str(&line).expect("the control plane starts; what is wrong it says above");
        Some(Self { ready, _process: child })
    }

    /// Where `POST /cut` ends every connection of those who go by a `…-cut` kubeconfig, and `POST /restart` the API server.
    #[must_use]
    pub fn control(&self) -> &str {
        &self.ready.control
    }

    /// The kubeconfig of an identity: `admin`, `node` (edge-a), `kube-proxy`, `nobody`, by client certificate; `weir`, the
    /// daemon's own as `deploy/rbac.yaml` makes it, by token. `…-cut` goes past a proxy that cuts.
    #[must_use]
    pub fn kubeconfig(&self, identity: &str) -> PathBuf {
        self.ready.folder.join(format!("{identity}.kubeconfig"))
    }

    /// The CA that signed everything: the API server's certificate, the identities' and [`Plane::certificate`].
    #[must_use]
    pub fn ca(&self) -> PathBuf {
        self.ready.folder.join("ca.crt")
    }

    /// A certificate and its key, as files: an identity's, or the one of `server`, for loopback.
    #[must_use]
    pub fn certificate(&self, name: &str) -> (PathBuf, PathBuf) {
        (self.ready.folder.join(format!("{name}.crt")), self.ready.folder.join(format!("{name}.key")))
    }

    /// The daemon set up with an HTTPS port that shows the certificate of `server` and verifies clients by the same CA.
    #[must_use]
    pub fn secured(&self, setup: Setup) -> Setup {
        let (certificate, key) = self.certificate("server");
        let read = |path: PathBuf| std::fs::read_to_string(path).unwrap();
        let pair = Pair { certificate: read(certificate), key: read(key) };
        setup.tls(&pair).flag("--client-ca-file", &self.ca().display().to_string())
    }

    /// The same identity's bearer token.
    #[must_use]
    pub fn token(&self, identity: &str) -> PathBuf {
        self.ready.folder.join(format!("{identity}.token"))
    }
}

/// A program of `tests/controlplane`. None, and a word about it, where it was not built.
///
/// # Panics
/// Where `CI` is set and it was not built.
pub fn program(name: &str) -> Option<PathBuf> {
    let path = built::target().join("controlplane").join(name);
    if path.exists() {
        return Some(path);
    }
    skipped("the control plane was not built: `make controlplane` does it, and needs Go");
    None
}

/// Says why a test is skipped.
///
/// # Panics
/// Where `CI` is set: there nothing is skipped.
pub fn skipped(why: &str) {
    assert!(std::env::var_os("CI").is_none_or(|ci| ci.is_empty()), "{why}");
    println!("skipped: {why}");
}
