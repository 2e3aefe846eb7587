//! Components with the same filters share a view, and part when other filters apply to some of them.

use super::open_views::close_idle;
use super::*;
use weir_kube::RequestInfo;
use weir_process::ledger::Owner;
use weir_runtime::{Failure, FailureClass};
use weir_store::StoreReader;
use weir_view::{ComponentView, Opener, Permit};

/// The components of each open view.
fn components(fixture: &ProxyFixture) -> Vec<String> {
    let stores = fixture.caches.views.as_ref().unwrap().status();
    stores.iter().flat_map(|store| &store.views).map(|view| view.component_names().join(" ")).collect()
}

/// Waits until the views have these components.
async fn have_components(fixture: &ProxyFixture, expected: &[&str]) {
    let reached = async {
        while components(fixture) != expected {
            tokio::task::yield_now().await;
        }
    };
    let waited = tokio::time::timeout(Duration::from_secs(20), reached).await;
    assert!(waited.is_ok(), "{:?}", components(fixture));
}

/// A filter that hides the Services of this type.
fn hiding(kind: &'static str) -> Script {
    Script::new(move |document| {
        let found = document.text(&Path::parse("spec.type").unwrap()).unwrap();
        if found.as_deref() == Some(kind) { Outcome::Hidden } else { Outcome::Unchanged }
    })
}

/// A proxy whose Services are cached, without filters, and watches of these components that lack nothing.
async fn watching<const N: usize>(components: [&str; N]) -> (ProxyFixture, [EventReader; N]) {
    let fixture = fixture_with(|setup| setup.cached = vec!["services".parse().unwrap()]).await;
    for (name, kind) in [("a", "ClusterIP"), ("b", "LoadBalancer")] {
        fixture.service(name, kind);
    }
    let list = informer_list(&fixture).await;
    let mut watches = Vec::new();
    for component in components {
        watches.push(watch_as(&fixture, component, version(&list)).await);
    }
    (fixture, watches.try_into().ok().unwrap())
}

async fn watch_as(fixture: &ProxyFixture, component: &str, from: &str) -> EventReader {
    let path = format!("{SERVICES}?watch=1&allowWatchBookmarks=true&resourceVersion={from}");
    fixture.watch_as(&path, &[("user-agent", &format!("{component}/1"))]).await
}

#[tokio::test]
async fn components_share_a_view_until_other_filters_apply_to_some_of_them_and_no_watch_ends() {
    let (fixture, [mut one, mut two, mut three]) = watching(["one", "two", "three"]).await;
    have_components(&fixture, &["one three two"]).await;
    fixture.filter("two/services", &hiding("LoadBalancer"));
    assert_eq!(two.next_summary().await, "DELETED b");
    assert_eq!(two.next_summary().await, "BOOKMARK ");
    have_components(&fixture, &["one three", "two"]).await;
    // From then on, what was hidden before an event and after it, is none.
    informer_list(&fixture).await;
    fixture.service("c", "LoadBalancer");
    fixture.service("d", "ClusterIP");
    assert_eq!(two.next_summary().await, "ADDED d", "c is hidden from it");
    for others in [&mut one, &mut three] {
        assert_eq!(others.next_summary().await, "ADDED c", "no event precedes it");
        assert_eq!(others.next_summary().await, "ADDED d");
    }
    fixture.no_filters();
    for expected in ["ADDED b", "ADDED c", "BOOKMARK "] {
        assert_eq!(two.next_summary().await, expected);
    }
    fixture.service("e", "ClusterIP");
    for all in [&mut one, &mut two, &mut three] {
        assert_eq!(all.next_summary().await, "ADDED e");
    }
    assert_eq!(upstream_reads(&fixture), (1, 1));
}

