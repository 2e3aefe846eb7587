//! An older daemon and this one in turn over one cache directory, up and down, with and without an API server: each serves what
//! either of them has kept.
//!
//! `WEIR_PREVIOUS` names a checkout in which `make build` has run; without it, this daemon stands in for the older one.

use std::path::{Path, PathBuf};

use weir_apiserver::ApiServer;
use weir_tests::daemon::{Daemon, Setup};
use weir_tests::link::Link;

use super::edge;
use super::offline::committed;

const SERVICES: &str = "/api/v1/services?resourceVersion=0";

/// Which daemon a step starts.
#[derive(Debug, Clone, Copy)]
enum Release {
    Older,
    This,
}

struct Node {
    server: ApiServer,
    link: Link,
    cache: PathBuf,
    previous: Option<PathBuf>,
    added: u32,
}

impl Node {
    async fn start(&self, release: Release) -> Daemon {
        let setup = Setup::new(&self.link.url()).on_disk(&self.cache).filters("filters: []");
        match (release, &self.previous) {
            (Release::Older, Some(previous)) => setup.program(previous.join("target/release/weir")),
            _ => setup,
        }
        .start()
        .await
    }

    /// The Services that kube-proxy gets. A daemon that has just started may not have read all of its disk.
    async fn names(&self, weir: &Daemon, offline: bool) -> Vec<String> {
        let list = weir.client("kube-proxy").get(SERVICES).await;
        assert_eq!(list.status, 200, "{}", weir.log_text());
        assert_eq!(list.headers.contains_key("warning"), offline, "{}", weir.log_text());
        let list: serde_json::Value = serde_json::from_str(&list.text()).unwrap();
        let items = list["items"].as_array().unwrap().iter();
        items.map(|item| item["metadata"]["name"].as_str().unwrap().to_owned()).collect()
    }

    /// Adds a Service, and waits until it is on this node's disk.
    async fn add(&mut self, weir: &Daemon) -> Vec<String> {
        self.added += 1;
        let text = format!(
            "{{apiVersion: v1, kind: Service, metadata: {{name: added-{}, namespace: default}}, spec: {{ports: [{{port: 1}}]}}}}",
            self.added
        );
        self.server.store().load(&text).unwrap();
        let mut names = self.names(weir, false).await;
        while !names.iter().any(|name| *name == format!("added-{}", self.added)) {
            names = self.names(weir, false).await;
        }
        committed(&self.server, weir).await;
        names
    }
}

async fn changes(order: [Release; 4]) {
    let cache = tempfile::tempdir().unwrap();
    let server = edge().await;
    let link = Link::to(&server).await;
    let previous = std::env::var_os("WEIR_PREVIOUS").filter(|folder| !folder.is_empty()).map(PathBuf::from);
    let cache: &Path = cache.path();
    let mut node = Node { server, link, cache: cache.to_owned(), previous, added: 0 };
    let mut kept: Option<Vec<String>> = None;
    for release in order {
        let weir = node.start(release).await;
        if let Some(kept) = &kept {
            assert_eq!(node.names(&weir, true).await, *kept, "{release:?} offline: {}", weir.log_text());
            node.link.up().await;
        }
        weir.ready().await;
        let online = async {
            while weir.client("kube-proxy").get(SERVICES).await.headers.contains_key("warning") {
                tokio::time::sleep(std::time::Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(weir_tests::client::PATIENCE, online).await.expect("the link is back");
        kept = Some(node.add(&weir).await);
        assert!(!weir.log_text().contains("set aside"), "{release:?}: {}", weir.log_text());
        assert_eq!(weir.stop().await, Some(0));
        node.link.down().await;
    }
    // Each once more, without an API server in between.
    for release in order {
        let weir = node.start(release).await;
        assert_eq!(Some(node.names(&weir, true).await), kept, "{release:?} again: {}", weir.log_text());
        weir.kill().await;
    }
}

#[tokio::test]
async fn an_upgrade_and_a_roll_back_serve_what_either_release_has_kept() {
    changes([Release::Older, Release::This, Release::Older, Release::This]).await;
}

#[tokio::test]
async fn a_node_that_began_with_this_release_can_be_rolled_back() {
    changes([Release::This, Release::Older, Release::This, Release::Older]).await;
}
