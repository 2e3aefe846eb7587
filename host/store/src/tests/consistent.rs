//! Consistent reads of a store: it is asked for what the API server has now.

use futures_util::FutureExt as _;
use futures_util::future::join_all;
use serde_json::json;
use weir_apiserver::{Action, End};

use super::resource_reflector::{Reflected, services};
use super::*;

fn is_metadata(request: &weir_apiserver::Recorded) -> bool {
    request.header("accept").contains("PartialObjectMetadataList") && request.query == "resourceVersion="
}

#[tokio::test]
async fn a_version_of_other_resources_is_reached_by_one_list_of_metadata() {
    let Reflected { api, store, .. } = services().await;
    api.clear_requests();
    let version = api.store().advance();
    assert_eq!(within(store.newest_version()).await, Some(version));
    store.want(version);
    within(store.reaches(version)).await;
    let requests = api.requests();
    assert_eq!(requests.iter().filter(|request| is_metadata(request)).count(), 1, "{requests:?}");
    assert!(requests.iter().all(|request| !request.query.contains("watch=")), "the watch goes on: {requests:?}");
    // Present objects are not requested.
    store.want(version);
    within(store.newest_version()).await.unwrap();
    assert_eq!(api.requests().iter().filter(|request| is_metadata(request)).count(), 1);
}

#[tokio::test]
async fn questions_share_the_next_read_and_never_the_one_under_way() {
    let Reflected { api, store, .. } = services().await;
    let (open, gate) = tokio::sync::watch::channel(false);
    api.on_request(move |request| match request.query.contains("limit=1") {
        true => {
            let mut gate = gate.clone();
            let opened = async move { drop(gate.wait_for(|open| *open).await) };
            Action::After(Box::pin(opened), Box::new(Action::Serve))
        }
        false => Action::Serve,
    });
    let mut arrived = api.request_count();
    arrived.mark_unchanged();
    let first = async {
        let first = store.newest_version();
        tokio::pin!(first);
        tokio::select! {
            _ = &mut first => panic!("it is held"),
            _ = arrived.changed() => {}
        }
        let newest = api.store().advance();
        let others = join_all((0..20).map(|_| store.newest_version()));
        let (_, others, ()) = tokio::join!(first, others, async {
            open.send_replace(true);
        });
        assert!(others.iter().all(|version| *version >= Some(newest)), "{others:?}, not before {newest}");
    };
    within(first).await;
    assert_eq!(api.requests().iter().filter(|request| request.query.contains("limit=1")).count(), 2);
}

#[tokio::test]
async fn readers_of_a_stamp_share_one_read_that_begins_after_all_of_them_have_asked() {
    let Reflected { api, store, .. } = services().await;
    let first = store.stamp();
    let version = api.store().advance();
    let stamps = within(async { tokio::join!(first, store.stamp()) }).await;
    assert_eq!(stamps, (Some(version), Some(version)));
    assert_eq!(store.stamp().now_or_never(), None, "a stamp of before is of a change of before");
    assert_eq!(api.requests().iter().filter(|request| request.query.contains("limit=1")).count(), 1);
}

#[tokio::test]
async fn a_store_that_lacks_an_object_is_not_at_the_version_of_the_list() {
    let Reflected { api, store, .. } = services().await;
    api.on_request(|request| if request.query.contains("watch=") { Action::Reset } else { Action::Serve });
    api.close_watches(End::Abort);
    within(api.open_watches().wait_for(|open| *open == 0)).await.unwrap();
    api.store().put(service("c", json!({}))).unwrap();
    api.store().delete("v1", "Service", "default", "a").unwrap();
    let version = api.store().advance();
    let mut requests = api.request_count();
    assert_eq!(within(store.newest_version()).await, Some(version));
    store.want(version);
    within(async {
        while !api.requests().iter().any(is_metadata) {
            requests.changed().await.unwrap();
        }
    })
    .await;
    let before = store.snapshot();
    assert!(before.version < version && before.objects.size() == 2, "{}", before.version);
    api.clear_hook();
    within(store.reaches(version)).await;
    let snapshot = store.snapshot();
    let names: Vec<_> = snapshot.objects.keys().map(StoreKey::name).collect();
    assert_eq!(names, ["b", "c"]);
}

#[tokio::test]
async fn an_api_server_that_does_not_answer_says_nothing() {
    let Reflected { api, store, .. } = services().await;
    api.on_request(|_| Action::Reset);
    assert_eq!(within(store.newest_version()).await, None);
    api.clear_hook();
    assert_eq!(within(store.newest_version()).await, Some(api.store().revision()));
}
