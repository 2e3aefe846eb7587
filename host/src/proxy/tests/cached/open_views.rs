//! Views open with their first client, and close once no client reads them.

use std::sync::Barrier;

use weir_kube::RequestInfo;
use weir_store::StoreReader;

use super::*;
use crate::serve::cached::{Start, Unserved, fresh};
use weir_process::ledger::{Ledger, OverShare, Owner, Use};
use weir_view::{ComponentView, Opener, Permit, View};

/// The number of the open views, and that of their open watches.
fn open(views: &Views) -> (usize, usize) {
    let status = views.status();
    let views: Vec<_> = status.iter().flat_map(|store| &store.views).collect();
    (views.len(), views.iter().map(|view| view.open_watches()).sum())
}

/// Closes the views that are idle now. The next time is a minute away.
pub(super) async fn close_idle(views: &Arc<Views>) {
    let _ = tokio::time::timeout(Duration::from_secs(1), views.clone().close_idle()).await;
}

#[tokio::test]
async fn a_view_is_closed_once_no_client_has_read_it_for_a_while_and_never_under_an_open_watch() {
    let (fixture, _script, _) = cached().await;
    let views = fixture.caches.views.clone().unwrap();
    let list = informer_list(&fixture).await;
    let events = informer_watch(&fixture, version(&list)).await;
    while open(&views) != (1, 1) {
        tokio::task::yield_now().await;
    }
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(601)).await;
    close_idle(&views).await;
    assert_eq!(open(&views), (1, 1), "its watch is open");
    tokio::time::resume();
    drop(events);
    while open(&views) != (1, 0) {
        tokio::task::yield_now().await;
    }
    // A read starts the time again.
    informer_list(&fixture).await;
    tokio::time::pause();
    close_idle(&views).await;
    assert_eq!(open(&views), (1, 0), "it was just read");
    tokio::time::advance(Duration::from_secs(601)).await;
    close_idle(&views).await;
    assert_eq!(open(&views), (0, 0), "no client reads it");
    tokio::time::resume();
    fixture.service("d", "ClusterIP");
    assert_eq!(names(&informer_list(&fixture).await), ["a", "c", "d"], "the next read opens it");
}

#[tokio::test]
async fn names_that_a_client_chooses_open_no_views() {
    let (fixture, _script, _) = cached().await;
    // Without filters, a view is found by the time since when there are none, which more names than are remembered do not change.
    fixture.no_filters();
    let views = fixture.caches.views.clone().unwrap();
    let list = informer_list(&fixture).await;
    let mut events = informer_watch(&fixture, version(&list)).await;
    let path = format!("{SERVICES}?resourceVersion=0");
    for n in 0..1100 {
        let answer = fixture.send(&path, &[("user-agent", &format!("other-{n}/1"))]).await;
        assert_eq!(answer.status(), StatusCode::OK);
    }
    for _ in 0..3 {
        assert_eq!(fixture.send(&path, &[]).await.status(), StatusCode::OK, "the first name again");
    }
    let (opened, watches) = open(&views);
    assert!(opened <= 2 && watches == 1, "{opened} views, {watches} watches");
    assert_eq!(upstream_reads(&fixture), (1, 1), "all are served from a view");
    fixture.service("d", "ClusterIP");
    assert_eq!(events.next_summary().await, "ADDED d");
}

#[tokio::test]
async fn clients_that_come_at_the_same_time_share_one_view() {
    const CLIENTS: usize = 8;
    let (fixture, _script, _) = cached().await;
    for n in 0..100 {
        let start = Arc::new(Barrier::new(CLIENTS));
        let clients: Vec<_> = (0..CLIENTS)
            .map(|_| {
                let (views, start) = (fixture.caches.views.clone().unwrap(), start.clone());
                tokio::task::spawn_blocking(move || {
                    start.wait();
                    view(&views, &format!("ns-{n}"), &Owner::Daemon).unwrap()
                })
            })
            .collect();
        let mut views = Vec::with_capacity(CLIENTS);
        for client in clients {
            views.push(client.await.unwrap());
        }
        assert!(views.iter().all(|view| Arc::ptr_eq(view.view(), views[0].view())), "{n}");
    }
}

