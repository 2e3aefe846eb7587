//! One run of the daemon in a life.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;
use weir_tests::client::{Client, PATIENCE};
use weir_tests::daemon::Daemon;

use super::history::{Collection, Shown};
use super::moves::Name;

pub(super) struct Run {
    pub(super) weir: Daemon,
    pub(super) name: Name,
    /// Of a user who may not read the cache directory.
    pub(super) is_other: bool,
    /// The cluster that it was first connected to.
    pub(super) confirmed: Option<usize>,
    /// The history that it follows, and the versions that it has shown since.
    pub(super) fresh: Option<(usize, BTreeMap<Collection, u64>)>,
    /// Whether the disk was not what it should be meanwhile.
    pub(super) is_troubled: bool,
    pub(super) key: Option<usize>,
    /// The end of the log of the run before.
    pub(super) before: String,
}

impl Run {
    pub(super) fn client(&self, collection: Collection) -> Client {
        match collection {
            Collection::Services => self.weir.client("kube-proxy").with("authorization", "Bearer proxy"),
            Collection::Secrets => self.weir.client("kubelet"),
        }
    }

    /// What clients of this node read.
    pub(super) fn collections(&self) -> impl Iterator<Item = Collection> + use<> {
        let is_right = self.name == Name::Right;
        Collection::ALL.into_iter().filter(move |collection| is_right || *collection == Collection::Services)
    }

    pub(super) async fn shown(&self, collection: Collection) -> Option<Shown> {
        let answer = self.client(collection).try_get(collection.path()).await.unwrap_or_else(|error| self.fail(&error));
        (answer.status == 200).then(|| Shown::of(&answer.json()))
    }

    pub(super) async fn store(&self, collection: Collection) -> Value {
        let caches = self.weir.admin().json("/caches").await;
        let stores = caches["stores"].as_array().unwrap();
        stores.iter().find(|store| store["resource"] == collection.resource()).cloned().unwrap_or_default()
    }

    /// Waits until the daemon has noticed that there is no API server.
    pub(super) async fn without_server(&self) {
        let noticed = async {
            while self.weir.admin().json("/status").await["servers"][0]["state"] == "up" {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        if tokio::time::timeout(PATIENCE, noticed).await.is_err() {
            self.fail("the daemon does not notice that there is no API server");
        }
    }

    pub(super) fn fail(&self, text: &str) -> ! {
        panic!("{text}\nthe end of the log before:\n{}\nthe end of the log:\n{}", self.before, self.end_of_log());
    }

    pub(super) fn end_of_log(&self) -> String {
        let log = self.weir.log_text();
        let lines: Vec<_> = log.lines().collect();
        lines[lines.len().saturating_sub(40)..].join("\n")
    }
}
