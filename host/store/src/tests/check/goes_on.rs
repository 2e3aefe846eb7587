//! Stores that go on from disk or after an outage, in the history of the API server or in another one.

use weir_apiserver::ObjectStore;

use super::*;
use crate::cache::Snapshot;

/// The pools of a store that goes on at the version of another history: `q` was made after the backup, `p` was edited, and what
/// came since the restore is at later versions.
async fn goes_on(restored: impl Fn(&ObjectStore)) -> (Checked, Snapshot) {
    let before = server(|store| {
        for name in ["p", "q"] {
            store.put(pool(name)).unwrap();
        }
        store.edit("apps.openyurt.io/v1beta2", "NodePool", "", "p", |p| p["metadata"]["labels"] = json!({"a": "b"}));
    })
    .await;
    let first = checked(before, collection(POOLS), None);
    first.synced().await;
    let snapshot = Snapshot::clone(&first.store.snapshot());
    let after = server(restored).await;
    (from_disk(after, Some(snapshot.clone())), snapshot)
}

/// A store that starts with these objects from disk, if there are any, and its check, which is due in a day.
fn from_disk(api: impl Into<Arc<ApiServer>>, snapshot: Option<Snapshot>) -> Checked {
    let api = api.into();
    let client = ReflectorClient { client: client(api.url()), connectivity: Connectivity::default(), delegated: None };
    let collection = collection(POOLS);
    let resource = collection.resource.clone();
    let reflector = ResourceReflector::new(client, collection, TIMING);
    let config = CheckConfig::new(None, 0.01, Arc::default());
    let (store, tasks, findings) = (reflector.store(), Tasks::default(), config.findings.subscribe());
    store.begin_restore();
    tasks.spawn_until_stop(reflector.check(config.clone(), "the store".to_owned()).run());
    match snapshot {
        Some(snapshot) => tasks.spawn_until_stop(reflector.run_restored(snapshot, std::future::pending())),
        None => tasks.spawn_until_stop(reflector.run()),
    }
    Checked { api, store, config, resource, findings, _tasks: tasks }
}

#[tokio::test]
async fn a_store_from_disk_is_of_the_present_history() {
    // A backup from before `q`, and then more writes than there were.
    let (mut checked, snapshot) = goes_on(|store| {
        store.put(pool("p")).unwrap();
        for n in 0..20 {
            store.edit("apps.openyurt.io/v1beta2", "NodePool", "", "p", |p| {
                p["metadata"]["labels"] = json!({"n": n.to_string()})
            });
        }
    })
    .await;
    let found = checked.finding().await;
    assert!(matches!(&found.difference, Difference::Unknown(key) if key.name() == "q"), "{found:?}");
    checked.until(|store| store.snapshot().objects.size() == 1).await;
    assert!(checked.store.snapshot().version > snapshot.version);

    // The same name is another object, at a version that the store has passed.
    let (mut checked, _) = goes_on(|store| {
        for name in ["r", "p"] {
            store.put(pool(name)).unwrap();
        }
        for n in 0..20 {
            store.put(pool(&format!("later-{n}"))).unwrap();
        }
    })
    .await;
    checked.finding().await;
    checked.until(|store| store.snapshot().objects.size() == 22).await;
    assert!(checked.names().contains(&"r".to_owned()) && !checked.names().contains(&"q".to_owned()));
}

#[tokio::test]
async fn a_history_that_a_list_ends_before_a_comparison_does_is_reported_too() {
    // Fewer writes than there were: the watch is at a version that the API server does not know, and the reflector lists.
    let (mut checked, _) = goes_on(|store| {
        store.put(pool("p")).unwrap();
    })
    .await;
    checked.until(|store| store.snapshot().objects.size() == 1).await;
    let found = checked.finding().await;
    assert!(found.goes_on && matches!(found.difference, Difference::Ahead { .. }), "{found:?}");
    assert_eq!(checked.checks("other_history"), 1);
    checked.until(|store| !store.is_stale()).await;
    assert!(checked.findings.try_recv().is_err(), "it is reported once");
}

#[tokio::test]
async fn a_store_from_disk_that_goes_on_in_its_history_is_compared_once_and_stays() {
    let api = one_pool().await;
    let first = from_disk(api, None);
    first.synced().await;
    let (api, snapshot) = (first.api.clone(), Snapshot::clone(&first.store.snapshot()));
    for n in 0..20 {
        api.store().put(pool(&format!("later-{n}"))).unwrap();
    }
    api.store().delete("apps.openyurt.io/v1beta2", "NodePool", "", "later-3");
    let checked = from_disk(api, Some(snapshot));
    checked.until(|store| store.snapshot().objects.size() == 20).await;
    // It is counted after the last request.
    within(async {
        while checked.checks("same") == 0 {
            tokio::time::sleep(FAST).await;
        }
    })
    .await;
    assert_eq!((checked.checks("same"), checked.checks("other_history")), (1, 0));
    let lists = checked.api.requests().iter().filter(|request| !request.query.contains("watch=true")).count();
    assert_eq!(lists, 2, "the first one of the store that was written, and the one that compares");
}