/// A read of the pods of a namespace, each with a view of its own.
fn pods(namespace: &str) -> Permit {
    let path = format!("/api/v1/namespaces/{namespace}/pods");
    let request = RequestInfo::parse(&http::Method::GET, &path.parse().unwrap()).unwrap();
    Permit::reviewed(StoreReader::Client("credential".into()), &request).unwrap()
}

/// A view for an owner; it counts as watched as long as the result is kept.
fn view(views: &Arc<Views>, namespace: &str, owner: &Owner) -> Result<ComponentView, OverShare> {
    let opener = Opener { component: "tool", owner, opens: true };
    Ok(views.view(&pods(namespace), opener)?.unwrap())
}

async fn with_ledger(ledger: &Ledger) -> (ProxyFixture, Arc<Views>) {
    let fixture = fixture_with(|setup| {
        setup.cached = vec!["services".parse().unwrap()];
        setup.ledger = ledger.clone();
    });
    let fixture = fixture.await;
    let views = fixture.caches.views.clone().unwrap();
    (fixture, views)
}

/// Each of many users may be within its own share.
#[tokio::test]
async fn what_grows_beyond_the_share_of_all_users_closes_idle_views_then_those_of_who_has_most_and_never_a_nodes() {
    let ledger = Ledger::new(20 << 20);
    let (_fixture, views) = with_ledger(&ledger).await;
    let owner = |name: &str| Owner::Client(name.into());
    let idle = |name: &str, of: &Owner| view(&views, name, of).unwrap().closed().clone();
    let (of_node, idle) = (idle("of-node", &Owner::Node), idle("idle", &owner("a")));
    let [b1, b2, c] =
        [("b-1", "b"), ("b-2", "b"), ("c", "c")].map(|(name, of)| view(&views, name, &owner(of)).unwrap());
    let is_closed = |view: &View| view.closed().is_cancelled();
    // Each view costs some 257 KiB with its store.
    let others = ledger.charge(&owner("d"), Use::Views, 0).unwrap();
    others.set((10 << 20) - (900 << 10));
    idle.cancelled().await;
    assert!(![&b1, &b2, &c].into_iter().any(|view| is_closed(view)));
    others.set((10 << 20) - (700 << 10));
    tokio::select! {
        () = b1.closed().cancelled() => assert!(!is_closed(&b2)),
        () = b2.closed().cancelled() => assert!(!is_closed(&b1)),
    }
    assert!(!is_closed(&c), "its owner has less");
    others.set(10 << 20);
    c.closed().cancelled().await;
    assert!(is_closed(&b1) && is_closed(&b2) && !of_node.is_cancelled());
}

#[tokio::test]
async fn during_a_penalty_nothing_is_closed_in_vain() {
    let ledger = Ledger::new(20 << 20);
    let (_fixture, views) = with_ledger(&ledger).await;
    let owner = Owner::Client("a".into());
    drop(view(&views, "idle", &owner).unwrap());
    ledger.penalize(&owner);
    let refused = view(&views, "other", &owner).unwrap_err();
    assert_eq!(refused, OverShare::Penalty { share: ledger.share() });
    assert!(refused.to_string().contains(&format!("of {} bytes", 8 << 20)), "{refused}");
    assert_eq!(open(&views), (1, 0));
}

#[tokio::test]
async fn a_user_has_at_most_256_views_and_takes_no_place_of_another() {
    let ledger = Ledger::new(1 << 30);
    let (_fixture, views) = with_ledger(&ledger).await;
    let (one, other) = (Owner::Client("a".into()), Owner::Client("b".into()));
    let view = |n: usize, owner: &Owner| {
        views.view(&pods(&format!("ns-{n}")), Opener { component: "tool", owner, opens: true }).unwrap()
    };
    let of_other = view(1000, &other).unwrap();
    let watched: Vec<_> = (0..256).map(|n| view(n, &one).unwrap()).collect();
    assert!(view(256, &one).is_none() && view(1001, &other).is_some());
    drop(watched);
    assert!(view(256, &one).is_some(), "in the place of one that nobody watches");
    assert!(!of_other.closed().is_cancelled());
}

