//! The images that `make image` writes, of the daemon and of the operator: small, reproducible, without a shell or root, and equal
//! to their Dockerfiles.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use serde_json::Value;
use sha2::{Digest as _, Sha256};
use weir_tests::built;
use weir_tests::chart::text;
use weir_tests::plane::skipped;

/// The largest image, compressed as it is pulled, and unpacked as it lies on a node.
const IMAGE: u64 = 40_000_000;
/// The same with the daemon that `make build` leaves.
const BUILT_IMAGE: u64 = 45_000_000;
/// The largest daemon, stripped: as it is shipped, and as `make build` leaves it, which compiles it in parallel.
const SHIPPED_BINARY: u64 = 30_000_000;
const BINARY: u64 = 40_000_000;
/// The same of the operator.
const OPERATOR_BINARY: u64 = 15_000_000;
const OPERATOR_IMAGE: u64 = 20_000_000;

/// A program with an image of its own.
#[derive(Clone, Copy, PartialEq)]
enum Program {
    Daemon,
    Operator,
}

/// An OCI layout, its layers and its debug artefact in a folder of their own.
struct Image {
    folder: tempfile::TempDir,
    program: Program,
}

/// The images that most tests look at, and only read.
fn images() -> &'static [Image] {
    static BUILT: OnceLock<Vec<Image>> = OnceLock::new();
    BUILT.get_or_init(|| [Program::Daemon, Program::Operator].into_iter().filter_map(build).collect())
}

/// Builds an image as `make image` does; `None` where the libraries of the machine are not Debian's.
fn build(program: Program) -> Option<Image> {
    if !Path::new("/usr/bin/dpkg-query").exists() {
        skipped("there is no dpkg-query: the libraries of the image are Debian's");
        return None;
    }
    let folder = tempfile::tempdir().unwrap();
    let image = Image { folder, program };
    let release =
        |script: &str, arguments: &[&Path]| run(&built::workspace().join("deploy/release").join(script), arguments);
    let (layers, oci) = (image.path("layers"), image.path("oci"));
    let modules = if program == Program::Daemon { built::modules() } else { PathBuf::new() };
    release("layers.sh", &[&image.binary(), &modules, &layers]);
    let file = built::workspace().join("deploy").join(image.dockerfile());
    release("oci.sh", &[&layers, &file, &image.debug_file(), Path::new(env!("CARGO_PKG_VERSION")), &oci]);
    Some(image)
}

fn run(script: &Path, arguments: &[&Path]) {
    let output = Command::new("sh").arg(script).args(arguments).output().unwrap();
    assert!(output.status.success(), "{}: {}", script.display(), String::from_utf8_lossy(&output.stderr));
}

impl Image {
    fn name(&self) -> &'static str {
        match self.program {
            Program::Daemon => "weir",
            Program::Operator => "weir-operator",
        }
    }

    /// Below `deploy/`.
    fn dockerfile(&self) -> &'static str {
        match self.program {
            Program::Daemon => "Dockerfile",
            Program::Operator => "operator/Dockerfile",
        }
    }

    /// The stripped program.
    fn binary(&self) -> PathBuf {
        match self.program {
            Program::Daemon => built::weir(),
            Program::Operator => built::operator(),
        }
    }

    fn debug_file(&self) -> PathBuf {
        self.binary().with_extension("debug")
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The entry of a layout's index, whose only manifest it is.
    fn entry(&self, layout: &str) -> Value {
        let index = std::fs::read(self.path("oci").join(layout).join("index.json")).unwrap();
        let index: Value = serde_json::from_slice(&index).unwrap();
        assert_eq!(index["manifests"].as_array().unwrap().len(), 1);
        index["manifests"][0].clone()
    }

    /// The bytes that a descriptor names, which must be as it says.
    fn blob(&self, layout: &str, descriptor: &Value) -> Vec<u8> {
        let digest = descriptor["digest"].as_str().unwrap().strip_prefix("sha256:").unwrap();
        let bytes = std::fs::read(self.path("oci").join(layout).join("blobs/sha256").join(digest)).unwrap();
        assert_eq!(descriptor["size"], bytes.len());
        let found: String = Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(digest, found);
        bytes
    }

    fn json(&self, layout: &str, descriptor: &Value) -> Value {
        serde_json::from_slice(&self.blob(layout, descriptor)).unwrap()
    }

    /// Mode and owner of each file of the layers by path, as the archives have them.
    fn files(&self) -> BTreeMap<String, (String, String)> {
        let manifest = self.json("image", &self.entry("image"));
        let mut files = BTreeMap::new();
        for layer in manifest["layers"].as_array().unwrap() {
            let digest = layer["digest"].as_str().unwrap().trim_start_matches("sha256:");
            let archive = self.path("oci").join("image/blobs/sha256").join(digest);
            let listed = Command::new("tar").arg("-tvzf").arg(archive).output().unwrap();
            for line in String::from_utf8(listed.stdout).unwrap().lines() {
                let words: Vec<_> = line.split_whitespace().collect();
                let path = words[5].trim_start_matches('.').to_owned();
                files.insert(path, (words[0].to_owned(), words[1].to_owned()));
            }
        }
        files
    }
}

#[test]
fn two_builds_have_the_same_digest() {
    for one in images() {
        let two = build(one.program).unwrap();
        for layout in ["image", "debug"] {
            assert_eq!(one.entry(layout), two.entry(layout));
        }
    }
}

