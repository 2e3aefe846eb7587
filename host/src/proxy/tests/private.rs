//! Filtered watches that private views serve: with whose credential their stores are read, who shares them, and how long they last.

use std::sync::atomic::{AtomicBool, Ordering};

use http_body_util::StreamBody;
use hyper::body::Frame;
use weir_apiserver::{Action, End};

use super::caches::metrics;
use super::filtered::filtered;
use super::*;
use weir_process::ledger::{Owner, Use};
use weir_runtime::Outcome;

const SERVICES: &str = "/api/v1/services";
const WATCH: &str = "/api/v1/services?watch=1";

impl ProxyFixture {
    /// The names of the open views, and the number of their open watches.
    fn open_views(&self) -> (usize, usize) {
        let stores = self.caches.views.as_ref().unwrap().status();
        let views: Vec<_> = stores.iter().flat_map(|store| &store.views).collect();
        (views.len(), views.iter().map(|view| view.open_watches()).sum())
    }

    /// Waits until so many views and watches are open.
    async fn opened(&self, expected: (usize, usize)) {
        let opened = async {
            while self.open_views() != expected {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), opened).await.unwrap();
    }
}

#[tokio::test]
async fn a_store_is_read_with_exactly_the_headers_of_the_clients_that_share_it() {
    let (fixture, _script) = filtered().await;
    fixture.server.clear_requests();
    let one = [("authorization", "Bearer one"), ("x-tenant", "a")];
    let two = [("authorization", "Bearer two"), ("x-tenant", "a")];
    let mut open = Vec::new();
    for headers in [&one, &one, &two] {
        let mut events = fixture.watch_as(WATCH, headers).await;
        assert_eq!((events.next_summary().await, events.next_summary().await), ("ADDED a".into(), "ADDED c".into()));
        open.push(events);
    }
    let reads = || fixture.server.requests().into_iter().filter(|request| request.path == SERVICES);
    let sent: BTreeSet<_> = reads().map(|request| request.header("authorization").to_owned()).collect();
    assert_eq!(sent, ["Bearer one".to_owned(), "Bearer two".to_owned()].into());
    assert!(reads().all(|request| request.header("x-tenant") == "a"));
    let lists = reads().filter(|request| request.query == "limit=500").count();
    assert_eq!((fixture.open_views(), lists), ((2, 3), 2), "each credential has a view, and lists once");
    fixture.service("d", "ClusterIP");
    for events in &mut open {
        assert_eq!(events.next_summary().await, "ADDED d");
    }
    let stores = fixture.caches.views.as_ref().unwrap().status();
    assert!(stores.iter().all(|store| store.disk.is_none() && !store.reader.to_string().contains("one")));
}

#[tokio::test]
async fn a_private_view_lasts_as_long_as_its_watch_and_a_minute_longer() {
    let (fixture, _script) = filtered().await;
    let views = fixture.caches.views.clone().unwrap();
    let close_idle = async || {
        let _ = tokio::time::timeout(Duration::from_secs(1), views.clone().close_idle()).await;
    };
    let events = fixture.watch(WATCH).await;
    fixture.opened((1, 1)).await;
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(601)).await;
    close_idle().await;
    assert_eq!(fixture.open_views(), (1, 1), "its watch is open");
    tokio::time::resume();
    drop(events);
    fixture.opened((1, 0)).await;
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(50)).await;
    close_idle().await;
    assert_eq!(fixture.open_views(), (1, 0), "its client may come back");
    tokio::time::advance(Duration::from_secs(11)).await;
    close_idle().await;
    assert_eq!(fixture.open_views(), (0, 0));
    tokio::time::resume();
    let mut events = fixture.watch(WATCH).await;
    assert_eq!(events.next_summary().await, "ADDED a", "the next watch opens it");
}

#[tokio::test]
async fn a_revoked_credential_ends_the_watch_and_its_client_gets_the_refusal() {
    for code in [401, 403] {
        let (fixture, _script) = filtered().await;
        let own = [("authorization", "Bearer one")];
        let mut events = fixture.watch_as(WATCH, &own).await;
        assert_eq!((events.next_summary().await, events.next_summary().await), ("ADDED a".into(), "ADDED c".into()));
        let mut other = fixture.watch_as(WATCH, &[("authorization", "Bearer two")]).await;
        fixture.server.on_request(move |request| match request.header("authorization") {
            "Bearer one" => Action::json(code, json!({"kind": "Status", "apiVersion": "v1", "code": code}).to_string()),
            _ => Action::Serve,
        });
        fixture.server.close_watches(End::Clean);
        assert_eq!(events.next().await, None, "{code}");
        assert_eq!(fixture.send(WATCH, &own).await.status().as_u16(), code);
        fixture.service("d", "ClusterIP");
        while other.next_summary().await != "ADDED d" {}
    }
}