#[tokio::test]
async fn a_store_that_a_node_component_reads_is_in_no_users_share() {
    let ledger = Ledger::new(1 << 30);
    let (fixture, views) = with_ledger(&ledger).await;
    // Each of these components has a view of its own.
    let filters = ["a/services", "b/services"].map(|rule| Script::new(|_| Outcome::Unchanged).matching(rule));
    fixture.activate(FilterSet::of(filters.into()));
    let request = RequestInfo::parse(&http::Method::GET, &SERVICES.parse().unwrap()).unwrap();
    for (credential, component) in [("one", "a"), ("other", "c")] {
        let user = Owner::Client(credential.into());
        let permit = Permit::reviewed(StoreReader::Client(credential.into()), &request).unwrap();
        let open = |component: &str, owner: &Owner| {
            views.view(&permit, Opener { component, owner, opens: true }).unwrap().unwrap()
        };
        let _views = (open("a", &user), open("b", &user));
        let (before, of_node) = (ledger.used(&user), ledger.used(&Owner::Node));
        // It takes over the one that it reads, or opens another one.
        let _taken = open(component, &Owner::Node);
        let (left, taken) = (ledger.used(&user), ledger.used(&Owner::Node) - of_node);
        assert!(left < 150 << 10 && before - left > left, "{before} before, {left} for its views alone");
        assert!(taken >= before - left, "{taken} of {before}");
    }
}

/// What it shows is older than what the read asks for.
#[tokio::test]
async fn a_view_that_is_closed_while_a_read_waits_for_a_version_has_not_reached_it() {
    let ledger = Ledger::new(20 << 20);
    let (_fixture, views) = with_ledger(&ledger).await;
    let mut view = view(&views, "default", &Owner::Client("a".into())).unwrap();
    let closed = view.closed().clone();
    let waits = fresh::is_not_older(Start::NotOlderThan(u64::MAX), &mut view);
    let close = async { closed.cancel() };
    let (waited, ()) = tokio::join!(waits, close);
    assert!(matches!(waited, Err(Unserved::AskUpstream)));
}

impl ProxyFixture {
    async fn watch_with(&self, token: &str, from: &str) -> EventReader {
        let path = format!("{SERVICES}?watch=1&resourceVersion={from}");
        self.watch_as(&path, &[("authorization", &format!("Bearer {token}"))]).await
    }
}

/// Its view is not read with the client's credential, so that nothing else ends it.
#[tokio::test]
async fn an_open_watch_ends_after_an_outage_if_its_token_was_revoked_meanwhile() {
    let (fixture, _script, _) = cached().await;
    let list = informer_list(&fixture).await;
    let mut revoked = fixture.watch_with("revoked", version(&list)).await;
    let mut kept = fixture.watch_with("kept", version(&list)).await;
    fixture.service("d", "ClusterIP");
    assert_eq!([revoked.next_summary().await, kept.next_summary().await], ["ADDED d", "ADDED d"]);
    fixture.server.on_request(|request| match request.header("authorization") {
        "Bearer revoked" => Action::json(401, json!({"kind": "Status", "apiVersion": "v1", "code": 401}).to_string()),
        _ => Action::Serve,
    });
    let refused = fixture.send("/api/v1/secrets", &[("authorization", "Bearer revoked")]).await;
    assert_eq!(refused.status(), StatusCode::UNAUTHORIZED);
    let connectivity = fixture.caches.upstream.as_ref().unwrap().connectivity();
    connectivity.record_failure();
    connectivity.record_success();
    assert_eq!(revoked.next().await, None);
    fixture.service("e", "ClusterIP");
    assert_eq!(kept.next_summary().await, "ADDED e");
}

#[tokio::test]
async fn an_open_watch_ends_with_its_token() {
    let (fixture, _script, _) = cached().await;
    let list = informer_list(&fixture).await;
    let now = weir_upstream::clock::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let token = |expires: Duration| {
        let claims = json!({"exp": expires.as_secs_f64()}).to_string();
        format!("e30.{}.x", base64::Engine::encode(&base64::prelude::BASE64_URL_SAFE_NO_PAD, claims))
    };
    let mut ends = fixture.watch_with(&token(now + Duration::from_secs(1)), version(&list)).await;
    let mut of_another_clock = fixture.watch_with(&token(now - Duration::from_secs(1)), version(&list)).await;
    assert_eq!(ends.next().await, None);
    fixture.service("d", "ClusterIP");
    assert_eq!(of_another_clock.next_summary().await, "ADDED d");
}
