//! The image that `make image` writes: small, reproducible, without a shell or root, and equal to the Dockerfile.

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
/// The largest binary, stripped.
const BINARY: u64 = 33_000_000;

/// An OCI layout, its layers and its debug artefact in a folder of their own.
struct Image {
    folder: tempfile::TempDir,
}

/// The image that most tests look at, and only read.
fn image() -> Option<&'static Image> {
    static BUILT: OnceLock<Option<Image>> = OnceLock::new();
    BUILT.get_or_init(build).as_ref()
}

/// Builds an image as `make image` does; `None` where the libraries of the machine are not Debian's.
fn build() -> Option<Image> {
    if !Path::new("/usr/bin/dpkg-query").exists() {
        skipped("there is no dpkg-query: the libraries of the image are Debian's");
        return None;
    }
    let folder = tempfile::tempdir().unwrap();
    let image = Image { folder };
    let deploy = built::workspace().join("deploy");
    let (weir, modules, layers, oci) = (built::weir(), built::modules(), image.path("layers"), image.path("oci"));
    run(&deploy.join("release/layers.sh"), &[&weir, &modules, &layers]);
    let (file, debug) = (deploy.join("Dockerfile"), weir.with_extension("debug"));
    run(&deploy.join("release/oci.sh"), &[&layers, &file, &debug, &PathBuf::from(env!("CARGO_PKG_VERSION")), &oci]);
    Some(image)
}

fn run(script: &Path, arguments: &[&PathBuf]) {
    let output = Command::new("sh").arg(script).args(arguments).output().unwrap();
    assert!(output.status.success(), "{}: {}", script.display(), String::from_utf8_lossy(&output.stderr));
}

impl Image {
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
    let (Some(one), Some(two)) = (image(), build()) else { return };
    for layout in ["image", "debug"] {
        assert_eq!(one.entry(layout), two.entry(layout));
    }
}

#[test]
fn the_image_has_the_daemon_its_libraries_and_the_modules_and_no_shell() {
    let Some(image) = image() else { return };
    let files = image.files();
    let programs: Vec<_> = files
        .iter()
        .filter(|(path, (mode, _))| mode.starts_with("-rwx") && !path.contains("/lib/") && !path.contains("/lib64/"))
        .map(|(path, _)| path.as_str())
        .collect();
    assert_eq!(programs, ["/usr/local/bin/weir"]);
    for entry in std::fs::read_dir(built::modules()).unwrap() {
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
        .arg(image.path("layers/weir/usr/local/bin/weir"))
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && text.contains("libc.so.6"), "{text}");
    for line in text.lines().filter(|line| line.contains(" => ")) {
        assert!(line.contains(base.to_str().unwrap()), "not in the image: {line}");
    }
}

#[test]
fn the_image_and_the_dockerfile_say_the_same() {
    let Some(image) = image() else { return };
    let file = text("Dockerfile");
    let (build, last) = file.split_once("FROM scratch\n").expect("the last stage has no base image");
    assert!(build.contains("RUN make image\n"));
    let manifest = image.json("image", &image.entry("image"));
    let config = image.json("image", &manifest["config"]);
    let mut layers = Vec::new();
    for line in last.lines() {
        match line.split_once(' ').unwrap() {
            ("COPY", arguments) => {
                let layer = arguments.strip_prefix("--from=build /weir/target/image/layers/").unwrap();
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
    assert_eq!(layers, ["base", "modules", "weir"]);
    assert_eq!(manifest["layers"].as_array().unwrap().len(), layers.len());
    for (name, content) in layers.iter().zip(config["rootfs"]["diff_ids"].as_array().unwrap()) {
        let mut listed = Command::new("tar");
        listed.arg("-C").arg(image.path("layers").join(name)).args(["-c", "--format=gnu", "--sort=name", "--mtime=@0"]);
        let tar = listed.args(["--owner=0", "--group=0", "--numeric-owner", "."]).output().unwrap().stdout;
        let digest: String = Sha256::digest(&tar).iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(content, &format!("sha256:{digest}"), "the layer {name} is the folder that the Dockerfile copies");
    }
}

#[test]
fn the_debug_file_is_an_artefact_that_refers_to_the_image() {
    let Some(image) = image() else { return };
    let debug = image.json("debug", &image.entry("debug"));
    assert_eq!(debug["artifactType"], "application/vnd.weir.debug");
    assert_eq!(debug["subject"]["digest"], image.entry("image")["digest"]);
    let file = image.blob("debug", &debug["layers"][0]);
    let mut unpacked = Vec::new();
    std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(file.as_slice()), &mut unpacked).unwrap();
    assert_eq!(unpacked, std::fs::read(built::weir().with_extension("debug")).unwrap());
}

#[test]
fn binary_and_image_are_within_their_sizes() {
    let binary = std::fs::metadata(built::weir()).unwrap().len();
    assert!(binary < BINARY, "the binary has {binary} bytes");
    let Some(image) = image() else { return };
    let manifest = image.json("image", &image.entry("image"));
    let pulled: u64 = manifest["layers"].as_array().unwrap().iter().map(|layer| layer["size"].as_u64().unwrap()).sum();
    let listed = Command::new("du").args(["-sb", "--apparent-size"]).arg(image.path("layers")).output().unwrap();
    let unpacked: u64 = String::from_utf8(listed.stdout).unwrap().split_whitespace().next().unwrap().parse().unwrap();
    println!("binary {binary}, image {pulled} compressed, {unpacked} unpacked");
    assert!(pulled < unpacked && unpacked < IMAGE, "{pulled} bytes compressed, {unpacked} unpacked");
}
