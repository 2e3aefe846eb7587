//! Lookups of a daemon that restarts: their objects and versions come from disk.

use std::path::Path;

use serde_json::json;
use weir_apiserver::ApiServer;
use weir_spec::LookupSpec;

use super::disk::DiskConfig;
use super::*;

/// A cache on disk that a test opens again, as a restarted daemon does.
fn open_disk(folder: &Path) -> Arc<DiskCache> {
    DiskCache::new(DiskConfig::new(&folder.join("cache"), "node"), Arc::default())
}

fn lookups_of(url: &str, disk: &Arc<DiskCache>) -> Reflectors {
    reflectors_with(StoresFixture { url: url.to_owned(), disk: Some(disk.clone()), ..StoresFixture::default() })
}

fn pools() -> LookupSpec {
    LookupSpec { versions: vec!["v1beta2".into()], ..LookupSpec::all("nodepools.apps.openyurt.io".parse().unwrap()) }
}

fn all() -> [LookupSpec; 3] {
    let nodes = LookupSpec::all("nodes".parse().unwrap());
    [LookupSpec::all("services".parse().unwrap()), LookupSpec { metadata_only: true, ..nodes }, pools()]
}

/// A daemon with three lookups has run and stopped. Its API server runs on.
async fn filled(folder: &Path) -> ApiServer {
    let api = ApiServer::builder().start().await.unwrap();
    let pool = json!({"apiVersion": "apps.openyurt.io/v1beta2", "kind": "NodePool", "metadata": {"name": "p"}});
    for object in [service("a", json!({})), node("n1"), pool] {
        api.store().put(object).unwrap();
    }
    let disk = open_disk(folder);
    let reflectors = lookups_of(api.url(), &disk);
    let handles = all().map(|lookup| reflectors.open(&lookup));
    for handle in &handles {
        within(handle.synced()).await.unwrap();
    }
    disk.close().await;
    api
}

const UNREACHABLE: &str = "http://127.0.0.1:1";

#[tokio::test]
async fn without_an_api_server_lookups_are_those_of_the_last_run_and_count_as_stale() {
    let folder = tempfile::tempdir().unwrap();
    drop(filled(folder.path()).await);
    let reflectors = lookups_of(UNREACHABLE, &open_disk(folder.path()));
    for (lookup, name) in all().iter().zip(["a", "n1", "p"]) {
        let handle = reflectors.open(lookup);
        within(handle.synced()).await.unwrap();
        assert_eq!(names(&reflectors.snapshot(), lookup), [name]);
        assert!(reflectors.status().iter().all(|status| status.stale), "{:?}", reflectors.status());
    }
}

#[tokio::test]
async fn when_the_api_server_returns_lookups_follow_it_without_a_list() {
    let folder = tempfile::tempdir().unwrap();
    let api = filled(folder.path()).await;
    let before = api.requests().len();
    let reflectors = lookups_of(api.url(), &open_disk(folder.path()));
    let lookup = pools();
    let handle = reflectors.open(&lookup);
    within(handle.synced()).await.unwrap();
    let mut changes = reflectors.changes();
    api.store()
        .put(json!({"apiVersion": "apps.openyurt.io/v1beta2", "kind": "NodePool", "metadata": {"name": "q"}}))
        .unwrap();
    within(async {
        while names(&reflectors.snapshot(), &lookup) != ["p", "q"] {
            changes.next().await.unwrap();
        }
    })
    .await;
    // Names, uids and versions show that the history continues.
    within(async {
        while reflectors.status().iter().any(|status| status.stale) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    let targets: Vec<_> = api.requests().iter().skip(before).map(|request| request.target()).collect();
    assert!(!targets.iter().any(|target| target.contains("limit=")), "{targets:?}");
}

#[tokio::test]
async fn a_resource_that_was_not_served_is_empty_without_an_api_server() {
    let folder = tempfile::tempdir().unwrap();
    let api = ApiServer::builder().start().await.unwrap();
    api.remove_resource("apps.openyurt.io", "nodepools");
    let disk = open_disk(folder.path());
    let reflectors = lookups_of(api.url(), &disk);
    let handle = reflectors.open(&pools());
    within(handle.synced()).await.unwrap();
    disk.close().await;
    drop((handle, reflectors, api));
    let reflectors = lookups_of(UNREACHABLE, &open_disk(folder.path()));
    let handle = reflectors.open(&pools());
    within(handle.synced()).await.unwrap();
    assert!(names(&reflectors.snapshot(), &pools()).is_empty());
}

#[tokio::test]
async fn what_was_never_read_is_not_complete_without_an_api_server() {
    let folder = tempfile::tempdir().unwrap();
    drop(filled(folder.path()).await);
    let reflectors = lookups_of(UNREACHABLE, &open_disk(folder.path()));
    let handle = reflectors.open(&LookupSpec::all("namespaces".parse().unwrap()));
    let state = within(handle.state_after(&ReflectorState::default())).await;
    assert!(!state.synced && state.error.is_some(), "{state:?}");
}

#[tokio::test]
async fn secrets_of_lookups_are_not_kept_on_disk() {
    let folder = tempfile::tempdir().unwrap();
    let api = ApiServer::builder().start().await.unwrap();
    let disk = open_disk(folder.path());
    let reflectors = lookups_of(api.url(), &disk);
    let lookup = LookupSpec::all("secrets".parse().unwrap());
    let handle = reflectors.open(&lookup);
    within(handle.synced()).await.unwrap();
    disk.close().await;
    drop((handle, reflectors));
    let reflectors = lookups_of(UNREACHABLE, &open_disk(folder.path()));
    let handle = reflectors.open(&lookup);
    let state = within(handle.state_after(&ReflectorState::default())).await;
    assert!(!state.synced, "{state:?}");
}
