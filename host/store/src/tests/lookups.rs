//! What a lookup selects, and how lookups share reflectors.

use serde_json::json;
use weir_apiserver::{Action, ApiServer};
use weir_spec::LookupSpec;

use super::*;

#[tokio::test]
async fn a_synced_reflector_returns_whole_typed_objects() {
    let cluster = cluster().await;
    cluster.put(service("b", json!({"app": "x"})));
    cluster.put(service("a", json!({"app": "y"})));
    let lookup = LookupSpec::all("services".parse().unwrap());
    let _handle = cluster.open(&lookup).await;
    let snapshot = cluster.reflectors.snapshot();
    assert_eq!(names(&snapshot, &lookup), ["a", "b"]);
    let object = snapshot.get(&lookup, Some("default"), "a").unwrap();
    assert_eq!(object.document().kind().unwrap(), "Service", "items of a typed list have the kind of the list");
    assert_eq!(object.document().api_version().unwrap(), "v1");
    assert_eq!(snapshot.find(&lookup, Some("default"), "app=x").unwrap().objects().len(), 1);
    assert!(snapshot.get(&lookup, Some("other"), "a").is_none());
}

#[tokio::test]
async fn a_metadata_only_lookup_requests_and_stores_metadata() {
    let cluster = cluster().await;
    cluster.put(node("n1"));
    let lookup = LookupSpec { metadata_only: true, ..LookupSpec::all("nodes".parse().unwrap()) };
    let _handle = cluster.open(&lookup).await;
    cluster.watching(1).await;
    let mut changes = cluster.reflectors.changes();
    cluster.put(node("n2"));
    cluster.until(&mut changes, |snapshot| names(snapshot, &lookup) == ["n1", "n2"]).await;
    for object in cluster.reflectors.snapshot().find(&lookup, None, "pool=p").unwrap().objects() {
        assert!(!String::from_utf8_lossy(object.document().bytes()).contains("phase"));
    }
    for request in cluster.api.requests().iter().filter(|request| request.path.ends_with("/nodes")) {
        assert!(request.header("accept").contains("as=PartialObjectMetadata"), "{}", request.header("accept"));
    }
}

#[tokio::test]
async fn equal_lookups_share_a_reflector_and_different_ones_do_not() {
    let cluster = cluster().await;
    cluster.put(service("a", json!({"app": "x"})));
    cluster.put(service("b", json!({"app": "y"})));
    let whole = LookupSpec::all("services".parse().unwrap());
    let named = LookupSpec { name: Some("a".into()), ..whole.clone() };
    let selected = LookupSpec { label_selector: Some("app in (y)".into()), ..whole.clone() };
    let handles = [
        cluster.open(&whole).await,
        cluster.open(&named).await,
        cluster.open(&selected).await,
        cluster.open(&whole).await,
    ];
    cluster.watching(3).await;
    let snapshot = cluster.reflectors.snapshot();
    assert_eq!(names(&snapshot, &whole), ["a", "b"]);
    assert_eq!(names(&snapshot, &named), ["a"]);
    assert_eq!(names(&snapshot, &selected), ["b"]);
    assert_eq!(cluster.targets("fieldSelector=metadata.name%3Da").len(), 2, "list and watch use the selector");
    assert_eq!(cluster.targets("labelSelector=app%20in%20%28y%29").len(), 2);
    let [first, named, selected, second] = handles;
    drop((first, named, selected));
    cluster.watching(1).await;
    assert_eq!(names(&cluster.reflectors.snapshot(), &whole), ["a", "b"], "one handle keeps a reflector running");
    drop(second);
    cluster.watching(0).await;
    assert!(names(&cluster.reflectors.snapshot(), &whole).is_empty());
}

#[tokio::test]
async fn the_versions_of_a_lookup_are_tried_in_order() {
    let cluster = cluster().await;
    let pools = |versions: &[&str]| LookupSpec {
        versions: versions.iter().map(ToString::to_string).collect(),
        ..LookupSpec::all("nodepools".parse().unwrap())
    };
    let _old = cluster.open(&pools(&["v9", "v1beta1", "v1beta2"])).await;
    let _any = cluster.open(&pools(&[])).await;
    cluster.watching(2).await;
    assert_eq!(cluster.targets("/v1beta1/nodepools?limit=").len(), 1);
    assert_eq!(cluster.targets("/v1beta2/nodepools?limit=").len(), 1);
    assert!(cluster.targets("/v9/").is_empty());
    let none = cluster.open(&pools(&["v9"])).await;
    assert!(none.state().synced, "a version that is not served counts as a resource that is not");
}

const POOLS: &str = "apps.openyurt.io";

fn pool(version: &str, name: &str) -> serde_json::Value {
    json!({"apiVersion": format!("{POOLS}/{version}"), "kind": "NodePool", "metadata": {"name": name}})
}

#[tokio::test]
async fn a_resource_whose_served_version_changes_keeps_its_objects() {
    let folder = tempfile::tempdir().unwrap();
    let disk = || DiskCache::new(disk::DiskConfig::new(&folder.path().join("cache"), "node"), Arc::default());
    let api = Arc::new(ApiServer::builder().start().await.unwrap());
    api.store().put(pool("v1beta2", "p")).unwrap();
    let lookup = LookupSpec::all(format!("nodepools.{POOLS}").parse().unwrap());
    let cache = disk();
    let open = |url: &str, cache: &Arc<DiskCache>| {
        reflectors_with(StoresFixture { url: url.to_owned(), disk: Some(cache.clone()), ..StoresFixture::default() })
    };
    let reflectors = open(api.url(), &cache);
    let handle = reflectors.open(&lookup);
    within(handle.synced()).await.unwrap();
    cache.flush().await;
    let mut changes = reflectors.changes();
    // No list of the version that is left is answered before the test says so.
    let (may_list, lists) = tokio::sync::watch::channel(false);
    api.on_request(move |request| match request.path.contains("v1beta1/nodepools") && !*lists.borrow() {
        true => Action::json(503, "{}"),
        false => Action::Serve,
    });
    let requests = api.request_count();
    api.remove_version(POOLS, "v1beta2", "nodepools");
    api.close_watches(weir_apiserver::End::Clean);
    within(async {
        let mut requests = requests;
        while !api.requests().iter().any(|request| request.path.contains("v1beta1/nodepools")) {
            requests.changed().await.unwrap();
        }
    })
    .await;
    assert_eq!(reflectors.snapshot().count(&lookup), 1, "nothing says that the pool is gone");
    assert!(handle.state().synced);
    // A restart at this moment, without the API server.
    cache.flush().await;
    cache.close().await;
    let cache = disk();
    let offline = open("http://127.0.0.1:1", &cache);
    let restarted = offline.open(&lookup);
    within(restarted.synced()).await.unwrap();
    assert_eq!(offline.snapshot().count(&lookup), 1);
    drop((restarted, offline));

    may_list.send_replace(true);
    api.store().put(pool("v1beta1", "q")).unwrap();
    within(async {
        while reflectors.snapshot().count(&lookup) != 2 {
            changes.next().await.unwrap();
        }
    })
    .await;
    // Only when no version is served, there are no objects.
    api.remove_resource(POOLS, "nodepools");
    api.close_watches(weir_apiserver::End::Clean);
    within(async {
        while reflectors.snapshot().count(&lookup) != 0 {
            changes.next().await.unwrap();
        }
    })
    .await;
}