#[tokio::test]
async fn views_that_get_the_same_filters_send_only_what_differs_and_clients_that_come_back_share_one() {
    let (fixture, [mut one, mut two]) = watching(["one", "two"]).await;
    let filters = || [hiding("LoadBalancer").matching("one/services"), hiding("ClusterIP").matching("two/services")];
    fixture.activate(FilterSet::of(filters().into()));
    assert_eq!([one.next_summary().await, one.next_summary().await], ["DELETED b", "BOOKMARK "]);
    assert_eq!([two.next_summary().await, two.next_summary().await], ["DELETED a", "BOOKMARK "]);
    have_components(&fixture, &["one", "two"]).await;
    fixture.filter("*/services", &hiding("LoadBalancer"));
    assert_eq!(two.next_summary().await, "ADDED a");
    assert_eq!([two.next_summary().await, two.next_summary().await], ["DELETED b", "BOOKMARK "]);
    fixture.service("c", "ClusterIP");
    for all in [&mut one, &mut two] {
        assert_eq!(all.next_summary().await, "ADDED c", "no event precedes it");
    }
    have_components(&fixture, &["one", "two"]).await;
    // Which of both has the place is not said.
    let list = informer_list(&fixture).await;
    drop([one, two]);
    let mut again = [watch_as(&fixture, "one", version(&list)).await, watch_as(&fixture, "two", version(&list)).await];
    let views = fixture.caches.views.clone().unwrap();
    close_idle(&views).await;
    have_components(&fixture, &["one two"]).await;
    fixture.service("d", "ClusterIP");
    for all in &mut again {
        assert_eq!(all.next_summary().await, "ADDED d");
    }
}

fn view_of(fixture: &ProxyFixture, component: &str) -> ComponentView {
    let request = RequestInfo::parse(&http::Method::GET, &SERVICES.parse().unwrap()).unwrap();
    let permit = Permit::reviewed(StoreReader::Daemon, &request).unwrap();
    let opener = Opener { component, owner: &Owner::Daemon, opens: true };
    fixture.caches.views.as_ref().unwrap().view(&permit, opener).unwrap().unwrap()
}

/// A read has found its view, and the filters of its component change before it has read anything.
#[tokio::test]
async fn a_read_under_way_is_not_shown_what_the_filters_of_another_component_make() {
    let (fixture, [_watch]) = watching(["one"]).await;
    let (mut one, mut two) = (view_of(&fixture, "one"), view_of(&fixture, "two"));
    assert!(Arc::ptr_eq(one.view(), two.view()));
    let found = two.view().clone();
    fixture.filter("one/services", &hiding("LoadBalancer"));
    let services = weir_kube::GroupResource::new("services", "");
    let set = fixture.serving.borrow().live().unwrap().clone();
    let in_force = set.chain("one", &services, weir_kube::VerbClass::Read).map(|chain| chain.version());
    let shown = one.wait_for(|view| view.snapshot_in_step(in_force)).await.unwrap();
    let is_shown = |name: &str, shown: &weir_view::ViewSnapshot| {
        shown.objects.values().any(|object| object.source.key.name() == name && object.shown().is_some())
    };
    assert!(is_shown("a", &shown) && !is_shown("b", &shown));
    let shown = two.snapshot_in_step(None).unwrap();
    assert!(is_shown("a", &shown) && is_shown("b", &shown));
    assert!(!Arc::ptr_eq(one.view(), two.view()));
    assert!(Arc::ptr_eq(&found, one.view()) != Arc::ptr_eq(&found, two.view()), "one of them has stayed");
}

/// The store has an event that the view has not taken yet when it is forked.
#[tokio::test]
async fn a_fork_has_the_events_that_the_view_before_it_lacks() {
    let (fixture, [mut one, mut two]) = watching(["one", "two"]).await;
    let mut view = view_of(&fixture, "two");
    for n in 0..20 {
        let before = view.snapshot().version;
        fixture.service(&format!("s{n}"), "ClusterIP");
        let newest = fixture.server.store().revision();
        // The view's task has not run since the store has the event: the runtime has one thread.
        while fixture.caches.views.as_ref().unwrap().status()[0].store.version < newest {
            tokio::task::yield_now().await;
        }
        if n % 2 == 0 {
            fixture.filter("two/services", &hiding("LoadBalancer"))
        } else {
            fixture.no_filters()
        }
        let reached = tokio::time::timeout(Duration::from_secs(5), view.reaches(newest)).await;
        assert!(matches!(reached, Ok(Some(()))), "{before}, and not {newest}");
        for all in [&mut one, &mut two] {
            let name = format!("ADDED s{n}");
            while all.next_summary().await != name {}
        }
    }
}

