//! Compiled code where the disk cannot be written: it is a cache.

use std::path::Path;
use std::time::Duration;

use weir_tests::client::PATIENCE;
use weir_tests::daemon::{Setup, own_uid};
use weir_tests::plane::skipped;

use super::misfits::Mount;
use super::{NO_LOAD_BALANCERS, edge};

const SERVICES: &str = "/api/v1/services";

#[tokio::test]
async fn modules_are_compiled_in_memory_while_the_disk_is_read_only_or_full() {
    if own_uid() != 0 {
        return skipped("only root mounts file systems");
    }
    let server = edge().await;
    for (state, fill) in [("ro", false), ("rw", true)] {
        let folder = tempfile::tempdir().unwrap();
        let mount = Mount(folder.path().to_owned());
        mount.run("size=1m,mode=0700");
        if fill {
            let mut filler = std::fs::File::create(folder.path().join("filler")).unwrap();
            while std::io::Write::write_all(&mut filler, &[0; 1 << 12]).is_ok() {}
        }
        mount.remount(state);
        let setup = Setup::new(server.url()).on_disk(folder.path());
        let weir = setup.filters(NO_LOAD_BALANCERS).bundled("discardcloudservice").start_ready().await;
        let names = weir.client("kube-proxy").names(SERVICES).await;
        assert_eq!(names, ["dashboard", "kubernetes", "web"], "{state}: {}", weir.log_text());
        let line = weir.logged("compiled code cannot be kept on disk").await;
        assert_eq!(line["level"], "WARN", "{line}");
        assert!(line.to_string().contains(&folder.path().display().to_string()), "{line}");
        let memory = format!("weir-{}", weir_spec::Digest::of(folder.path().as_os_str().as_encoded_bytes()).hex());
        let memory = Path::new("/dev/shm").join(memory);
        let removed = async {
            while memory.exists() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        // The filters are in force a moment before.
        tokio::time::timeout(PATIENCE, removed).await.expect("code that is loaded is no longer there");
    }
}

#[tokio::test]
async fn a_cache_directory_that_a_read_only_disk_does_not_have_stops_nothing() {
    if own_uid() != 0 {
        return skipped("only root mounts file systems");
    }
    let server = edge().await;
    let folder = tempfile::tempdir().unwrap();
    let mount = Mount(folder.path().to_owned());
    mount.run("size=1m,mode=0700");
    mount.remount("ro");
    let cache = folder.path().join("cache");
    let setup = Setup::new(server.url()).on_disk(&cache);
    let weir = setup.filters(NO_LOAD_BALANCERS).bundled("discardcloudservice").start_ready().await;
    assert_eq!(weir.client("kube-proxy").names(SERVICES).await, ["dashboard", "kubernetes", "web"]);
    let line = weir.logged("the cache directory cannot be used").await;
    assert_eq!(
        (&line["level"], &line["fields"]["path"]),
        (&"ERROR".into(), &cache.display().to_string().into()),
        "{line}"
    );
}
