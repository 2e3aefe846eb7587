//! What other programs use of the crate: the example `controller`, in processes of its own, with an API server and after that
//! without one; and what it stands on.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests and their helpers: a panic is the report"
)]

#[path = "../examples/controller.rs"]
mod controller;

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{Stream, StreamExt as _};
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::ResourceExt as _;
use kube::runtime::watcher::{self, Event};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use weir_apiserver::{Action, ApiServer, End};
use weir_store::cache::Collection;
use weir_store::disk::{DiskCache, DiskConfig};
use weir_store::{ReflectorClient, ResourceStores, ResourceStoresConfig, StoreReader};
use weir_upstream::{Tasks, Upstream, UpstreamConfig};

/// No line and no end takes this long.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Where the example keeps its cache. Only the processes of the test have it.
const DIRECTORY: &str = "CACHE_DIRECTORY";
/// Marks such a process.
const CHILD: &str = "WEIR_TEST_CONTROLLER";

/// A running example.
struct Program {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Program {
    fn start(kubeconfig: &Path, directory: &Path) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "child", "--nocapture"])
            .env(CHILD, "1")
            .env("KUBECONFIG", kubeconfig)
            .env(DIRECTORY, directory)
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, lines }
    }

    /// The next Service that was reconciled; `None` at the end of the output.
    async fn reconciled(&mut self) -> Option<String> {
        loop {
            let line = within(self.lines.next_line()).await.unwrap()?;
            // The test harness begins the first line.
            if let Some((_, service)) = line.split_once("reconciled ") {
                return Some(service.to_owned());
            }
        }
    }

    /// Waits until all of these were reconciled, in any order, and nothing else.
    async fn reconciles(&mut self, services: &[&str]) {
        let mut missing: BTreeSet<_> = services.iter().map(|service| (*service).to_owned()).collect();
        while !missing.is_empty() {
            let service = self.reconciled().await.expect("the program ends early");
            assert!(missing.remove(&service), "{service} is not one of {missing:?}");
        }
    }

    /// Stops the program, as a user does. Returns what was reconciled until then.
    async fn stop(mut self) -> Vec<String> {
        let pid = Pid::from_raw(self.child.id().unwrap().try_into().unwrap()).unwrap();
        kill_process(pid, Signal::INT).unwrap();
        let mut rest = Vec::new();
        while let Some(service) = self.reconciled().await {
            rest.push(service);
        }
        let status = within(self.child.wait()).await.unwrap();
        assert!(status.success(), "{status}");
        rest
    }
}

async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(TIMEOUT, future).await.expect("timed out")
}

fn service(namespace: &str, name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"namespace": namespace, "name": name}, "spec": {"type": "ClusterIP"}})
}

/// The example itself. Does nothing in a normal test run.
#[test]
fn child() {
    if std::env::var_os(CHILD).is_some() {
        controller::main().unwrap();
    }
}

#[tokio::test]
async fn without_an_api_server_a_restarted_controller_reconciles_what_it_knew() {
    let folder = tempfile::tempdir().unwrap();
    let (kubeconfig, directory) = (folder.path().join("config"), folder.path().join("cache"));
    let api = ApiServer::builder().start().await.unwrap();
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": api.url()}}],
        "users": [{"name": "c", "user": {}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "c"}}],
    });
    std::fs::write(&kubeconfig, config.to_string()).unwrap();
    for (namespace, name) in [("default", "a"), ("default", "b"), ("kube-system", "a")] {
        api.store().put(service(namespace, name)).unwrap();
    }

    let mut program = Program::start(&kubeconfig, &directory);
    program.reconciles(&["default/a", "default/b", "kube-system/a"]).await;
    // Events arrive in their order: with the new Service, the deletion is known, too.
    api.store().delete("v1", "Service", "default", "b").unwrap();
    api.store().put(service("default", "c")).unwrap();
    program.reconciles(&["default/c"]).await;
    assert_eq!(program.stop().await, [""; 0]);
    api.stop().await;

    let mut program = Program::start(&kubeconfig, &directory);
    program.reconciles(&["default/a", "default/c", "kube-system/a"]).await;
    assert_eq!(program.stop().await, [""; 0]);
}

