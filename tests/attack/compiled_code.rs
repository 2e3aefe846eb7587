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

/// Anyone who can write to it could put code there, which the daemon would run.
#[tokio::test]
async fn a_cache_directory_that_others_may_write_is_not_used() {
    let server = edge().await;
    let cache = tempfile::tempdir().unwrap();
    let put = cache.path().join("code");
    std::fs::create_dir(&put).unwrap();
    std::fs::set_permissions(cache.path(), PermissionsExt::from_mode(0o777)).unwrap();
    let weir = Setup::new(server.url()).filters(NO_LOAD_BALANCERS).bundled("discardcloudservice");
    let weir = weir.flag("--cache-dir", cache.path().to_str().unwrap()).start_ready().await;
    let line = weir.logged("the cache directory cannot be used").await.to_string();
    assert!(line.contains("nobody else may write to it"), "{line}");
    assert_eq!(weir.client("kube-proxy").get(SERVICES).await.status, 200);
    assert_eq!(weir.stop().await, Some(0));
    let mut files = Vec::new();
    code_below(cache.path(), &mut files);
    assert!(files.is_empty() && put.read_dir().unwrap().next().is_none(), "{files:?}");
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
