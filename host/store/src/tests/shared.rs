//! Lookups and views read the same stores.

use std::sync::Arc;

use serde_json::json;
use weir_apiserver::ApiServer;
use weir_kube::ResourceRequest;
use weir_spec::LookupSpec;

use super::*;
use crate::cache::Collection;

fn services() -> Collection {
    let request = weir_kube::RequestInfo::parse(&http::Method::GET, &"/api/v1/services".parse().unwrap()).unwrap();
    let request: ResourceRequest = request.resource().unwrap().clone();
    Collection::whole(&request)
}

/// Clients share the store of all Services.
async fn shared() -> (ApiServer, ResourceStores, Reflectors) {
    let api = ApiServer::builder().start().await.unwrap();
    let shared = vec!["services".parse().unwrap()];
    let stores = StoresFixture { url: api.url().to_owned(), shared, ..StoresFixture::default() }.open();
    let reflectors = Reflectors::new(stores.clone());
    (api, stores, reflectors)
}

async fn opened(reflectors: &Reflectors, lookup: &LookupSpec) -> ReflectorHandle {
    let handle = reflectors.open(lookup);
    within(handle.synced()).await.unwrap();
    handle
}

#[tokio::test]
async fn lookups_of_a_cached_resource_read_the_store_of_its_views() {
    let (api, stores, reflectors) = shared().await;
    api.store().put(service("a", json!({"app": "x"}))).unwrap();
    api.store().put(service("b", json!({"app": "y"}))).unwrap();
    let store = stores.open(&StoreReader::Daemon, &services()).unwrap();
    let whole = LookupSpec::all("services".parse().unwrap());
    let named = LookupSpec { name: Some("a".into()), ..whole.clone() };
    let selected = LookupSpec { label_selector: Some("app in (y)".into()), ..whole.clone() };
    let metadata = LookupSpec { metadata_only: true, ..whole.clone() };
    let mut handles = Vec::new();
    for lookup in [&whole, &named, &selected, &metadata] {
        handles.push(opened(&reflectors, lookup).await);
    }
    let snapshot = reflectors.snapshot();
    let found = [&whole, &named, &selected, &metadata].map(|lookup| names(&snapshot, lookup));
    assert_eq!(found, [vec!["a", "b"], vec!["a"], vec!["b"], vec!["a", "b"]]);
    within(api.open_watches().wait_for(|open| *open == 1)).await.unwrap();
    let lists = api.requests().iter().filter(|request| request.query.contains("limit=")).count();
    assert_eq!(lists, 1, "one list and one watch for the view and all lookups");

    let key = StoreKey::new("default", "a");
    let stored = store.snapshot().objects.get(&key).unwrap().bytes.as_ptr();
    let indexed = snapshot.get(&whole, Some("default"), "a").unwrap();
    assert_eq!(indexed.document().bytes().as_ptr(), stored, "the bytes are shared");
}

#[tokio::test]
async fn a_shared_store_moves_objects_into_and_out_of_a_narrower_lookup() {
    let (api, _stores, reflectors) = shared().await;
    api.store().put(service("a", json!({"app": "x"}))).unwrap();
    api.store().put(service("b", json!({"app": "x"}))).unwrap();
    let selected = LookupSpec { label_selector: Some("app=x".into()), ..LookupSpec::all("services".parse().unwrap()) };
    let _handle = opened(&reflectors, &selected).await;
    let mut changes = reflectors.changes();
    let untouched = reflectors.snapshot().get(&selected, Some("default"), "b").unwrap();
    for (labels, expected) in [(json!({"app": "y"}), vec!["b"]), (json!({"app": "x"}), vec!["a", "b"])] {
        api.store().put(service("a", labels)).unwrap();
        within(async {
            while names(&reflectors.snapshot(), &selected) != expected {
                changes.next().await.unwrap();
            }
        })
        .await;
    }
    let now = reflectors.snapshot().get(&selected, Some("default"), "b").unwrap();
    assert!(Arc::ptr_eq(&now, &untouched), "only changed objects are indexed again");
}

#[tokio::test]
async fn a_metadata_only_lookup_reads_an_open_store_of_whole_objects() {
    let cluster = cluster().await;
    cluster.put(node("n1"));
    let whole = LookupSpec::all("nodes".parse().unwrap());
    let metadata = LookupSpec { metadata_only: true, ..whole.clone() };
    let _whole = cluster.open(&whole).await;
    let _metadata = cluster.open(&metadata).await;
    cluster.watching(1).await;
    assert_eq!(names(&cluster.reflectors.snapshot(), &metadata), ["n1"]);
    assert_eq!(cluster.targets("limit=").len(), 1);
}

#[tokio::test]
async fn lookups_of_built_in_kinds_are_read_as_protobuf_without_managed_fields() {
    let cluster = cluster().await;
    let mut object = service("a", json!({}));
    object["metadata"]["managedFields"] = json!([{"manager": "a-manager", "operation": "Update"}]);
    cluster.put(object);
    let lookup = LookupSpec::all("services".parse().unwrap());
    let _handle = cluster.open(&lookup).await;
    let requests = cluster.api.requests();
    let list = requests.iter().find(|request| request.query.contains("limit=")).unwrap();
    assert_eq!(list.header("accept"), "application/vnd.kubernetes.protobuf,application/json");
    let object = cluster.reflectors.snapshot().get(&lookup, Some("default"), "a").unwrap();
    let json = object.document().to_json().unwrap();
    assert!(json.contains("ClusterIP") && !json.contains("a-manager"), "{json}");
}

#[tokio::test]
async fn a_new_lookup_reads_the_store_of_a_view_while_the_api_server_is_unreachable() {
    let api = ApiServer::builder().start().await.unwrap();
    api.store()
        .put(json!({"apiVersion": "apps.openyurt.io/v1beta2", "kind": "NodePool", "metadata": {"name": "p"}}))
        .unwrap();
    let lookup = LookupSpec {
        versions: vec!["v1".into(), "v1beta2".into()],
        ..LookupSpec::all("nodepools.apps.openyurt.io".parse().unwrap())
    };
    let shared = vec![lookup.resource.clone()];
    let stores = StoresFixture { url: api.url().to_owned(), shared, ..StoresFixture::default() }.open();
    let store = stores.open(&StoreReader::Daemon, &Collection::of_lookup(&lookup, "v1beta2").widened()).unwrap();
    within(store.state().wait_for(|state| state.synced)).await.unwrap();
    drop(api);
    let reflectors = Reflectors::new(stores.clone());
    let _handle = opened(&reflectors, &lookup).await;
    assert_eq!(names(&reflectors.snapshot(), &lookup), ["p"]);
}