/// What stands in for a failure is what the same component was shown before.
#[tokio::test]
async fn what_former_filters_have_made_stands_in_for_those_alone_whose_filters_they_were() {
    let (fixture, [mut one, mut two]) = watching(["one", "two"]).await;
    fixture.filter("one/services", &hiding("LoadBalancer"));
    assert_eq!([one.next_summary().await, one.next_summary().await], ["DELETED b", "BOOKMARK "]);
    have_components(&fixture, &["one", "two"]).await;
    let fails = Arc::new(std::sync::atomic::AtomicBool::new(true));
    let is_failing = fails.clone();
    let failing = Script::new(move |_| match is_failing.load(std::sync::atomic::Ordering::Relaxed) {
        true => Outcome::Failed(Failure { filter: "fails".into(), class: FailureClass::Trap, message: "boom".into() }),
        false => Outcome::Unchanged,
    });
    fixture.filter("*/services", &failing);
    let services = weir_kube::GroupResource::new("services", "");
    let set = fixture.serving.borrow().live().unwrap().clone();
    let in_force =
        |component: &str| set.chain(component, &services, weir_kube::VerbClass::Read).map(|chain| chain.version());
    for (component, shown) in [("one", "a"), ("two", "a b"), ("three", "")] {
        let mut view = view_of(&fixture, component);
        let snapshot = view.wait_for(|view| view.snapshot_in_step(in_force(component))).await.unwrap();
        let objects = snapshot.objects.values().filter(|object| object.shown().is_some());
        let names: Vec<_> = objects.map(|object| object.source.key.name().to_owned()).collect();
        assert_eq!(names.join(" "), shown, "{component}");
    }
    // Requests of a component without a watch find a view of their own.
    let before = view_of(&fixture, "three").view().clone();
    tokio::task::yield_now().await;
    close_idle(&fixture.caches.views.clone().unwrap()).await;
    assert!(!before.closed().is_cancelled() && Arc::ptr_eq(&before, view_of(&fixture, "three").view()));
    drop(before);
    fails.store(false, std::sync::atomic::Ordering::Relaxed);
    assert_eq!([one.next_summary().await, one.next_summary().await], ["ADDED b", "BOOKMARK "]);
    fixture.service("c", "ClusterIP");
    assert_eq!(one.next_summary().await, "ADDED c");
    while two.next_summary().await != "ADDED c" {}
    let views = fixture.caches.views.clone().unwrap();
    let is_degraded = |view: &Arc<weir_view::View>| view.degraded_objects() > 0;
    while views.status().iter().flat_map(|store| &store.views).any(is_degraded) {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let all = ["one", "two", "three"].map(|component| view_of(&fixture, component));
    assert!(all.iter().all(|view| Arc::ptr_eq(view.view(), all[0].view())), "all of them have one view again");
}

#[tokio::test]
async fn a_read_before_the_first_filter_set_waits_for_its_view() {
    let fixture = fixture_with(|setup| {
        setup.cached = vec!["services".parse().unwrap()];
        setup.serving = Serving::Pending(Some([].into()));
    });
    let fixture = fixture.await;
    fixture.service("a", "ClusterIP");
    let read = async {
        let (status, list) = fixture.json(&format!("{SERVICES}?resourceVersion=0")).await;
        assert_eq!((status, names(&list)), (StatusCode::OK, vec!["a"]));
    };
    let live = async {
        // Until the API server has said whether the client may read this, or for long enough: then only the filters are missing.
        for _ in 0..200 {
            if fixture.server.requests().iter().any(|request| request.path.contains("selfsubjectaccessreview")) {
                break;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        fixture.activate(FilterSet::default());
    };
    tokio::join!(read, live);
    assert_eq!(upstream_reads(&fixture), (1, 1), "it is served from memory");
}
