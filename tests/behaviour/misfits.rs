//! What is on disk does not fit this start: nothing is lost of it, and the next start that fits serves it.

use std::path::{Path, PathBuf};
use std::process::Command;

use weir_apiserver::ApiServer;
use weir_tests::daemon::{Daemon, Setup, own_uid};
use weir_tests::link::Link;
use weir_tests::pki::{Authority, certificate_user, kubeconfig};
use weir_tests::plane::skipped;

use super::edge;
use super::offline::committed;

const SERVICES: &str = "/api/v1/services?resourceVersion=0";

fn setup(link: &Link, cache: &Path, node: &str) -> Setup {
    Setup::new(&link.url()).on_disk(cache).filters("filters: []").flag("--node-name", node)
}

/// A node has been online, and its API server cannot be reached any more. Returns the names of its Services.
async fn offline(cache: &Path) -> (ApiServer, Link, Vec<String>) {
    let server = edge().await;
    let mut link = Link::to(&server).await;
    let weir = setup(&link, cache, "edge-a").start_ready().await;
    let names = weir.client("kube-proxy").names(SERVICES).await;
    assert!(!names.is_empty());
    committed(&server, &weir).await;
    assert_eq!(weir.stop().await, Some(0));
    link.down().await;
    (server, link, names)
}

async fn names(weir: &Daemon) -> Option<Vec<String>> {
    let list = weir.client("kube-proxy").get(SERVICES).await;
    (list.status == 200).then(|| {
        let list: serde_json::Value = serde_json::from_str(&list.text()).unwrap();
        let items = list["items"].as_array().unwrap().iter();
        items.map(|item| item["metadata"]["name"].as_str().unwrap().to_owned()).collect()
    })
}

/// A cache is no reason not to serve. That there is none although one was asked for is a fault.
#[tokio::test]
async fn a_cache_directory_that_is_none_ends_no_start() {
    use std::os::unix::fs::PermissionsExt as _;

    let server = edge().await;
    let folder = tempfile::tempdir().unwrap();
    let (file, shared) = (folder.path().join("file"), folder.path().join("shared"));
    std::fs::write(&file, "not a folder").unwrap();
    std::fs::create_dir(&shared).unwrap();
    std::fs::set_permissions(&shared, std::fs::Permissions::from_mode(0o777)).unwrap();
    let is_none = |path: &Path| path.display().to_string();
    for path in [is_none(&file), is_none(&file.join("below")), is_none(&shared), "/proc/weir".to_owned()] {
        let weir = Setup::new(server.url()).filters("filters: []").flag("--cache-dir", &path).start_ready().await;
        let line = weir.logged("the cache directory cannot be used, nothing is kept on disk").await;
        assert_eq!(line["fields"]["path"], path, "{line}");
        assert!(names(&weir).await.is_some());
        let status = weir.admin().json("/status").await;
        let notice = &status["notices"][0];
        assert_eq!((&status["health"], &notice["name"]), (&"degraded".into(), &"cache-directory".into()), "{status}");
        assert!(notice["text"].as_str().unwrap().contains(&path), "{notice}");
        assert_eq!(weir.stop().await, Some(0));
    }
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "not a folder");
}

#[tokio::test]
async fn a_start_offline_under_another_name_costs_nothing() {
    let cache = tempfile::tempdir().unwrap();
    let (_server, link, kept) = offline(cache.path()).await;
    // What `%H` may be before a node has its name.
    let weir = setup(&link, cache.path(), "localhost").start().await;
    assert_eq!(names(&weir).await, None, "that is another node");
    let line = weir.logged("watch cache on disk was set aside").await;
    assert_eq!(line["fields"]["reason"], "node", "{line}");
    assert!(cache.path().join("watch-cache.redb.node").exists());
    weir.kill().await;
    for name in ["edge-a", " Edge-A"] {
        let weir = setup(&link, cache.path(), name).start().await;
        assert_eq!(names(&weir).await.as_ref(), Some(&kept), "{name:?}: {}", weir.log_text());
        assert_eq!(weir.stop().await, Some(0));
    }
}

#[tokio::test]
async fn the_name_in_the_node_credential_counts() {
    let cache = tempfile::tempdir().unwrap();
    let (_server, link, _) = offline(cache.path()).await;
    let pair = Authority::new("cluster").client("system:node:edge-a", "system:nodes");
    let node = kubeconfig(&link.url(), "", &certificate_user(&pair));
    let weir = setup(&link, cache.path(), "localhost").file("--node-kubeconfig", "node.yaml", &node).start().await;
    let line = weir.logged("--node-name names another node than the node credential").await;
    assert_eq!((&line["level"], &line["fields"]["flag"]), (&"ERROR".into(), &"localhost".into()), "{line}");
    assert_eq!(line["fields"]["node"], "edge-a");
    assert_eq!(weir.admin().json("/status").await["node"], "edge-a");
    assert!(!weir.log_text().contains("set aside"), "{}", weir.log_text());
}

#[tokio::test]
async fn a_node_that_the_cluster_does_not_have_is_logged() {
    let server = edge().await;
    let weir = Setup::new(server.url()).filters("filters: []").flag("--node-name", "edge-z").start_ready().await;
    let line = weir.logged("the cluster has no Node of this name").await;
    assert_eq!((&line["level"], &line["fields"]["node"]), (&"WARN".into(), &"edge-z".into()), "{line}");
}

/// A file system of its own, while it lives.
pub(super) struct Mount(pub(super) PathBuf);

impl Mount {
    pub(super) fn run(&self, options: &str) {
        let path = self.0.display().to_string();
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", options, "tmpfs", &path]).status().unwrap();
        assert!(mounted.success(), "{options}");
    }

    pub(super) fn remount(&self, options: &str) {
        let path = self.0.display().to_string();
        assert!(Command::new("mount").args(["-o", &format!("remount,{options}"), &path]).status().unwrap().success());
    }

    /// Returns whether it is mounted so now: while a process writes, it stays writable.
    pub(super) fn try_remount(&self, options: &str) -> bool {
        let path = self.0.display().to_string();
        let output = Command::new("mount").args(["-o", &format!("remount,{options}"), &path]).output();
        output.unwrap().status.success()
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[tokio::test]
async fn a_disk_that_is_read_only_or_full_is_read() {
    if own_uid() != 0 {
        return skipped("only root mounts file systems");
    }
    for (state, fill) in [("ro", false), ("rw", true)] {
        let folder = tempfile::tempdir().unwrap();
        let mount = Mount(folder.path().to_owned());
        mount.run("size=64m,mode=0700");
        let cache = folder.path().join("cache");
        let (_server, mut link, kept) = offline(&cache).await;
        if fill {
            let filler = std::fs::File::create(folder.path().join("filler")).unwrap();
            let mut filler = std::io::BufWriter::new(filler);
            while std::io::Write::write_all(&mut filler, &[0; 1 << 16]).is_ok() {}
        }
        mount.remount(state);
        let weir = setup(&link, &cache, "edge-a").start().await;
        assert_eq!(names(&weir).await, Some(kept), "{state} {fill}: {}", weir.log_text());
        link.up().await;
        weir.kill().await;
    }
}
