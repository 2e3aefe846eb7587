//! Lists, watches, resumption and notifications.

use std::sync::Arc;

use serde_json::json;
use weir_apiserver::{Action, End, Gzip, Resource};
use weir_spec::LookupSpec;

use super::*;

#[tokio::test]
async fn changes_are_notified_by_key_and_an_old_snapshot_does_not_change() {
    let cluster = cluster().await;
    cluster.put(service("a", json!({})));
    let lookup = LookupSpec::all("services".parse().unwrap());
    let _handle = cluster.open(&lookup).await;
    cluster.watching(1).await;
    let before = cluster.reflectors.snapshot();
    let mut changes = cluster.reflectors.changes();
    cluster.put(service("b", json!({"app": "x"})));
    let change = within(changes.next()).await.unwrap();
    let key = StoreKey::new("default", "b");
    assert_eq!(*change, Change::Objects { lookup: Arc::new(lookup.clone()), keys: vec![key] });
    assert_eq!(
        names(&cluster.reflectors.snapshot(), &lookup),
        ["a", "b"],
        "the snapshot contains the change before the notification"
    );
    cluster.api.store().delete("v1", "Service", "default", "a").unwrap();
    cluster.until(&mut changes, |snapshot| names(snapshot, &lookup) == ["b"]).await;
    assert_eq!(names(&before, &lookup), ["a"]);
}

#[tokio::test]
async fn an_expired_resource_version_causes_a_relist_that_applies_the_difference() {
    let cluster = cluster().await;
    cluster.put(service("stays", json!({})));
    cluster.put(service("goes", json!({})));
    let lookup = LookupSpec::all("services".parse().unwrap());
    let _handle = cluster.open(&lookup).await;
    cluster.watching(1).await;
    let mut changes = cluster.reflectors.changes();
    cluster.api.on_request(|request| if request.query.contains("watch=") { Action::Reset } else { Action::Serve });
    cluster.api.close_watches(End::Abort);
    cluster.watching(0).await;
    cluster.api.store().delete("v1", "Service", "default", "goes").unwrap();
    cluster.put(service("comes", json!({})));
    cluster.api.compact();
    cluster.api.clear_hook();
    cluster.until(&mut changes, |snapshot| names(snapshot, &lookup) == ["comes", "stays"]).await;
    assert!(cluster.targets("watch=").len() > 1);
}

#[tokio::test]
async fn a_watch_that_ends_is_resumed_without_a_list() {
    let cluster = cluster().await;
    cluster.put(service("a", json!({})));
    let lookup = LookupSpec::all("services".parse().unwrap());
    let _handle = cluster.open(&lookup).await;
    cluster.watching(1).await;
    let mut changes = cluster.reflectors.changes();
    for (i, end) in [End::Clean, End::Abort].into_iter().enumerate() {
        cluster.api.close_watches(end);
        cluster.put(service(&format!("b{i}"), json!({})));
        cluster.until(&mut changes, |snapshot| names(snapshot, &lookup).len() == i + 2).await;
    }
    assert_eq!(cluster.targets("limit=").len(), 1, "{:?}", cluster.targets("limit="));
}

#[tokio::test]
async fn a_resource_that_is_not_served_is_empty_and_is_discovered_later() {
    let cluster = cluster().await;
    cluster.api.remove_resource("apps.openyurt.io", "nodepools");
    let lookup = LookupSpec::all("nodepools".parse().unwrap());
    let handle = cluster.open(&lookup).await;
    assert_eq!(handle.state(), ReflectorState { synced: true, error: None });
    assert!(names(&cluster.reflectors.snapshot(), &lookup).is_empty());
    let mut changes = cluster.reflectors.changes();
    cluster.api.add_resource(Resource::new("apps.openyurt.io", "v1beta2", "nodepools", "NodePool").cluster_scoped());
    cluster.put(json!({"apiVersion": "apps.openyurt.io/v1beta2", "kind": "NodePool", "metadata": {"name": "p"}}));
    cluster.until(&mut changes, |snapshot| names(snapshot, &lookup) == ["p"]).await;
    cluster.api.remove_resource("apps.openyurt.io", "nodepools");
    cluster.api.close_watches(End::Clean);
    cluster.until(&mut changes, |snapshot| names(snapshot, &lookup).is_empty()).await;
}

#[tokio::test]
async fn long_lists_are_paged_and_compressed() {
    let cluster = cluster().await;
    cluster.api.set_gzip(Gzip::Always);
    for i in 0..1100 {
        cluster.put(service(&format!("s{i:04}"), json!({})));
    }
    let lookup = LookupSpec::all("services".parse().unwrap());
    let _handle = cluster.open(&lookup).await;
    let found = names(&cluster.reflectors.snapshot(), &lookup);
    assert_eq!(
        (found.len(), found.first().unwrap().as_str(), found.last().unwrap().as_str()),
        (1100, "s0000", "s1099")
    );
    assert_eq!(cluster.targets("limit=500").len(), 3);
    assert_eq!(cluster.targets("&continue=").len(), 2);
}

#[tokio::test]
async fn a_list_with_an_expired_continue_token_is_restarted() {
    let cluster = cluster().await;
    for i in 0..600 {
        cluster.put(service(&format!("s{i:04}"), json!({})));
    }
    let once = std::sync::atomic::AtomicBool::new(true);
    cluster.api.on_request(move |request| {
        if request.query.contains("continue=") && once.swap(false, std::sync::atomic::Ordering::SeqCst) {
            return Action::json(410, r#"{"kind":"Status","code":410,"reason":"Expired"}"#);
        }
        Action::Serve
    });
    let lookup = LookupSpec::all("services".parse().unwrap());
    let _handle = cluster.open(&lookup).await;
    assert_eq!(names(&cluster.reflectors.snapshot(), &lookup).len(), 600);
}

#[tokio::test]
async fn a_slow_receiver_gets_a_lagged_notification() {
    let reflectors = without_a_server();
    let mut changes = reflectors.changes();
    for i in 0..2000_u16 {
        let ip = std::net::Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, i).into();
        let address =
            weir_spec::InterfaceAddress { interface_name: "eth0".into(), ip, prefix_length: 64, default_route: false };
        reflectors.set_addresses([address].into());
    }
    assert_eq!(changes.try_next().as_deref(), Some(&Change::Lagged));
    assert_eq!(changes.try_next().as_deref(), Some(&Change::Addresses));
}