#[tokio::test]
async fn watches_of_a_user_whose_share_is_used_up_are_refused() {
    let fixture = fixture_with(|config| config.ledger = Ledger::new(16 << 20)).await;
    fixture.filter("*/services", &Script::new(|_| Outcome::Unchanged));
    let mut open = Vec::new();
    for n in 0..500 {
        let response = fixture.send(&format!("{WATCH}&labelSelector=a{n}"), &[]).await;
        if response.status() == StatusCode::TOO_MANY_REQUESTS {
            assert!(n > 10 && response.headers().contains_key("retry-after"), "{n}");
            return;
        }
        assert_eq!(response.status(), StatusCode::OK);
        open.push(response);
    }
    panic!("500 watches with 16 MiB");
}

/// Its list would go on, and nobody would count it.
#[tokio::test]
async fn a_watch_whose_view_is_closed_while_it_waits_for_its_list_is_refused() {
    let ledger = Ledger::new(16 << 20);
    let of = ledger.clone();
    let fixture = fixture_with(|config| config.ledger = of).await;
    fixture.filter("*/services", &Script::new(|_| Outcome::Unchanged));
    fixture.server.on_request(|request| if request.path == SERVICES { Action::Hang } else { Action::Serve });
    let others = ledger.charge(&Owner::Client("b".into()), Use::Views, 0).unwrap();
    let closed = async {
        fixture.opened((1, 0)).await;
        others.set(16 << 20);
    };
    let (response, ()) = tokio::join!(fixture.send(WATCH, &[]), closed);
    assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
    assert!(response.headers().contains_key("retry-after"));
}

/// Lists of other clients end while its store waits for its own.
#[tokio::test]
async fn a_watch_whose_view_has_no_objects_yet_gets_nothing_twice() {
    let (fixture, _script) = filtered().await;
    let list = fixture.settle(SERVICES).await;
    let release = fixture.hold_lists();
    let others = async {
        fixture.opened((1, 0)).await;
        fixture.json(SERVICES).await;
        release.send_replace(true);
    };
    let path = format!("{WATCH}&resourceVersion={}", version(&list));
    let (mut events, ()) = tokio::join!(fixture.watch(&path), others);
    fixture.service("d", "ClusterIP");
    assert_eq!(events.next_summary().await, "ADDED d");
}

/// Forwarded, it would never get what the filter had hidden.
#[tokio::test]
async fn a_watch_whose_filter_is_gone_is_not_forwarded_where_its_own_view_fails_for_a_moment() {
    let (fixture, _script) = filtered().await;
    let (_, list) = fixture.json(SERVICES).await;
    assert_eq!(names(&list), ["a", "c"]);
    let path = format!("{WATCH}&resourceVersion={}", version(&list));
    fixture.no_filters();
    fixture.service("d", "ClusterIP");
    let has_failed = AtomicBool::new(false);
    fixture.server.on_request(move |request| {
        // The events from before the history of the view.
        let is_older = request.query.contains("watch=1") && request.query.contains("timeoutSeconds");
        match is_older && !has_failed.swap(true, Ordering::Relaxed) {
            true => Action::json(503, json!({"kind": "Status", "apiVersion": "v1", "code": 503}).to_string()),
            false => Action::Serve,
        }
    });
    assert_eq!(fixture.send(&path, &[]).await.status(), StatusCode::BAD_GATEWAY);
    let mut events = fixture.watch(&path).await;
    while !events.next_summary().await.ends_with(" b") {}
}

#[tokio::test]
async fn a_store_that_fails_for_one_client_alone_is_no_failing_cache() {
    let (fixture, _script) = filtered().await;
    let mut events = fixture.watch_as(WATCH, &[("authorization", "Bearer one")]).await;
    assert_eq!((events.next_summary().await, events.next_summary().await), ("ADDED a".into(), "ADDED c".into()));
    fixture.server.on_request(|_| Action::json(500, json!({"kind": "Status", "apiVersion": "v1"}).to_string()));
    fixture.server.close_watches(End::Clean);
    let store = || fixture.caches.to_json()["stores"][0].clone();
    let failed = async {
        while store()["error"].is_null() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), failed).await.unwrap();
    assert_eq!(store()["state"], "error");
    let text = metrics(&fixture);
    assert!(text.contains("weir_cache_stores{resource=\"services\",state=\"error\"} 1\n"), "{text}");
    assert!(!text.contains("state=\"failing\""), "no notice would say why WeirCacheFailing fires: {text}");
}

/// The store's own watch goes on for minutes.
#[tokio::test]
async fn a_permission_that_was_taken_away_opens_no_other_watch_of_the_same_store() {
    let (fixture, _script) = filtered().await;
    let own = [("authorization", "Bearer one")];
    let mut events = fixture.watch_as(WATCH, &own).await;
    assert_eq!((events.next_summary().await, events.next_summary().await), ("ADDED a".into(), "ADDED c".into()));
    let forbidden = json!({"kind": "Status", "apiVersion": "v1", "code": 403}).to_string();
    fixture.server.on_request(move |request| match request.path == SERVICES {
        true => Action::json(403, forbidden.clone()),
        false => Action::Serve,
    });
    for start in ["", "&resourceVersion=0"] {
        let response = fixture.send(&format!("{WATCH}{start}"), &own).await;
        assert_eq!(response.status(), StatusCode::FORBIDDEN, "{start}");
    }
}

