//! The faults that the health of the node names. `crate::health_places` covers what becomes of it elsewhere.

use std::time::Duration;

use tokio::sync::watch;
use weir_access::Outage;
use weir_kube::GroupResource;
use weir_spec::FilterName;
use weir_store::disk::DiskCondition;
use weir_store::{ReflectorError, ReflectorState, ResourceStores, ResourceStoresConfig};
use weir_upstream::{Tasks, Upstream, UpstreamConfig, clock};

use super::super::notices::{self, HttpsPort, tests::assert_documented};
use super::super::status::ReloadResult;
use super::*;
use crate::node_facts::{NodeFacts, NodeState};

impl HealthSources {
    /// Without lookups, watch caches and API servers.
    pub(crate) fn of_filters(status: Arc<FilterStatus>) -> Self {
        let stores = ResourceStores::new(ResourceStoresConfig::default(), Tasks::default());
        let caches = Caches { upstream: None, views: None, local_status: None, metrics: Arc::default() };
        Self { status, reflectors: Reflectors::new(stores), notices: Arc::default(), caches }
    }
}

impl HealthReport {
    /// A report of each kind of fault, and of none.
    pub(crate) async fn samples() -> Vec<(&'static str, Self)> {
        let degraded = |notice: Option<Notice>| Self::new(false, None, notice.into_iter().collect());
        let first = SetAsideObject { object: "Service a/b".to_owned(), failures: 3, error: "trap: x".to_owned() };
        let failed = |resource: &str| vec![(resource.to_owned(), format!("listing {resource} failed: 403"))];
        let of_port = |notices: Notices| degraded(notices.present().pop());
        let disk = DiskCondition::samples().into_iter().find(|condition| condition.name == "disk");
        let not_ready =
            |missing| Self::new(false, Some(NotReady { missing, errors: vec!["x".to_owned()] }), Vec::new());
        vec![
            ("nothing", degraded(None)),
            ("off", degraded(off(&switched(true).0))),
            ("failing", degraded(Some(failing("pools", "Ignore", 7, &first)))),
            ("failing above a share", degraded(Some(failing_above("pools", "Ignore", None)))),
            ("degraded objects", degraded(without_verdict(&[("services".to_owned(), 2), ("endpoints".to_owned(), 1)]))),
            ("failing lookup", degraded(failed_lookups(failed("nodepools")))),
            ("failing cache", degraded(failed_caches(failed("services")))),
            ("no certificate", of_port(Notices { https: Some(HttpsPort::sample(true)), ..Notices::default() })),
            ("pod address", of_port(notices::tests::without_pod_address(Some("weir0")))),
            ("another's pod address", of_port(notices::tests::without_pod_address(None))),
            ("cache directory", of_port(Notices { unusable_cache: Some("/c: x".to_owned()), ..Notices::default() })),
            ("offline", Self::new(true, None, outage().await.present())),
            ("disk", degraded(disk.map(|condition| Notice::new(condition.name, condition.text)))),
            ("refused", degraded(refused(&refusing()))),
            ("suspended", degraded(Some(suspended("pools", "Ignore", Some("used up its time"))))),
            ("loading", not_ready(Missing::Filters(vec!["a".to_owned()]))),
            ("none valid", not_ready(Missing::Valid(refusing().last_result().unwrap()))),
        ]
    }

    /// So many filters fail, whose names begin with this, and the disk does.
    pub(crate) fn sample_of_failing(filters: usize, name: &str) -> Self {
        let names = (0..filters).rev().map(|number| format!("{name}{number:02}"));
        let mut notices: Vec<_> = names.map(|name| failing_above(&name, "Ignore", None)).collect();
        notices.insert(0, Notice::new("nothing-kept", "a remark".to_owned()));
        notices.push(Notice::new("disk", "full for 7 s".to_owned()));
        Self::new(false, None, notices)
    }
}

/// The annotation of the Node, which turns all filters off or does not.
fn switched(is_off: bool) -> (Notices, watch::Sender<NodeState>) {
    let (sender, receiver) = watch::channel(NodeState::Known(NodeFacts { is_off, ..NodeFacts::default() }));
    (Notices { node: Some(("edge-a".to_owned(), receiver)), ..Notices::default() }, sender)
}

/// A filter set is active, and a later configuration was refused.
fn refusing() -> FilterStatus {
    let status = FilterStatus::default();
    status.live(&[], ReloadResult::applied("ConfigMap a/b", &[]));
    let name: FilterName = "pools".parse().unwrap();
    let error = ReloadError { filter: Some(name), reason: "no such module".to_owned() };
    status.refused(ReloadResult::refused("ConfigMap a/b", vec![error], &[]));
    status
}

/// No API server has answered for an hour.
async fn outage() -> Notices {
    let config = UpstreamConfig::new(kube::Config::new("http://127.0.0.1:1".parse().unwrap()));
    let (hour, upstream) = (Duration::from_secs(3600), Upstream::new(&config, Arc::default()).unwrap());
    let outage = Outage::new(Arc::new(upstream), 24 * hour);
    outage.resume(clock::now() - hour, hour).await;
    Notices { outage: Some(outage), ..Notices::default() }
}

