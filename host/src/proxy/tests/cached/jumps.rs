//! Clients that are cut off amid the events that a list made, after the API server no longer had the reflector's version.

use std::sync::{Arc, OnceLock};

use super::*;

/// The reflector is cut off during the changes, and the API server forgets what was before `compacted`.
async fn jump(fixture: &ProxyFixture, compacted: impl FnOnce(), later: impl FnOnce()) {
    fixture.server.on_request(|request| match request.path.starts_with(SERVICES) {
        true => Action::json(503, "{}"),
        false => Action::Serve,
    });
    fixture.server.close_watches(End::Clean);
    fixture.server.open_watches().wait_for(|open| *open == 0).await.unwrap();
    compacted();
    fixture.server.compact();
    later();
    fixture.server.clear_hook();
}

/// What a client holds after an event, a cut, and whatever its next watch or list brings.
async fn held_after(fixture: &ProxyFixture, event: &Value, mut held: Vec<String>) -> Vec<String> {
    let path = format!(
        "{SERVICES}?watch=1&allowWatchBookmarks=true&timeoutSeconds=3&resourceVersion={}",
        version(&event["object"])
    );
    let name = |object: &Value| object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    held.retain(|held| *held != name(&event["object"]));
    let response = fixture.send(&path, &[]).await;
    if response.status() == StatusCode::GONE {
        return names(&informer_list(fixture).await).into_iter().map(str::to_owned).collect();
    }
    let mut events = EventReader { body: response.into_body(), rest: Vec::new() };
    while let Some(event) = events.next().await {
        match event["type"].as_str().unwrap() {
            "DELETED" => held.retain(|held| *held != name(&event["object"])),
            "ERROR" => return names(&informer_list(fixture).await).into_iter().map(str::to_owned).collect(),
            _ => {}
        }
    }
    held
}

#[tokio::test]
async fn a_client_that_is_cut_off_between_the_deletions_of_a_jump_loses_none() {
    // The API server may still have the client's version, though it no longer has the reflector's.
    for updates in [0, 4] {
        let (fixture, _script, _) = cached().await;
        fixture.service("d", "ClusterIP");
        let list = informer_list(&fixture).await;
        let mut events = informer_watch(&fixture, version(&list)).await;
        let store = fixture.server.store();
        let delete = || {
            for name in ["a", "c"] {
                store.delete("v1", "Service", "default", name).unwrap();
            }
        };
        let update = || (0..updates).for_each(|_| fixture.service("d", "ClusterIP"));
        jump(&fixture, delete, update).await;
        let first = loop {
            let event = events.next().await.unwrap();
            if event["type"] == "DELETED" {
                break event;
            }
        };
        drop(events);
        let held = ["a", "c", "d"].map(str::to_owned).to_vec();
        assert_eq!(held_after(&fixture, &first, held).await, ["d"], "{updates} updates");
    }
}

#[tokio::test]
async fn events_come_while_looked_up_values_change_all_the_time() {
    let fixture = fixture_with(|setup| setup.cached = vec!["services".parse().unwrap()]).await;
    let itself: Arc<OnceLock<Script>> = Arc::default();
    let changing = itself.clone();
    let script = Script::new(move |_| {
        // Whenever an object has been filtered, it is to be filtered again.
        if let Some(script) = changing.get() {
            script.change();
        }
        Outcome::Unchanged
    });
    fixture.filter("*/services", &script);
    fixture.service("a", "ClusterIP");
    let list = informer_list(&fixture).await;
    let mut events = informer_watch(&fixture, version(&list)).await;
    itself.set(script).unwrap();
    for name in ["b", "c", "d"] {
        fixture.service(name, "ClusterIP");
        assert_eq!(events.next_summary().await, format!("ADDED {name}"));
    }
}

/// It would wait on, and then get the events of the other history alone.
#[tokio::test]
async fn a_watch_that_waits_for_a_version_ends_when_the_history_is_another_one() {
    let (fixture, _script, _) = cached().await;
    let store = fixture.server.store();
    let backup = store.backup();
    fixture.service("d", "ClusterIP");
    let list = loop {
        let list = informer_list(&fixture).await;
        if names(&list).contains(&"d") {
            break list;
        }
    };
    // Nothing is listed before the watch has begun.
    let release = fixture.hold_lists();
    store.restore(&backup);
    let ahead = version(&list).parse::<u64>().unwrap() + 5;
    let mut events = informer_watch(&fixture, &ahead.to_string()).await;
    release.send_replace(true);
    assert_eq!(events.next_summary().await, "ERROR 410");
}