/// Stores in this process.
fn stores_of(api: &ApiServer, disk: Option<Arc<DiskCache>>, tasks: &Tasks) -> ResourceStores {
    let config = UpstreamConfig::new(kube::Config::new(api.url().parse().unwrap()));
    let upstream = Arc::new(Upstream::new(&config, Arc::default()).unwrap());
    upstream.start_probes(tasks);
    let (client, connectivity) = (upstream.client(), upstream.connectivity());
    let daemon = Some(ReflectorClient { client, connectivity, delegated: None });
    ResourceStores::new(ResourceStoresConfig { daemon, disk, ..ResourceStoresConfig::default() }, tasks.clone())
}

/// The next events: what each does, and the name of the Service.
async fn next<const N: usize>(
    events: &mut (impl Stream<Item = watcher::Result<Event<Service>>> + Unpin),
) -> [String; N] {
    let mut next = [const { String::new() }; N];
    for text in &mut next {
        *text = match within(events.next()).await.unwrap().unwrap() {
            Event::Init => "init".to_owned(),
            Event::InitApply(service) => format!("init {}", service.name_any()),
            Event::InitDone => "init done".to_owned(),
            Event::Apply(service) => format!("apply {}", service.name_any()),
            Event::Delete(service) => format!("delete {}", service.name_any()),
        };
    }
    next
}

#[test]
fn the_collection_of_a_kube_type_is_the_whole_one() {
    for (collection, path, group) in [
        (Collection::all::<Service>(), "/api/v1/services", ""),
        (Collection::all::<EndpointSlice>(), "/apis/discovery.k8s.io/v1/endpointslices", "discovery.k8s.io"),
    ] {
        assert!(collection.is_whole());
        assert_eq!((collection.path.as_str(), collection.resource.group.as_str()), (path, group));
    }
}

#[tokio::test]
async fn events_are_the_present_objects_then_changes_and_after_a_list_the_difference() {
    let api = ApiServer::builder().start().await.unwrap();
    for name in ["goes", "stays"] {
        api.store().put(service("default", name)).unwrap();
    }
    let tasks = Tasks::default();
    let stores = stores_of(&api, None, &tasks);
    let store = stores.open(&StoreReader::Daemon, &Collection::all::<Service>()).unwrap();
    let mut events = std::pin::pin!(store.kube_events::<Service>());
    // The stream keeps the store open.
    drop(store);
    assert_eq!(next(&mut events).await, ["init", "init goes", "init stays", "init done"]);
    within(api.open_watches().wait_for(|open| *open == 1)).await.unwrap();
    api.store().put(service("default", "more")).unwrap();
    api.store().put(service("default", "stays")).unwrap();
    api.store().delete("v1", "Service", "default", "more").unwrap();
    assert_eq!(next(&mut events).await, ["apply more", "apply stays", "delete more"]);
    // The events of an interruption are lost. Only a list shows what has changed.
    api.on_request(|request| if request.query.contains("watch=") { Action::Reset } else { Action::Serve });
    api.close_watches(End::Abort);
    within(api.open_watches().wait_for(|open| *open == 0)).await.unwrap();
    api.store().delete("v1", "Service", "default", "goes").unwrap();
    api.store().put(service("default", "comes")).unwrap();
    api.compact();
    api.clear_hook();
    assert_eq!(next(&mut events).await, ["delete goes", "apply comes"]);
    api.store().put(service("default", "last")).unwrap();
    assert_eq!(next(&mut events).await, ["apply last"]);
    assert!(tasks.drain(TIMEOUT).await);
}

#[tokio::test]
async fn a_file_of_another_cluster_is_noticed() {
    let folder = tempfile::tempdir().unwrap();
    let open = || DiskCache::new(DiskConfig::new(&folder.path().join("cache"), "node"), Arc::default());
    let before = open();
    before.confirm_cluster("another cluster".to_owned()).await;
    before.close().await;
    let (api, disk, tasks) = (ApiServer::builder().start().await.unwrap(), open(), Tasks::default());
    let stores = stores_of(&api, Some(disk.clone()), &tasks);
    let mut changes = stores.cluster_watch().changes();
    tasks.spawn_until_stop(stores.clone().confirm_cluster());
    within(changes.wait_for(|changes| changes.on_disk == 1)).await.unwrap();
    let namespace = api.store().get("v1", "Namespace", "", "kube-system").unwrap();
    assert_eq!(disk.cluster().await.as_deref(), namespace["metadata"]["uid"].as_str());
    assert!(tasks.drain(TIMEOUT).await);
}
