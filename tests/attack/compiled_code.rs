//! Compiled code on disk that is not what was compiled.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use weir_tests::built;
use weir_tests::daemon::Setup;
use weir_tests::edge::{NO_LOAD_BALANCERS, edge};

const SERVICES: &str = "/api/v1/services";

/// Statistics, and the lock of a cleaning: wasmtime may be writing them when the process ends.
fn is_wasmtimes(name: &str) -> bool {
    name.ends_with("stats") || name.starts_with(".cleanup.")
}

fn code_below(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
        match entry.file_type().unwrap().is_dir() {
            true => code_below(&entry.path(), found),
            false if is_wasmtimes(&entry.file_name().to_string_lossy()) => {}
            false => found.push(entry.path()),
        }
    }
}

#[tokio::test]
async fn a_changed_bit_in_compiled_code_is_never_run() {
    let server = edge().await;
    let cache = tempfile::tempdir().unwrap();
    let mut setup = Setup::new(server.url())
        .filters(NO_LOAD_BALANCERS)
        .bundled("discardcloudservice")
        .flag("--cache-dir", &cache.path().display().to_string());
    for round in 0..12 {
        let weir = setup.start_ready().await;
        assert_eq!(weir.client("tool").names(SERVICES).await, ["dashboard", "kubernetes", "web"], "{round}");
        if round > 0 {
            weir.logged("compiled code on disk cannot be used").await;
        }
        setup = weir.stopped().await;
        let mut files = Vec::new();
        code_below(&cache.path().join("code"), &mut files);
        let [file] = &files[..] else { panic!("one module: {files:?}") };
        let mut code = std::fs::read(file).unwrap();
        let at = code.len() * round / 12;
        code[at] ^= 1 << (round % 8);
        std::fs::write(file, code).unwrap();
    }
}

#[test]
fn a_cache_directory_that_others_may_write_is_refused() {
    let cache = tempfile::tempdir().unwrap();
    std::fs::set_permissions(cache.path(), PermissionsExt::from_mode(0o777)).unwrap();
    let output = Command::new(built::weir())
        .args(["serve", "--server", "http://127.0.0.1:1", "--node-name", "n", "--port", "0", "--admin-port", "0"])
        .arg("--cache-dir")
        .arg(cache.path())
        .env_clear()
        .output()
        .unwrap();
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.contains("--cache-dir") && error.contains("nobody else may write to it"), "{error}");
}

#[test]
fn compiling_fails_within_its_memory_and_leaves_no_code() {
    let cache = tempfile::tempdir().unwrap();
    let module = std::fs::File::open(built::module("discardcloudservice")).unwrap();
    let output = Command::new(built::weir())
        .args(["compile", "--memory", "33554432", "--cache-dir"])
        .arg(cache.path())
        .stdin(Stdio::from(module))
        .env_clear()
        .output()
        .unwrap();
    assert!(!output.status.success(), "32 MiB do not suffice");
    let mut files = Vec::new();
    code_below(cache.path(), &mut files);
    assert!(files.is_empty(), "{files:?}");
}
