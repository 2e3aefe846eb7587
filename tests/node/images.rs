//! Builds images: a folder of files becomes the only layer of an OCI layout, which containerd imports.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use weir_tests::built;

use crate::folder;
use crate::machine::{Machine, run};

/// containerd's default image for a pod sandbox.
pub(crate) const PAUSE: &str = "weir.test/pause:1";
/// busybox: a web server and tools.
pub(crate) const TEST: &str = "weir.test/busybox:1";
const KUBE_PROXY: &str = "weir.test/kube-proxy:1";
const COREDNS: &str = "weir.test/coredns:1";
pub(crate) const YURTHUB: &str = "weir.test/yurthub:1";
/// The image that `deploy/` names.
pub(crate) const WEIR: &str = "docker.io/library/weir:0.1.0";
/// The daemon that an upgrade replaces.
pub(crate) const PREVIOUS: &str = "docker.io/library/weir:previous";

/// The files of an image, and the command of its containers.
pub(crate) struct Image {
    root: PathBuf,
    name: String,
    start: &'static [&'static str],
    /// The arguments of the command, which a pod may replace.
    arguments: &'static [&'static str],
}

/// Builds and imports all images.
pub(crate) fn import(machine: &Machine) {
    for image in [
        pause(machine),
        test(machine),
        weir(machine, WEIR, &built::weir(), &built::modules()),
        kube_proxy(machine),
        coredns(machine),
    ] {
        image.import();
    }
}

/// Imports the daemon of the last version.
pub(crate) fn import_previous(machine: &Machine) {
    let (program, modules) = previous();
    weir(machine, PREVIOUS, &program, &modules).import();
}

/// The program and the modules of the last version. The variable `PREVIOUS` names a checkout of it in which `make build` has run.
/// Without it, this version stands in.
pub(crate) fn previous() -> (PathBuf, PathBuf) {
    match previous_checkout().map(|checkout| checkout.join("target")) {
        Some(target) => (target.join("release").join("weir"), target.join("modules")),
        None => (built::weir(), built::modules()),
    }
}

pub(crate) fn previous_checkout() -> Option<PathBuf> {
    std::env::var_os("PREVIOUS").filter(|path| !path.is_empty()).map(PathBuf::from)
}

fn pause(machine: &Machine) -> Image {
    let image = Image::new(machine, PAUSE, &["/bin/busybox", "sleep", "2147483647"]);
    image.file("/usr/bin/busybox", "/bin/busybox");
    image
}

fn test(machine: &Machine) -> Image {
    let image = Image::new(machine, TEST, &["/bin/busybox", "httpd", "-f", "-p", "8080", "-h", "/www"]);
    image.file("/usr/bin/busybox", "/bin/busybox");
    image.links(
        "/bin/busybox",
        ["sh", "cat", "echo", "wget", "nslookup", "sleep", "hostname"]
            .map(|tool| format!("/bin/{tool}"))
            .iter()
            .map(String::as_str),
    );
    image.text("/www/index.html", "the test server\n");
    image
}

/// The content of `deploy/Dockerfile` without its base image: the binary, its libraries and the modules. It has no CA
/// bundle, because the manifests name the cluster's own CA.
fn weir(machine: &Machine, name: &str, program: &Path, modules: &Path) -> Image {
    let image = Image::new(machine, name, &["/usr/local/bin/weir"]);
    image.program(program, "/usr/local/bin/weir");
    for entry in std::fs::read_dir(modules).unwrap() {
        let path = entry.unwrap().path();
        image.file(&path.display().to_string(), &format!("/modules/{}", path.file_name().unwrap().display()));
    }
    image
}

fn kube_proxy(machine: &Machine) -> Image {
    let image = Image::new(machine, KUBE_PROXY, &["/usr/local/bin/kube-proxy"]);
    image.program(&folder().join("bin").join("node"), "/usr/local/bin/kube-proxy");
    for tool in ["nft", "conntrack"] {
        image.program(&PathBuf::from("/usr/sbin").join(tool), &format!("/usr/sbin/{tool}"));
    }
    // Without it nft prints protocols as numbers, and a restarted kube-proxy deletes elements of its own maps.
    image
        .text("/etc/protocols", "ip 0 IP\nicmp 1 ICMP\ntcp 6 TCP\nudp 17 UDP\nipv6-icmp 58 IPv6-ICMP\nsctp 132 SCTP\n");
    image
}

fn coredns(machine: &Machine) -> Image {
    let image = Image::new(machine, COREDNS, &["/coredns"]);
    image.program(&folder().join("bin").join("coredns"), "/coredns");
    image
}