#[test]
fn an_image_has_its_program_with_libraries_and_modules_and_no_shell() {
    for image in images() {
        let files = image.files();
        let programs: Vec<_> = files
            .iter()
            .filter(|(path, (mode, _))| {
                mode.starts_with("-rwx") && !path.contains("/lib/") && !path.contains("/lib64/")
            })
            .map(|(path, _)| path.as_str())
            .collect();
        assert_eq!(programs, [format!("/usr/local/bin/{}", image.name())]);
        let modules = std::fs::read_dir(built::modules()).unwrap().filter(|_| image.program == Program::Daemon);
        for entry in modules {
            let path = format!("/modules/{}", entry.unwrap().file_name().display());
            assert!(files.contains_key(&path), "{path}");
        }
        for path in [
            "/etc/passwd",
            "/etc/ssl/certs/ca-certificates.crt",
            "/var/lib/dpkg/status.d/libc6",
            "/usr/share/doc/libc6/copyright",
        ] {
            assert!(files.contains_key(path), "{path} is missing: {files:#?}");
        }
        for (path, (mode, owner)) in &files {
            assert_eq!(owner, "0/0", "{path}");
            assert!(!mode.contains('s') && (mode.as_bytes()[8] != b'w' || path == "/tmp/"), "{path}: {mode}");
        }
        // The loader of the image finds all libraries of the daemon within the image.
        let base = image.path("layers/base");
        let library = base.join("lib").join(format!("{}-linux-gnu", std::env::consts::ARCH));
        let loader = files.keys().find(|path| path.contains("/ld-linux-")).unwrap();
        let output = Command::new(base.join(loader.trim_start_matches('/')))
            .arg("--inhibit-cache")
            .arg("--library-path")
            .arg(&library)
            .arg("--list")
            .arg(image.path("layers").join(image.name()).join("usr/local/bin").join(image.name()))
            .output()
            .unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success() && text.contains("libc.so.6"), "{text}");
        for line in text.lines().filter(|line| line.contains(" => ")) {
            assert!(line.contains(base.to_str().unwrap()), "not in the image: {line}");
        }
    }
}

#[test]
fn an_image_and_its_dockerfile_say_the_same() {
    for image in images() {
        let file = text(image.dockerfile());
        let (build, last) = file.split_once("FROM scratch\n").expect("the last stage has no base image");
        assert!(build.contains("RUN make image\n"));
        let manifest = image.json("image", &image.entry("image"));
        let config = image.json("image", &manifest["config"]);
        let mut layers = Vec::new();
        for line in last.lines() {
            match line.split_once(' ').unwrap() {
                ("COPY", arguments) => {
                    let layer = arguments.split_once("/layers/").unwrap().1;
                    layers.push(layer.strip_suffix(" /").unwrap());
                }
                ("USER", user) => assert_eq!(config["config"]["User"], user),
                ("ENTRYPOINT", start) => {
                    assert_eq!(config["config"]["Entrypoint"], serde_json::from_str::<Value>(start).unwrap());
                }
                (other, _) => panic!("the image has no counterpart of {other}"),
            }
        }
        assert_eq!(config["config"]["User"], "65532:65532");
        let wanted: &[&str] = match image.program {
            Program::Daemon => &["base", "modules", "weir"],
            Program::Operator => &["base", "weir-operator"],
        };
        assert_eq!(layers, wanted);
        assert_eq!(manifest["layers"].as_array().unwrap().len(), layers.len());
        for (name, content) in layers.iter().zip(config["rootfs"]["diff_ids"].as_array().unwrap()) {
            let mut listed = Command::new("tar");
            listed.arg("-C").arg(image.path("layers").join(name)).args([
                "-c",
                "--format=gnu",
                "--sort=name",
                "--mtime=@0",
            ]);
            let tar = listed.args(["--owner=0", "--group=0", "--numeric-owner", "."]).output().unwrap().stdout;
            let digest: String = Sha256::digest(&tar).iter().map(|byte| format!("{byte:02x}")).collect();
            assert_eq!(
                content,
                &format!("sha256:{digest}"),
                "the layer {name} is the folder that the Dockerfile copies"
            );
        }
    }
}

#[test]
fn a_debug_file_is_an_artefact_that_refers_to_its_image() {
    for image in images() {
        let debug = image.json("debug", &image.entry("debug"));
        assert_eq!(debug["artifactType"], "application/vnd.weir.debug");
        assert_eq!(debug["subject"]["digest"], image.entry("image")["digest"]);
        let file = image.blob("debug", &debug["layers"][0]);
        let mut unpacked = Vec::new();
        std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(file.as_slice()), &mut unpacked).unwrap();
        assert_eq!(unpacked, std::fs::read(image.debug_file()).unwrap());
    }
}

#[test]
fn binaries_and_images_are_within_their_sizes() {
    for image in images() {
        let (largest_binary, largest_image) = match image.program {
            Program::Daemon if built::shipped().is_some() => (SHIPPED_BINARY, IMAGE),
            Program::Daemon => (BINARY, BUILT_IMAGE),
            Program::Operator => (OPERATOR_BINARY, OPERATOR_IMAGE),
        };
        let binary = std::fs::metadata(image.binary()).unwrap().len();
        assert!(binary < largest_binary, "{} has {binary} bytes", image.name());
        let manifest = image.json("image", &image.entry("image"));
        let layers = manifest["layers"].as_array().unwrap().iter();
        let pulled: u64 = layers.map(|layer| layer["size"].as_u64().unwrap()).sum();
        let listed = Command::new("du").args(["-sb", "--apparent-size"]).arg(image.path("layers")).output().unwrap();
        let listed = String::from_utf8(listed.stdout).unwrap();
        let unpacked: u64 = listed.split_whitespace().next().unwrap().parse().unwrap();
        println!("{}: binary {binary}, image {pulled} compressed, {unpacked} unpacked", image.name());
        assert!(pulled < unpacked && unpacked < largest_image, "{pulled} bytes compressed, {unpacked} unpacked");
    }
}
