use serde_json::json;
use weir_document::{Path, StringSet};

use super::*;
use crate::DependencySet;
use crate::testing::Fixed;
use crate::{Declared, Dependency, Edit, InstanceContext, LookupContext, Read, Target};
use weir_spec::LookupSpec;

/// A scope over two Services, of which one has the annotation `far`, and a Node.
fn scope() -> (Scope, Declared) {
    let service = |name: &str, annotations: serde_json::Value| {
        json!({"apiVersion": "v1", "kind": "Service",
               "metadata": {"name": name, "namespace": "team", "annotations": annotations}})
    };
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "edge-a"}});
    let objects = [service("near", json!({})), service("far", json!({"far": "yes"})), node];
    let lookups = vec![
        Arc::new(LookupSpec::all("services".parse().unwrap())),
        Arc::new(LookupSpec::all("nodes".parse().unwrap())),
    ];
    let view = Arc::new(Fixed::new(objects));
    let context = InstanceContext::new("test".into(), view, lookups, DependencySet::default().epoch());
    let mut scope = Scope::new(LookupContext::new(Arc::new(context)));
    let services = scope.lookups.declared("services").unwrap();
    (scope, services)
}

fn replay(tree: &TraceTree, object: &Document) -> &'static str {
    replay_with(tree, object, &mut scope().0).0
}

/// The replayed verdict, and the object after the replayed edits.
fn replay_with(tree: &TraceTree, object: &Document, scope: &mut Scope) -> (&'static str, String) {
    scope.begin(None);
    let found = tree.replay(object, scope);
    match found {
        Found::Verdict(Verdict::Keep) => ("keep", object.to_json().unwrap()),
        Found::Verdict(Verdict::Edit(edited)) => ("keep", edited.to_json().unwrap()),
        Found::Verdict(Verdict::Hide) => ("hide", String::new()),
        Found::Unknown => ("unknown", String::new()),
        Found::Unpredictable => ("unpredictable", String::new()),
    }
}

fn object(json: &str) -> Document {
    Document::json(json.to_owned().into())
}

fn path(text: &str) -> Path {
    Path::parse(text).unwrap()
}

fn read(read: Read) -> HostCall {
    HostCall::Read(Target::Object, read)
}

fn edit(edit: Edit) -> HostCall {
    HostCall::Edit(Target::Object, edit)
}

fn of_type() -> HostCall {
    read(Read::Text(path("spec.type")))
}

fn listens() -> HostCall {
    read(Read::Annotation("listen".into()))
}

fn text(text: &str) -> Observed<'static> {
    Observed::Text(text.to_owned().into())
}