impl Image {
    pub(crate) fn new(machine: &Machine, name: &str, start: &'static [&'static str]) -> Self {
        let root = machine.folder("images").join(name.replace(['/', ':'], "-")).join("root");
        std::fs::create_dir_all(root.join("tmp")).unwrap();
        // As everywhere, for programs of every user.
        std::fs::set_permissions(root.join("tmp"), std::fs::Permissions::from_mode(0o1777)).unwrap();
        Self { root, name: name.to_owned(), start, arguments: &[] }
    }

    /// Sets the default arguments.
    pub(crate) fn arguments(self, arguments: &'static [&'static str]) -> Self {
        Self { arguments, ..self }
    }

    /// Builds the archive, and gives it to containerd.
    pub(crate) fn import(self) {
        let archive = self.archive();
        run("ctr", &["-n", "k8s.io", "images", "import", &archive.display().to_string()]);
        std::fs::remove_dir_all(archive.parent().unwrap()).unwrap();
    }

    fn place(&self, inside: &str) -> PathBuf {
        let place = self.root.join(inside.trim_start_matches('/'));
        std::fs::create_dir_all(place.parent().unwrap()).unwrap();
        place
    }

    pub(crate) fn file(&self, outside: &str, inside: &str) {
        std::fs::copy(outside, self.place(inside)).unwrap_or_else(|error| panic!("{outside}: {error}"));
    }

    pub(crate) fn text(&self, inside: &str, text: &str) {
        std::fs::write(self.place(inside), text).unwrap();
    }

    /// Adds an empty folder that every user may write to.
    pub(crate) fn folder(&self, inside: &str) {
        let place = self.place(inside);
        std::fs::create_dir_all(&place).unwrap();
        std::fs::set_permissions(place, std::fs::Permissions::from_mode(0o1777)).unwrap();
    }

    /// Adds links to a file. A link that exists stays.
    pub(crate) fn links<'a>(&self, file: &str, links: impl IntoIterator<Item = &'a str>) {
        for link in links {
            let place = self.place(link);
            if place.symlink_metadata().is_err() {
                std::os::unix::fs::symlink(file, place).unwrap();
            }
        }
    }

    /// Adds a program and its shared libraries, where its loader looks for them.
    pub(crate) fn program(&self, outside: &Path, inside: &str) {
        self.unpacked_program(Path::new("/"), outside, inside);
    }

    /// Adds a program of packages that were unpacked into a folder, with libraries from there.
    pub(crate) fn unpacked_program(&self, folder: &Path, outside: &Path, inside: &str) {
        self.file(&outside.display().to_string(), inside);
        std::fs::set_permissions(self.place(inside), std::fs::Permissions::from_mode(0o755)).unwrap();
        let search = std::fs::read_dir(folder.join("usr/lib")).into_iter().flatten().flatten();
        let search: Vec<_> = search.map(|entry| entry.path().display().to_string()).collect();
        let output = Command::new("ldd").arg(outside).env("LD_LIBRARY_PATH", search.join(":")).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let libraries: BTreeSet<_> = text.split_whitespace().filter(|word| word.starts_with('/')).collect();
        for library in libraries {
            let place =
                Path::new(library).strip_prefix(folder).map_or(library.into(), |inside| Path::new("/").join(inside));
            self.file(library, &place.display().to_string());
        }
    }

    /// The OCI layout of this image, as a tar archive.
    fn archive(&self) -> PathBuf {
        let folder = self.root.parent().unwrap();
        let layout = folder.join("layout");
        let blobs = layout.join("blobs").join("sha256");
        std::fs::create_dir_all(&blobs).unwrap();
        let layer = folder.join("layer.tar");
        let (root, path) = (self.root.display().to_string(), layer.display().to_string());
        run("tar", &["--numeric-owner", "--owner=0", "--group=0", "-C", &root, "-cf", &path, "."]);
        let blob = |bytes: &[u8]| {
            let digest: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
            std::fs::write(blobs.join(&digest), bytes).unwrap();
            (format!("sha256:{digest}"), bytes.len())
        };
        let (layer, layer_size) = blob(&std::fs::read(layer).unwrap());
        let architecture = if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" };
        let config = json!({
            "architecture": architecture, "os": "linux",
            "config": {"Entrypoint": self.start, "Cmd": self.arguments, "Env": ["PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"]},
            "rootfs": {"type": "layers", "diff_ids": [layer]},
        });
        let described = |kind: &str, (digest, size): &(String, usize)| json!({"mediaType": format!("application/vnd.oci.image.{kind}"), "digest": digest, "size": size});
        let config = blob(config.to_string().as_bytes());
        let manifest = json!({
            "schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": described("config.v1+json", &config),
            "layers": [described("layer.v1.tar", &(layer, layer_size))],
        });
        let mut manifest: Value = described("manifest.v1+json", &blob(manifest.to_string().as_bytes()));
        manifest["annotations"] = json!({"io.containerd.image.name": self.name});
        let index = json!({"schemaVersion": 2, "manifests": [manifest]});
        std::fs::write(layout.join("index.json"), index.to_string()).unwrap();
        std::fs::write(layout.join("oci-layout"), r#"{"imageLayoutVersion": "1.0.0"}"#).unwrap();
        let archive = folder.join("image.tar");
        run("tar", &["-C", &layout.display().to_string(), "-cf", &archive.display().to_string(), "."]);
        archive
    }
}