fn named<'a>(found: &'a [Notice], name: &str) -> &'a str {
    let notice = found.iter().find(|notice| notice.name == name).unwrap_or_else(|| panic!("no {name} in {found:?}"));
    assert_documented(notice.name, &notice.text);
    assert!(!notice.is_remark());
    &notice.text
}

#[test]
fn the_kill_switch_and_a_refused_configuration_are_faults() {
    let status = FilterStatus::default();
    let (notices, switch) = switched(true);
    assert!(named(&faults(&status, &notices, &[]), "filters-off").contains("annotate node edge-a weir.dev/filters- "));
    switch.send_replace(NodeState::Known(NodeFacts::default()));
    assert!(faults(&status, &notices, &[]).is_empty());

    status.refused(refusing().last_result().unwrap());
    assert!(faults(&status, &notices, &[]).is_empty(), "the daemon is not ready, which says the same");
    status.live(&[], ReloadResult::applied("ConfigMap a/b", &[]));
    assert!(faults(&status, &notices, &[]).is_empty());
    let found = faults(&refusing(), &notices, &[]);
    assert!(named(&found, "refused").ends_with("filter pools: no such module"));
    assert_eq!(found[0].subjects, ["ConfigMap a/b", "filter pools"], "reasons may change at each attempt");
}

#[test]
fn objects_without_a_verdict_are_a_fault() {
    let degraded = [("services".to_owned(), 2), ("endpoints".to_owned(), 1), ("services".to_owned(), 3)];
    let found = faults(&FilterStatus::default(), &Notices::default(), &degraded);
    let text = named(&found, "degraded");
    assert!(text.starts_with("6 objects in watch caches") && text.contains("(endpoints, services)"), "{text}");
    assert_eq!(found[0].subjects, ["endpoints", "services"]);
}

#[test]
fn what_filters_fail_on_is_in_the_troubleshooting() {
    let first = SetAsideObject { object: "Service a/b".to_owned(), failures: 3, error: "trap: \u{1b}x".to_owned() };
    for notice in [
        suspended("pools", "Ignore", Some("used up its time")),
        suspended("pools", "Ignore", None),
        failing("pools", "Ignore", 7, &first),
        failing_above("pools", "Ignore", Some("refused: \u{1b}")),
    ] {
        assert_documented(notice.name, &notice.text);
        assert!(!notice.text.contains('\u{1b}'), "{notice:?}");
        assert!(notice.subjects.iter().all(|subject| subject.ends_with("pools")), "{notice:?}");
    }
}

#[test]
fn failing_watch_caches_and_lookups_are_faults_that_name_resources_and_a_reason() {
    let failing =
        ["services", "endpoints", "services"].map(|resource| (resource.to_owned(), "listing: 403".to_owned()));
    for (fault, name, what) in [
        (failed_caches as fn(Vec<(String, String)>) -> Option<Notice>, "failing-cache", "watch caches"),
        (failed_lookups, "failing-lookups", "lookups of filters"),
    ] {
        let found = fault(failing.to_vec());
        let text = named(found.as_slice(), name);
        let start = format!("{what} (endpoints, services) fail although an API server answers, ");
        assert!(text.starts_with(&start) && text.ends_with(": listing: 403"), "{text}");
        assert_eq!(found.unwrap().subjects, ["endpoints", "services"]);
        assert_eq!(fault(Vec::new()), None);
    }
}

/// The pool and the switch of the node stay as they were.
#[test]
fn the_own_node_is_a_failing_lookup_unless_another_notice_is_about_it() {
    let nodes = || GroupResource::new("nodes", "");
    let error = ReflectorError::Forbidden { resource: nodes(), message: String::new() };
    let lookup = LookupSpec { name: Some("edge-a".to_owned()), metadata_only: true, ..LookupSpec::all(nodes()) };
    let state = ReflectorState { synced: true, error: Some(error.clone()) };
    let own = [ReflectorStatus { lookup: Arc::new(lookup), state, objects: 1, stale: false, lag: None }];
    let (notices, node) = switched(false);
    let failures = lookup_failures(&own, &notices);
    assert!(matches!(&failures[..], [(resource, reason)] if resource == "nodes" && *reason == error.to_string()));
    assert!(notices.present().is_empty());
    node.send_replace(NodeState::Unreadable(error.to_string()));
    assert_eq!(lookup_failures(&own, &notices), []);
    assert_eq!(notices.present()[0].name, "no-node");
}

#[test]
fn the_reason_of_a_daemon_without_filters_has_the_errors_of_lookups() {
    let missing = Missing::Filters(vec!["a".to_owned()]);
    let not_ready = NotReady { missing, errors: vec!["x".into(), "y".into()] };
    assert_eq!(not_ready.to_string(), "filters are loading: a; x; y");
}
