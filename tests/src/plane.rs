//! A real control plane: kube-apiserver and etcd, started by `tests/controlplane`, which `make controlplane` builds.
//! Most test programs share one. It exits when the test program closes its standard input.
//!
//! Without Go it cannot be built. The tests then report that they are skipped; with `CI` set they fail.

use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, OnceLock, PoisonError};

use serde::Deserialize;

use crate::built;
use crate::client::Client;
use crate::daemon::Setup;
use crate::pki::Pair;

/// The control plane.
#[derive(Debug)]
pub struct Plane {
    ready: Ready,
    /// Its standard input stays open for as long as it runs.
    _process: Child,
}

#[derive(Debug, Deserialize)]
struct Ready {
    control: String,
    folder: PathBuf,
}

impl Plane {
    /// The control plane that all tests of this program share; the first caller starts it. Returns `None` if it is not
    /// built.
    ///
    /// # Panics
    /// If `CI` is set and it is not built.
    pub fn shared() -> Option<&'static Self> {
        static SHARED: OnceLock<Option<Plane>> = OnceLock::new();
        SHARED.get_or_init(Self::own).as_ref()
    }

    /// A control plane of its own, for a test that makes it fail. Dropping it ends the processes. Returns `None` if it
    /// is not built.
    ///
    /// # Panics
    /// If `CI` is set and it is not built.
    pub fn own() -> Option<Self> {
        // A start takes a processor for seconds: several at once take so long that the API servers give up.
        static START: Mutex<()> = Mutex::new(());
        let program = program("controlplane")?;
        let _turn = START.lock().unwrap_or_else(PoisonError::into_inner);
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

    /// The control endpoint. `POST /cut` closes all connections that use a `…-cut` kubeconfig, `POST /restart`
    /// restarts the API server.
    #[must_use]
    pub fn control(&self) -> &str {
        &self.ready.control
    }

    /// The kubeconfig of an identity. `admin`, `node` (edge-a), `kube-proxy` and `nobody` use client certificates.
    /// `weir` uses the token of the daemon's ServiceAccount from `deploy/rbac.yaml`. Connections of a `…-cut`
    /// kubeconfig pass through a proxy that can close them.
    #[must_use]
    pub fn kubeconfig(&self, identity: &str) -> PathBuf {
        self.ready.folder.join(format!("{identity}.kubeconfig"))
    }

    /// The CA of all certificates: of the API server, of the identities and of [`Plane::certificate`].
    #[must_use]
    pub fn ca(&self) -> PathBuf {
        self.ready.folder.join("ca.crt")
    }

    /// The files of a certificate and its key: of an identity, or of `server` for loopback addresses.
    #[must_use]
    pub fn certificate(&self, name: &str) -> (PathBuf, PathBuf) {
        (self.ready.folder.join(format!("{name}.crt")), self.ready.folder.join(format!("{name}.key")))
    }

    /// The certificate and the key of [`Plane::certificate`].
    #[must_use]
    pub fn pair(&self, name: &str) -> Pair {
        let (certificate, key) = self.certificate(name);
        Pair { certificate: read(certificate), key: read(key) }
    }

    /// The URL of the API server in the kubeconfig of an identity.
    #[must_use]
    pub fn server(&self, identity: &str) -> String {
        let config: serde_json::Value = serde_saphyr::from_str(&read(self.kubeconfig(identity))).unwrap();
        config["clusters"][0]["cluster"]["server"].as_str().unwrap().to_owned()
    }

    /// The administrator's client of the API server itself. Over HTTP/1.1: the API server ends HTTP/2 connections now and then, and
    /// the client tries nothing again.
    #[must_use]
    pub fn admin(&self) -> Client {
        Client::http1_showing(&self.server("admin"), "test", &read(self.ca()), &self.pair("admin"))
    }

    /// Adds an HTTPS port that presents the certificate of `server` and verifies clients by the same CA.
    #[must_use]
    pub fn secured(&self, setup: Setup) -> Setup {
        setup.tls(&self.pair("server")).flag("--client-ca-file", &self.ca().display().to_string())
    }

    /// The file with the bearer token of an identity.
    #[must_use]
    pub fn token(&self, identity: &str) -> PathBuf {
        self.ready.folder.join(format!("{identity}.token"))
    }
}

fn read(path: PathBuf) -> String {
    std::fs::read_to_string(path).unwrap()
}

/// The path of a program of `tests/controlplane`; `None` if it is not built.
///
/// # Panics
/// If `CI` is set and it is not built.
pub fn program(name: &str) -> Option<PathBuf> {
    let path = built::target().join("controlplane").join(name);
    if path.exists() {
        return Some(path);
    }
    skipped("the control plane was not built: `make controlplane` does it, and needs Go");
    None
}

/// Reports why a test is skipped.
///
/// # Panics
/// If `CI` is set.
pub fn skipped(why: &str) {
    skipped_part("tests", why);
}

/// Reports why a part of the tests is skipped, for the list at the end of the run.
///
/// # Panics
/// If `CI` is set, and `tests/skips.txt` does not have the part.
pub fn skipped_part(part: &str, why: &str) {
    let script = built::workspace().join("tests/skip.sh");
    let output = Command::new("sh").arg(script).args([part, why]).output().unwrap();
    print!("{}", String::from_utf8_lossy(&output.stdout));
    assert!(output.status.success(), "{part}: {why}");
}
