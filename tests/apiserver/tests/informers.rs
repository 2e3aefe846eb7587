//! kube-rs informers against the server: lists in pages, watch-lists, resumption after 410, the write verbs.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a helper that fails is a test that fails; clippy.toml relaxes these inside tests only"
)]

use std::collections::BTreeSet;
use std::pin::pin;
use std::time::Duration;

use futures_util::{Stream, StreamExt};
use k8s_openapi::api::core::v1::{ConfigMap, Service};
use kube::api::{
    Api, ApiResource, DeleteParams, DynamicObject, ListParams, ObjectMeta, Patch, PatchParams, PostParams,
};
use kube::core::GroupVersionKind;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Client, Config, ResourceExt};
use serde_json::json;
use weir_apiserver::{ApiServer, End};

async fn start() -> (ApiServer, Client) {
    let server = ApiServer::builder().start().await.unwrap();
    let config = Config::new(server.url().parse().unwrap());
    (server, Client::try_from(config).unwrap())
}

fn put(server: &ApiServer, name: &str, label: &str) {
    let object = json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": name, "namespace": "default", "labels": {"app": label}},
        "spec": {"ports": [{"port": 80}]},
    });
    server.store().put(object).unwrap();
}

async fn next(
    events: &mut (impl Stream<Item = watcher::Result<Event<Service>>> + Unpin),
) -> watcher::Result<Event<Service>> {
    let event = tokio::time::timeout(Duration::from_secs(20), events.next()).await;
    event.expect("an event within 20 s").expect("the stream goes on")
}

/// Reads one initial list of events.
async fn initial(events: &mut (impl Stream<Item = watcher::Result<Event<Service>>> + Unpin)) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    loop {
        match next(events).await.unwrap() {
            Event::Init => names.clear(),
            Event::InitApply(object) => drop(names.insert(object.name_any())),
            Event::InitDone => return names,
            other => panic!("before the initial state was complete: {other:?}"),
        }
    }
}

#[tokio::test]
async fn informers_hold_the_objects_of_the_store() {
    for config in [
        watcher::Config::default(),
        watcher::Config::default().page_size(7),
        watcher::Config::default().any_semantic(),
        watcher::Config::default().streaming_lists(),
    ] {
        let (server, client) = start().await;
        for index in 0..20 {
            put(&server, &format!("s{index}"), "a");
        }
        let mut events = pin!(watcher(Api::<Service>::all(client), config));
        assert_eq!(initial(&mut events).await.len(), 20);
        put(&server, "new", "a");
        assert!(matches!(next(&mut events).await, Ok(Event::Apply(object)) if object.name_any() == "new"));
        server.store().delete("v1", "Service", "default", "new").unwrap();
        assert!(matches!(next(&mut events).await, Ok(Event::Delete(object)) if object.name_any() == "new"));
    }
}

#[tokio::test]
async fn an_informer_lists_again_after_410() {
    let (server, client) = start().await;
    put(&server, "a", "x");
    let mut events = pin!(watcher(Api::<Service>::all(client), watcher::Config::default()));
    assert_eq!(initial(&mut events).await.len(), 1);
    put(&server, "b", "x");
    assert!(matches!(next(&mut events).await, Ok(Event::Apply(_))));
    // Its version is compacted while it has no watch.
    server.store().advance();
    server.compact();
    server.close_watches(End::Clean);
    assert!(next(&mut events).await.is_err());
    assert_eq!(initial(&mut events).await, BTreeSet::from(["a".into(), "b".into()]));
}

#[tokio::test]
async fn a_typed_client_writes_and_reads() {
    let (_server, client) = start().await;
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "default");
    let mut map =
        ConfigMap { metadata: ObjectMeta { name: Some("m".into()), ..ObjectMeta::default() }, ..ConfigMap::default() };
    let made = maps.create(&PostParams::default(), &map).await.unwrap();
    map.data = Some([("k".to_owned(), "v".to_owned())].into());
    map.metadata.resource_version = made.resource_version();
    maps.replace("m", &PostParams::default(), &map).await.unwrap();
    let stale = maps.replace("m", &PostParams::default(), &map).await;
    assert!(matches!(stale, Err(kube::Error::Api(status)) if status.code == 409));
    let patch = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"other": "w"}});
    maps.patch("m", &PatchParams::apply("test").force(), &Patch::Apply(patch)).await.unwrap();
    let got = maps.get("m").await.unwrap();
    assert_eq!(got.data.unwrap().len(), 2);
    assert!(maps.get_opt("none").await.unwrap().is_none());
    assert_eq!(maps.get_metadata("m").await.unwrap().name_any(), "m");
    maps.delete("m", &DeleteParams::default()).await.unwrap();
    assert_eq!(maps.list(&ListParams::default()).await.unwrap().items.len(), 0);
}

#[tokio::test]
async fn custom_kinds_are_found_by_discovery() {
    let (server, client) = start().await;
    let object = json!({"apiVersion": "apps.openyurt.io/v1beta2", "kind": "NodePool", "metadata": {"name": "hz"}, "spec": {"type": "Edge"}});
    server.store().put(object).unwrap();
    let kind = GroupVersionKind::gvk("apps.openyurt.io", "v1beta2", "NodePool");
    let (resource, _) = kube::discovery::pinned_kind(&client, &kind).await.unwrap();
    assert_eq!(resource, ApiResource::from_gvk_with_plural(&kind, "nodepools"));
    let pools: Api<DynamicObject> = Api::all_with(client, &resource);
    let listed = pools.list(&ListParams::default()).await.unwrap();
    assert_eq!(listed.items[0].data["spec"]["type"], "Edge");
}