/// The view of another program has the store of the first, which may be behind.
#[tokio::test]
async fn a_consistent_watch_of_a_store_that_was_open_and_is_behind_is_refused() {
    let (fixture, _script) = filtered().await;
    fixture.server.on_request(|request| match request.query.contains("watch=") {
        true => {
            let nothing = futures_util::stream::pending::<Result<Frame<Bytes>, weir_apiserver::ResponseBodyError>>();
            let mut response = http::Response::new(StreamBody::new(nothing).boxed_unsync());
            response.headers_mut().insert("content-type", "application/json".parse().unwrap());
            Action::Stream(response)
        }
        false => Action::Serve,
    });
    let as_program = |program| [("authorization", "Bearer one"), ("user-agent", program)];
    let mut first = fixture.watch_as(WATCH, &as_program("first/1")).await;
    assert_eq!((first.next_summary().await, first.next_summary().await), ("ADDED a".into(), "ADDED c".into()));
    fixture.service("d", "ClusterIP");
    let second = fixture.send(WATCH, &as_program("second/1")).await;
    assert_eq!(second.status(), StatusCode::GATEWAY_TIMEOUT);
    assert!(second.headers().contains_key("retry-after"));
    let any =
        fixture.watch_as(&format!("{WATCH}&resourceVersion=0"), &as_program("second/1")).await.next_summary().await;
    assert_eq!(any, "ADDED a", "any version will do");
}

#[tokio::test]
async fn selectors_that_only_the_api_server_evaluates_are_sent_as_they_are() {
    let fixture = fixture().await;
    let hides = |document: &weir_document::Document| document.name().unwrap().starts_with("hidden");
    fixture.filter(
        "*/nodepools",
        &Script::new(move |document| if hides(document) { Outcome::Hidden } else { Outcome::Unchanged }),
    );
    let put = |name: &str, kind: &str| {
        let pool = json!({
            "apiVersion": "apps.openyurt.io/v1beta2", "kind": "NodePool", "metadata": {"name": name}, "spec": {"type": kind}
        });
        fixture.server.store().put(pool).unwrap();
    };
    for (name, kind) in [("a", "Edge"), ("b", "Cloud"), ("hidden", "Edge")] {
        put(name, kind);
    }
    let query = "watch=1&fieldSelector=spec.type%3DEdge&shardSelector=x";
    let mut events = fixture.watch(&format!("/apis/apps.openyurt.io/v1beta2/nodepools?{query}")).await;
    assert_eq!(events.next_summary().await, "ADDED a");
    put("b", "Edge");
    assert_eq!(events.next_summary().await, "ADDED b");
    put("a", "Cloud");
    assert_eq!(events.next_summary().await, "DELETED a");
    let requests = fixture.server.requests();
    let reads: Vec<_> = requests.iter().filter(|request| request.path.ends_with("/nodepools")).collect();
    let selects = |query: &str| query.contains("fieldSelector=spec.type%3DEdge") && query.ends_with("&shardSelector=x");
    assert!(!reads.is_empty() && reads.iter().all(|request| selects(&request.query)), "{reads:?}");
}

#[tokio::test]
async fn a_watch_whose_versions_are_no_numbers_is_refused() {
    let fixture = fixture().await;
    fixture.filter("*/services", &Script::new(|_| Outcome::Unchanged));
    let item = json!({"metadata": {"name": "a", "namespace": "b", "resourceVersion": "x"}});
    let list =
        json!({"kind": "ServiceList", "apiVersion": "v1", "metadata": {"resourceVersion": "x"}, "items": [item]});
    fixture.server.on_request(move |request| match request.path.as_str() {
        SERVICES => Action::json(200, list.to_string()),
        _ => Action::Serve,
    });
    let (status, error) = fixture.json(WATCH).await;
    assert_eq!((status, &error["kind"]), (StatusCode::BAD_GATEWAY, &json!("Status")), "{error}");
}

#[tokio::test]
async fn without_an_api_server_an_open_watch_goes_on_and_a_new_one_is_refused() {
    let (fixture, script) = filtered().await;
    let mut events = fixture.watch(WATCH).await;
    assert_eq!((events.next_summary().await, events.next_summary().await), ("ADDED a".into(), "ADDED c".into()));
    let is_down = Arc::new(AtomicBool::new(true));
    let down = is_down.clone();
    fixture.server.on_request(move |_| if down.load(Ordering::Relaxed) { Action::Hang } else { Action::Serve });
    fixture.server.break_connections();
    while fixture.proxy.handlers.upstream.is_reachable() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(fixture.send(WATCH, &[]).await.status(), StatusCode::SERVICE_UNAVAILABLE);
    script.change();
    fixture.no_filters();
    assert_eq!(events.next_summary().await, "ADDED b", "a change of filters arrives all the same");
    is_down.store(false, Ordering::Relaxed);
    fixture.service("d", "ClusterIP");
    assert_eq!(events.next_summary().await, "ADDED d");
}
