//! Views of a daemon that restarts: what it served before comes from disk.

use std::path::Path;

use weir_runtime::Outcome;
use weir_store::disk::{DiskCache, DiskConfig};

use super::*;

const SERVICES: &str = "/api/v1/services?resourceVersion=0";

fn open(directory: &Path) -> Arc<DiskCache> {
    DiskCache::new(DiskConfig::new(&directory.join("cache"), "node"), Arc::default())
}

/// A proxy whose Services are cached here. It keeps all of them.
async fn start(disk: &Arc<DiskCache>, upstream: Option<UpstreamConfig>) -> ProxyFixture {
    let fixture = fixture_with(|setup| {
        setup.cached = vec!["services".parse().unwrap()];
        setup.disk = Some(disk.clone());
        setup.upstream = upstream.unwrap_or(setup.upstream.clone());
    })
    .await;
    fixture.no_filters();
    fixture
}

async fn stop(fixture: ProxyFixture, disk: Arc<DiskCache>) -> ApiServer {
    disk.close().await;
    fixture.tasks.drain(Duration::from_secs(10)).await;
    fixture.server
}

/// A proxy whose client has listed and watched two Services has stopped.
async fn filled(directory: &Path) -> ApiServer {
    let disk = open(directory);
    let fixture = start(&disk, None).await;
    for name in ["a", "b"] {
        fixture.service(name, "ClusterIP");
    }
    let (status, list) = fixture.json(SERVICES).await;
    assert_eq!((status, names(&list)), (StatusCode::OK, vec!["a", "b"]));
    // As each informer does: a permission to list does not include one to watch.
    drop(fixture.watch(&format!("/api/v1/services?watch=1&resourceVersion={}", version(&list))).await);
    stop(fixture, disk).await
}

#[tokio::test]
async fn a_daemon_that_restarts_without_its_api_server_serves_from_disk() {
    let folder = tempfile::tempdir().unwrap();
    let (fixture, disk, _hidden) = restarted(folder.path()).await;
    let (status, list) = fixture.json(SERVICES).await;
    assert_eq!((status, names(&list)), (StatusCode::OK, vec!["b"]), "{list}");
    // The link is known to be down by now.
    let response = fixture.send("/api/v1/namespaces/default/services/b", &[]).await;
    assert_eq!(response.status(), StatusCode::OK);
    assert!(response.headers().contains_key("warning"));
    stop(fixture, disk).await;
}

/// A proxy that has restarted without its API server, and hides the Service `a` now.
async fn restarted(directory: &Path) -> (ProxyFixture, Arc<DiskCache>, Script) {
    drop(filled(directory).await);
    let disk = open(directory);
    let unreachable = UpstreamConfig::new(kube::Config::new("http://127.0.0.1:1".parse().unwrap()));
    let fixture = start(&disk, Some(unreachable)).await;
    let hidden = Script::new(|document| match document.name().unwrap() == "a" {
        true => Outcome::Hidden,
        false => Outcome::Unchanged,
    });
    fixture.filter("*/services", &hidden);
    (fixture, disk, hidden)
}

#[tokio::test]
async fn after_a_restart_without_an_api_server_each_watch_gets_the_present_state() {
    let folder = tempfile::tempdir().unwrap();
    let (fixture, disk, hidden) = restarted(folder.path()).await;
    let (_, list) = fixture.json(SERVICES).await;
    assert_eq!(names(&list), ["b"]);
    // It continues from the same version of the former process, which showed it the Service.
    let watch = format!("/api/v1/services?watch=1&resourceVersion={}", version(&list));
    let metadata = [("accept", "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1")];
    let mut events = fixture.watch(&watch).await;
    let mut reduced = EventReader { body: fixture.send(&watch, &metadata).await.into_body(), rest: Vec::new() };
    for events in [&mut events, &mut reduced] {
        assert_eq!([events.next_summary().await, events.next_summary().await], ["DELETED a", "MODIFIED b"]);
    }
    fixture.filter("*/services", &Script::new(|_| Outcome::Unchanged));
    drop(hidden);
    assert_eq!(events.next_summary().await, "ADDED a");
    stop(fixture, disk).await;
}

#[tokio::test]
async fn a_daemon_that_restarts_continues_without_a_list() {
    let folder = tempfile::tempdir().unwrap();
    let server = filled(folder.path()).await;
    let store = server.store();
    let before = server.requests().len();
    let disk = open(folder.path());
    let fixture = start(&disk, Some(upstream(&server))).await;
    let (_, list) = fixture.json(SERVICES).await;
    assert_eq!(names(&list), ["a", "b"]);
    let mut events = fixture.watch(&format!("/api/v1/services?watch=1&resourceVersion={}", version(&list))).await;
    store
        .put(json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "c", "namespace": "default"}}))
        .unwrap();
    assert_eq!(events.next_summary().await, "ADDED c");
    let reads: Vec<_> = server.requests().iter().skip(before).map(|request| request.target()).collect();
    let reads: Vec<_> = reads.into_iter().filter(|target| target.starts_with("/api/v1/services")).collect();
    assert!(reads.len() == 1 && reads[0].contains("watch=true"), "{reads:?}");
    stop(fixture, disk).await;
}

#[tokio::test]
async fn what_is_of_another_cluster_is_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let disk = open(folder.path());
    disk.confirm_cluster("another cluster".into()).await;
    disk.close().await;
    drop(filled(folder.path()).await);
    let disk = open(folder.path());
    let fixture = start(&disk, None).await;
    for name in ["x", "y", "z"] {
        fixture.service(name, "ClusterIP");
    }
    assert_eq!(names(&fixture.json(SERVICES).await.1), ["a", "b"], "the API server has not been asked yet");
    disk.confirm_cluster("this cluster".into()).await;
    let list = async {
        loop {
            let (_, list) = fixture.json(SERVICES).await;
            if names(&list) == ["x", "y", "z"] {
                return;
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), list).await.expect("the Services of this cluster");
    stop(fixture, disk).await;
}