type Calls<'a> = &'a [(HostCall, Observed<'static>)];

fn whole(calls: Calls<'_>) -> Trace {
    Trace::test(Extent::Whole, calls.to_vec())
}

fn prefix(calls: Calls<'_>) -> Trace {
    Trace::test(Extent::Prefix, calls.to_vec())
}

fn agreed(tree: &mut TraceTree, calls: Calls<'_>, keep: bool) {
    for _ in 0..AGREED {
        tree.add(&whole(calls), keep).unwrap();
    }
}

const PLAIN: &str = r#"{"spec":{"type":"ClusterIP"}}"#;
const LISTENS: &str = r#"{"metadata":{"annotations":{"listen":"a"}},"spec":{"type":"NodePort"}}"#;

#[test]
fn a_verdict_is_replayed_once_enough_calls_agree() {
    let mut tree = TraceTree::default();
    let trace = whole(&[(listens(), Observed::Nothing)]);
    for _ in 0..AGREED {
        assert_eq!(replay(&tree, &object(PLAIN)), "unknown");
        assert!(!tree.holds(&trace, true));
        tree.add(&trace, true).unwrap();
    }
    assert_eq!(replay(&tree, &object(PLAIN)), "keep");
    assert!(tree.holds(&trace, true));
    assert_eq!(replay(&tree, &object(LISTENS)), "unknown", "the host call returns something else");
}

#[test]
fn results_lead_to_different_host_calls_and_verdicts() {
    let mut tree = TraceTree::default();
    agreed(&mut tree, &[(of_type(), text("ClusterIP"))], true);
    agreed(&mut tree, &[(of_type(), text("NodePort")), (listens(), text("a"))], false);
    assert_eq!(replay(&tree, &object(PLAIN)), "keep");
    assert_eq!(replay(&tree, &object(LISTENS)), "hide");
    assert_eq!(replay(&tree, &object(r#"{"spec":{"type":"NodePort"}}"#)), "unknown");
}

#[test]
fn after_a_host_call_that_is_not_replayed_the_module_is_called_and_no_longer_recorded() {
    let mut tree = TraceTree::default();
    for _ in 0..AGREED {
        assert_eq!(replay(&tree, &object(LISTENS)), "unknown");
        tree.add(&prefix(&[(listens(), text("a"))]), true).unwrap();
    }
    assert_eq!(replay(&tree, &object(LISTENS)), "unpredictable");
    assert_eq!(replay(&tree, &object(PLAIN)), "unknown");
}

#[test]
fn replayed_edits_equal_those_of_the_module() {
    let mut tree = TraceTree::default();
    let texts: StringSet = ["here"].into_iter().collect();
    let calls = [
        (listens(), text("a")),
        (edit(Edit::RetainIn(path("endpoints[*].nodeName"), Arc::new(texts))), Observed::Done),
        (read(Read::Lengths(path("endpoints[*]"))), Observed::Lengths(vec![1])),
        (edit(Edit::Set(path("spec.type"), weir_document::Value::Text("ClusterIP".into()))), Observed::Done),
        (edit(Edit::Remove(path("spec.ports[*].nodePort"))), Observed::Number(1)),
        // Read after the edit.
        (of_type(), text("ClusterIP")),
    ];
    agreed(&mut tree, &calls, true);
    let json = |nodes: &str, ports: &str| {
        format!(
            r#"{{"metadata":{{"annotations":{{"listen":"a"}}}},"spec":{{"type":"NodePort","ports":{ports}}},"endpoints":{nodes}}}"#
        )
    };
    let nodes = r#"[{"nodeName":"there"},{"nodeName":"here"},{}]"#;
    let before = object(&json(nodes, r#"[{"port":1,"nodePort":2}]"#));
    let left = r#"{"metadata":{"annotations":{"listen":"a"}},"spec":{"type":"ClusterIP","ports":[{"port":1}]},"endpoints":[{"nodeName":"here"}]}"#;
    let (verdict, after) = replay_with(&tree, &before, &mut scope().0);
    assert_eq!((verdict, after.as_str()), ("keep", left));
    assert_eq!(before.to_json().unwrap(), json(nodes, r#"[{"port":1,"nodePort":2}]"#), "a copy was edited");
    assert_eq!(replay(&tree, &object(&json("[]", "[]"))), "unknown", "other numbers are left and removed");
    assert_eq!(replay(&tree, &object(&json(nodes, "7"))), "unknown", "nothing was removed");
    assert_eq!(replay(&tree, &before.clone().read_only()), "unknown", "a refused edit is another result");
}

/// Like `endpoints`: removes addresses, then reads the rest, and removes empty subsets of some objects only.
#[test]
fn host_calls_after_an_edit_depend_on_its_result_only() {
    let cut = edit(Edit::Remove(path("spec.type")));
    let left = |count| (read(Read::Lengths(path("subsets[*]"))), Observed::Lengths(vec![count]));
    let mut tree = TraceTree::default();
    for _ in 0..200 {
        tree.add(&whole(&[(listens(), text("a")), (cut.clone(), Observed::Number(1)), left(1)]), true).unwrap();
        tree.add(&prefix(&[(listens(), text("a")), (cut.clone(), Observed::Number(1)), left(0)]), true).unwrap();
    }
    let json = |subsets: &str| {
        object(&format!(
            r#"{{"metadata":{{"annotations":{{"listen":"a"}}}},"spec":{{"type":"x"}},"subsets":{subsets}}}"#
        ))
    };
    assert_eq!(replay(&tree, &json("[1]")), "keep");
    assert_eq!(replay(&tree, &json("[]")), "unpredictable");
    assert!(tree.nodes() < 10, "{}", tree.nodes());
}

#[test]
fn an_edit_that_leads_to_no_verdict_is_not_replayed() {
    let cut = edit(Edit::Remove(path("spec.type")));
    let mut tree = TraceTree::default();
    for _ in 0..2 * AGREED {
        tree.add(&prefix(&[(listens(), text("a")), (cut.clone(), Observed::Number(1))]), true).unwrap();
    }
    assert_eq!(replay(&tree, &object(LISTENS)), "unknown");
}

#[test]
fn references_are_followed_and_dependencies_collected() {
    let (mut scope, services) = scope();
    let at = path("metadata.labels.service");
    let service = HostCall::Referent { declared: services, from: Target::Object, at };
    let far = HostCall::Read(Target::Hit(0), Read::Text(path("metadata.annotations.far")));
    let mut tree = TraceTree::default();
    agreed(&mut tree, &[(service.clone(), Observed::Nothing)], true);
    agreed(&mut tree, &[(service.clone(), Observed::Hit(0)), (far.clone(), Observed::Nothing)], true);
    agreed(&mut tree, &[(service, Observed::Hit(0)), (far, text("yes"))], false);
    let slice =
        |service: &str| object(&format!(r#"{{"metadata":{{"namespace":"team","labels":{{"service":"{service}"}}}}}}"#));
    let set = DependencySet::default();
    for (name, verdict, reads) in [
        ("near", "keep", &["near ", "near metadata.annotations.far"][..]),
        ("far", "hide", &["far ", "far metadata.annotations.far"][..]),
        ("gone", "keep", &["gone ", "gone "][..]),
    ] {
        assert_eq!(replay_with(&tree, &slice(name), &mut scope).0, verdict, "{name}");
        let dependencies = scope.end();
        let collected: Vec<_> = dependencies
            .iter()
            .map(|(dependency, _)| match dependency {
                Dependency::Object { name, at, .. } => format!("{name} {}", at.as_ref().map_or("", Path::text)),
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(collected, reads, "{name}");
        assert!(set.is_empty());
    }
    assert_eq!(replay_with(&tree, &object("{}"), &mut scope).0, "keep", "it refers to nothing");
    assert!(scope.end().is_empty());
}

#[test]
fn objects_of_any_namespace_can_refer_to_a_cluster_scoped_object() {
    let (mut scope, _) = scope();
    let declared = scope.lookups.declared("nodes").unwrap();
    let node = HostCall::Referent { declared, from: Target::Object, at: path("spec.nodeName") };
    let mut tree = TraceTree::default();
    agreed(&mut tree, &[(node.clone(), Observed::Hit(0))], true);
    agreed(&mut tree, &[(node, Observed::Nothing)], false);
    for (name, verdict) in [("edge-a", "keep"), ("edge-b", "hide")] {
        let pod = object(&format!(r#"{{"metadata":{{"namespace":"team"}},"spec":{{"nodeName":"{name}"}}}}"#));
        assert_eq!(replay_with(&tree, &pod, &mut scope).0, verdict, "{name}");
        scope.end();
    }
}

#[test]
fn state_cached_by_a_fingerprint_is_no_contradiction() {
    let (_, services) = scope();
    let get = HostCall::Get { declared: services, namespace: Some("team".into()), name: "near".into() };
    let fingerprint = HostCall::Read(Target::Hit(0), Read::Fingerprint(path("metadata")));
    let calls = |last: Calls<'_>| {
        [&[(get.clone(), Observed::Hit(0)), (fingerprint.clone(), Observed::Number(7))], last].concat()
    };
    let more = calls(&[(listens(), text("a"))]);
    let less = calls(&[]);
    let mut tree = TraceTree::default();
    for _ in 0..100 {
        // The first call of each instance reads a column, which is not replayed. Later calls use the cached state.
        tree.add(&prefix(&less), true).unwrap();
        tree.add(&whole(&more), true).unwrap();
        tree.add(&whole(&less), true).unwrap();
    }
    agreed(&mut tree, &less, true);
    assert!(tree.holds(&whole(&less), true), "the calls that go on agreeing are replayed");
    for _ in 0..100 {
        tree.add(&prefix(&less), true).unwrap();
        tree.add(&whole(&more), true).unwrap();
    }
    assert!(tree.holds(&whole(&less), true), "and go on to be");
    assert_eq!(tree.add(&whole(&[]), true), Err(Contradiction), "nothing is kept before the fingerprint");
    assert_eq!(tree.add(&whole(&less), false), Err(Contradiction), "the verdict derives from the fingerprint");
}

#[test]
fn string_sets_are_bounded_by_their_weight() {
    let heavy = |n: usize| {
        let texts: StringSet = (0..WEIGHT / 100).map(|text| format!("{n}-{text:058}")).collect();
        [
            (read(Read::Name), text(&n.to_string())),
            (edit(Edit::RetainIn(path("a[*]"), Arc::new(texts))), Observed::Done),
        ]
    };
    let mut tree = TraceTree::default();
    for n in 0..3 {
        agreed(&mut tree, &heavy(n), true);
        assert!(tree.weight <= WEIGHT, "{}", tree.weight);
    }
    assert_eq!(tree.clears(), 2);
    let named = |n: usize| object(&format!(r#"{{"metadata":{{"name":"{n}"}},"a":[]}}"#));
    assert_eq!(replay(&tree, &named(2)), "keep", "the newest one is there");
    assert_eq!(replay(&tree, &named(0)), "unknown");
}

#[test]
fn another_host_call_or_verdict_after_the_same_results_is_a_contradiction() {
    let calls = [(listens(), Observed::Nothing)];
    for (trace, keep) in [
        (whole(&calls), false),
        (prefix(&calls), true),
        (whole(&[]), true),
        (whole(&[(of_type(), text("ClusterIP"))]), true),
        (whole(&[(listens(), Observed::Nothing), (of_type(), Observed::Nothing)]), true),
    ] {
        let mut tree = TraceTree::default();
        tree.add(&whole(&calls), true).unwrap();
        assert_eq!(tree.add(&trace, keep), Err(Contradiction));
    }
}

#[test]
fn a_call_that_wrote_a_log_line_is_no_contradiction() {
    let mut tree = TraceTree::default();
    agreed(&mut tree, &[(listens(), Observed::Nothing)], true);
    let logged = Trace::test(Extent::Nothing, Vec::new());
    assert!(tree.holds(&logged, true));
    assert_eq!(tree.add(&logged, true), Ok(()));
    assert_eq!(replay(&tree, &object(PLAIN)), "keep");
}

#[test]
fn malformed_bytes_are_reported_by_the_call() {
    let mut tree = TraceTree::default();
    agreed(&mut tree, &[(of_type(), Observed::Nothing)], true);
    assert_eq!(replay(&tree, &object("{}")), "keep");
    assert_eq!(replay(&tree, &object(r#"{"spec":{"type":"#)), "unpredictable");
    assert_eq!(replay(&tree, &object(r#"{"spec":{},"spec":{}}"#)), "unpredictable", "a repeated key on the way");
}

#[test]
fn a_host_call_with_many_results_stays_bounded_and_recording_continues() {
    let mut tree = TraceTree::default();
    agreed(&mut tree, &[(read(Read::Name), text("often"))], true);
    for n in 0..NODES / 2 - RESULTS {
        tree.add(&whole(&[(read(Read::Name), text(&n.to_string()))]), true).unwrap();
    }
    let named = |name: &str| object(&format!(r#"{{"metadata":{{"name":"{name}"}}}}"#));
    assert_eq!(replay(&tree, &named("often")), "keep", "results that lead to no verdict yet go first");
    agreed(&mut tree, &[(read(Read::Name), text("new"))], false);
    assert_eq!(replay(&tree, &named("new")), "hide");
    for n in 0..2 * RESULTS {
        agreed(&mut tree, &[(read(Read::Name), text(&format!("later-{n}")))], true);
    }
    assert_eq!(replay(&tree, &named("new")), "unknown", "then the oldest");
}

#[test]
fn a_full_tree_is_cleared_and_recording_continues() {
    let label = |place: u32| read(Read::Label(place.to_string().into()));
    let mut tree = TraceTree::default();
    for n in 0..RESULTS.pow(3) {
        let results: Vec<_> = (0..3_u32).map(|place| (n / RESULTS.pow(place) % RESULTS).to_string()).collect();
        let calls: Vec<_> = (0..3).zip(&results).map(|(place, result)| (label(place), text(result))).collect();
        agreed(&mut tree, &calls, true);
        assert!(tree.nodes() <= NODES, "{}", tree.nodes());
        let labels: Vec<_> =
            results.iter().enumerate().map(|(place, result)| format!(r#""{place}":"{result}""#)).collect();
        let object = object(&format!(r#"{{"metadata":{{"labels":{{{}}}}}}}"#, labels.join(",")));
        assert_eq!(replay(&tree, &object), "keep");
    }
    assert!(tree.clears() > 0);
}
