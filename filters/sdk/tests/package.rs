//! The packages for others have what crates.io wants, and those of the SDK are enough to build a filter: no file of the
//! repository beside them is needed. The filter is the example of `filters/docs`, built natively with its cases and as a
//! module, in a folder outside the workspace.

#![allow(clippy::unwrap_used, reason = "tests and their helpers: a panic is the report")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::{env, fs};

use serde_json::Value;

/// The packages for others: what a filter in Rust is built from.
const PACKAGES: &[&str] = &["weir-document", "weir-kube", "weir-filter"];
/// The largest package, unpacked. Test data stays in the repository.
const MAX_BYTES: u64 = 1 << 20;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Runs cargo offline: building this test has downloaded all that the packages need. The target folder is kept, so that
/// later runs compile the packages only.
fn cargo(folder: &Path, arguments: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO"));
    command.args(arguments).arg("--offline").current_dir(folder);
    command.env("CARGO_TARGET_DIR", Path::new(env!("CARGO_TARGET_TMPDIR")).join("package-target"));
    succeed(command.output().unwrap())
}

#[track_caller]
fn succeed(output: Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
    text(&output.stdout)
}

/// Packages the crates and unpacks them into `folder`, each into `<name>-<version>`, as files of now: those of an archive have the
/// same time each time, and cargo would take what it has built of earlier ones.
fn unpack(folder: &Path) {
    let names = PACKAGES.iter().flat_map(|name| ["-p", *name]);
    let arguments: Vec<_> = ["package", "--no-verify", "--allow-dirty"].into_iter().chain(names).collect();
    cargo(&root(), &arguments);
    let archives = Path::new(env!("CARGO_TARGET_TMPDIR")).join("package-target/package");
    for name in PACKAGES {
        let archive = archives.join(format!("{}.crate", versioned(name)));
        succeed(Command::new("tar").arg("-xzmf").arg(archive).arg("-C").arg(folder).output().unwrap());
    }
}

fn versioned(name: &str) -> String {
    // The packages have one version, that of the workspace.
    format!("{name}-{}", env!("CARGO_PKG_VERSION"))
}

/// Returns the files below a folder, relative to it, with their sizes.
fn files_below(folder: &Path) -> Vec<(PathBuf, u64)> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(&next).unwrap() {
            let entry = entry.unwrap();
            let kind = entry.file_type().unwrap();
            assert!(!kind.is_symlink(), "{} is a link", entry.path().display());
            if kind.is_dir() {
                folders.push(entry.path());
            } else {
                let path = entry.path().strip_prefix(folder).unwrap().to_owned();
                files.push((path, entry.metadata().unwrap().len()));
            }
        }
    }
    files
}

#[test]
fn each_published_package_says_what_it_is() {
    let metadata = cargo(&root(), &["metadata", "--no-deps", "--format-version", "1"]);
    let metadata: Value = serde_json::from_str(&metadata).unwrap();
    let mut published = Vec::new();
    for package in metadata["packages"].as_array().unwrap().iter().filter(|package| package["publish"].is_null()) {
        let name = package["name"].as_str().unwrap();
        published.push(name);
        for field in ["description", "license", "readme", "rust_version"] {
            assert!(package[field].as_str().is_some_and(|text| !text.is_empty()), "{name} has no {field}");
        }
        for field in ["keywords", "categories"] {
            assert!(
                matches!(package[field].as_array().unwrap().len(), 1..=5),
                "{name}: {field} that crates.io refuses"
            );
        }
        for dependency in package["dependencies"].as_array().unwrap() {
            // Cargo leaves a dependency of tests that has no version out of the package.
            let is_left_out = dependency["kind"] == "dev" && dependency["req"] == "*";
            let by = &dependency["name"];
            assert!(
                dependency["path"].is_null() || is_left_out || dependency["req"] != "*",
                "{name}: {by} has no version"
            );
            let is_published = PACKAGES.iter().any(|package| by == package);
            assert!(dependency["path"].is_null() || is_published, "{name} depends on {by}, which is not published");
        }
    }
    published.sort_unstable();
    let mut expected = PACKAGES.to_vec();
    expected.sort_unstable();
    assert_eq!(published, expected);
}

#[test]
fn a_filter_builds_and_passes_from_the_packages_alone() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("package");
    if folder.exists() {
        fs::remove_dir_all(&folder).unwrap();
    }
    fs::create_dir_all(&folder).unwrap();
    unpack(&folder);
    for name in PACKAGES {
        let package = folder.join(versioned(name));
        let bytes: u64 = files_below(&package).iter().map(|(_, size)| size).sum();
        assert!(bytes < MAX_BYTES, "{name} has {bytes} bytes");
        assert_eq!(fs::read(package.join("LICENSE")).unwrap(), fs::read(root().join("LICENSE")).unwrap(), "{name}");
        assert!(package.join("README.md").exists(), "{name} has no README");
    }
    for entry in fs::read_dir(root().join("wit")).unwrap() {
        let (original, name) = entry.map(|entry| (entry.path(), entry.file_name())).unwrap();
        let packaged = folder.join(versioned("weir-filter")).join("wit").join(&name);
        assert_eq!(fs::read(&packaged).unwrap(), fs::read(original).unwrap(), "{}", packaged.display());
    }

    let example = root().join("filters/docs/examples/rust");
    let project = folder.join("drain");
    for (file, _) in files_below(&example) {
        let target = project.join(&file);
        fs::create_dir_all(target.parent().unwrap()).unwrap();
        fs::copy(example.join(&file), target).unwrap();
    }
    let manifest = fs::read_to_string(project.join("Cargo.toml")).unwrap();
    let in_repository = "{ path = \"../../../sdk\" }";
    assert!(manifest.contains(in_repository), "{manifest}");
    let mut manifest = manifest.replace(in_repository, &format!("\"{}\"", env!("CARGO_PKG_VERSION")));
    manifest.push_str("\n[workspace]\n\n[patch.crates-io]\n");
    for name in PACKAGES {
        manifest.push_str(&format!("{name} = {{ path = \"../{}\" }}\n", versioned(name)));
    }
    fs::write(project.join("Cargo.toml"), manifest).unwrap();
    // The versions that the workspace has downloaded.
    fs::copy(root().join("Cargo.lock"), project.join("Cargo.lock")).unwrap();

    let tested = cargo(&project, &["test"]);
    assert!(tested.contains("test cases ... ok"), "{tested}");
    cargo(&project, &["build", "--target", "wasm32-wasip2"]);
    let module = Path::new(env!("CARGO_TARGET_TMPDIR")).join("package-target/wasm32-wasip2/debug/drain.wasm");
    assert!(fs::read(module).unwrap().starts_with(b"\0asm"), "not a module");
}
