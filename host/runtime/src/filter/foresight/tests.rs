use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::json;
use weir_document::{Path, StringSet};

use weir_kube::Lookup;

use super::*;
use crate::testing::Fixed;
use crate::{Declared, Question, Read, Recorder, Surroundings, Which};

/// What the steps of one test read beside their object.
#[derive(Debug, Default)]
struct Recorded {
    generation: AtomicU64,
    reads: Mutex<Vec<String>>,
}

impl Recorder for Recorded {
    fn identity(&self) -> u64 {
        0
    }

    fn generation(&self) -> u64 {
        self.generation.load(Ordering::Relaxed)
    }

    fn note(&self, read: &Read, _: u64) {
        let Read::Object { name, at, .. } = read else { panic!("{read:?}") };
        self.reads.lock().unwrap().push(format!("{name} {}", at.as_ref().map_or("", Path::text)));
    }
}

/// A finder over two Services, of which one has the annotation `far`, and a Node.
fn finder() -> (Finder, Declared, Arc<Recorded>) {
    let service = |name: &str, annotations: serde_json::Value| {
        json!({"apiVersion": "v1", "kind": "Service",
               "metadata": {"name": name, "namespace": "team", "annotations": annotations}})
    };
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "edge-a"}});
    let objects = [service("near", json!({})), service("far", json!({"far": "yes"})), node];
    let recorded = Arc::new(Recorded::default());
    let surroundings = Surroundings {
        filter: "test".into(),
        world: Arc::new(Fixed::new(objects)),
        lookups: vec![
            Arc::new(Lookup::all("services".parse().unwrap())),
            Arc::new(Lookup::all("nodes".parse().unwrap())),
        ],
        recorder: recorded.clone(),
    };
    let mut finder = Finder::new(Arc::new(surroundings));
    let services = finder.declared("services").unwrap();
    (finder, services, recorded)
}

fn foresee(tree: &Tree, object: &Document) -> &'static str {
    with(tree, object, &mut finder().0).0
}

/// What is foreseen, and the object as it would be left.
fn with(tree: &Tree, object: &Document, finder: &mut Finder) -> (&'static str, String) {
    match tree.foresee(object, finder) {
        Foreseen::Outcome(keep, object) => (if keep { "keep" } else { "hide" }, object.to_json().unwrap()),
        Foreseen::Unknown => ("unknown", String::new()),
        Foreseen::Nothing => ("nothing", String::new()),
    }
}

fn object(json: &str) -> Document {
    Document::json(json.to_owned().into())
}

fn path(text: &str) -> Path {
    Path::parse(text).unwrap()
}

fn ask(question: Question) -> Step {
    Step::Ask(Which::AtHand, question)
}

fn of_type() -> Step {
    ask(Question::Text(path("spec.type")))
}

fn listens() -> Step {
    ask(Question::Annotation("listen".into()))
}

fn says(text: &str) -> Reply<'static> {
    Reply::Text(text.to_owned().into())
}

type Steps<'a> = &'a [(Step, Reply<'static>)];

fn whole(steps: Steps<'_>) -> Lesson {
    Lesson::test(true, steps.to_vec())
}

fn cut_short(steps: Steps<'_>) -> Lesson {
    Lesson::test(false, steps.to_vec())
}

fn agreed(tree: &mut Tree, steps: Steps<'_>, keep: bool) {
    for _ in 0..AGREED {
        tree.learn(whole(steps), keep, 0).unwrap();
    }
}

const PLAIN: &str = r#"{"spec":{"type":"ClusterIP"}}"#;
const LISTENS: &str = r#"{"metadata":{"annotations":{"listen":"a"}},"spec":{"type":"NodePort"}}"#;

#[test]
fn an_outcome_is_foreseen_once_enough_calls_agree() {
    let mut tree = Tree::default();
    for _ in 0..AGREED {
        assert_eq!(foresee(&tree, &object(PLAIN)), "unknown");
        tree.learn(whole(&[(listens(), Reply::Nothing)]), true, 0).unwrap();
    }
    assert_eq!(foresee(&tree, &object(PLAIN)), "keep");
    assert_eq!(foresee(&tree, &object(LISTENS)), "unknown", "it answers otherwise");
}

#[test]
fn the_replies_lead_to_different_questions_and_outcomes() {
    let mut tree = Tree::default();
    agreed(&mut tree, &[(of_type(), says("ClusterIP"))], true);
    agreed(&mut tree, &[(of_type(), says("NodePort")), (listens(), says("a"))], false);
    assert_eq!(foresee(&tree, &object(PLAIN)), "keep");
    assert_eq!(foresee(&tree, &object(LISTENS)), "hide");
    assert_eq!(foresee(&tree, &object(r#"{"spec":{"type":"NodePort"}}"#)), "unknown");
}

#[test]
fn a_call_that_acts_is_made_again_and_soon_teaches_no_more() {
    let mut tree = Tree::default();
    for _ in 0..AGREED {
        assert_eq!(foresee(&tree, &object(LISTENS)), "unknown");
        tree.learn(cut_short(&[(listens(), says("a"))]), true, 0).unwrap();
    }
    assert_eq!(foresee(&tree, &object(LISTENS)), "nothing");
    assert_eq!(foresee(&tree, &object(PLAIN)), "unknown");
}

#[test]
fn edits_are_made_as_the_module_makes_them() {
    let mut tree = Tree::default();
    let texts: StringSet = ["here"].into_iter().collect();
    let steps = [
        (listens(), says("a")),
        (Step::RetainIn(path("endpoints[*].nodeName"), Arc::new(texts)), Reply::Done),
        (ask(Question::Lengths(path("endpoints[*]"))), Reply::Lengths(vec![1])),
        (Step::Set(path("spec.type"), weir_document::Value::Text("ClusterIP".into())), Reply::Done),
        (Step::Remove(path("spec.ports[*].nodePort")), Reply::Number(1)),
        // Read after the edit.
        (of_type(), says("ClusterIP")),
    ];
    agreed(&mut tree, &steps, true);
    let json = |nodes: &str, ports: &str| {
        format!(
            r#"{{"metadata":{{"annotations":{{"listen":"a"}}}},"spec":{{"type":"NodePort","ports":{ports}}},"endpoints":{nodes}}}"#
        )
    };
    let nodes = r#"[{"nodeName":"there"},{"nodeName":"here"},{}]"#;
    let before = object(&json(nodes, r#"[{"port":1,"nodePort":2}]"#));
    let left = r#"{"metadata":{"annotations":{"listen":"a"}},"spec":{"type":"ClusterIP","ports":[{"port":1}]},"endpoints":[{"nodeName":"here"}]}"#;
    let (outcome, after) = with(&tree, &before, &mut finder().0);
    assert_eq!((outcome, after.as_str()), ("keep", left));
    assert_eq!(before.to_json().unwrap(), json(nodes, r#"[{"port":1,"nodePort":2}]"#), "what was shown is as it was");
    assert_eq!(foresee(&tree, &object(&json("[]", "[]"))), "unknown", "other numbers are left and removed");
    assert_eq!(foresee(&tree, &object(&json(nodes, "7"))), "unknown", "nothing was removed");
    assert_eq!(foresee(&tree, &before.clone().read_only()), "nothing", "an edit that fails is for the call to fail on");
}

#[test]
fn what_can_not_be_told_after_an_edit_is_called_for_before_it() {
    let mut tree = Tree::default();
    let edits = [(listens(), says("a")), (Step::Remove(path("spec.type")), Reply::Number(1))];
    agreed(&mut tree, &edits, true);
    assert_eq!(foresee(&tree, &object(LISTENS)), "keep");
    // As a lesson is cut: before its first edit.
    for _ in 0..AGREED {
        tree.learn(cut_short(&edits[..1]), true, 0).unwrap();
    }
    assert_eq!(foresee(&tree, &object(LISTENS)), "nothing");
    // A filter that does now this, now that after the same edit does not keep the tree busy for ever.
    for _ in 0..CHANGES {
        tree.learn(whole(&edits), true, 0).unwrap();
        tree.learn(cut_short(&edits[..1]), true, 0).unwrap();
    }
    assert_eq!(foresee(&tree, &object(LISTENS)), "nothing");
}

#[test]
fn objects_are_followed_to_what_they_refer_to_and_the_reads_recorded() {
    let (mut finder, services, recorded) = finder();
    let service = Step::Referent(services, Which::AtHand, path("metadata.labels.service"));
    let far = Step::Ask(Which::Found(0), Question::Text(path("metadata.annotations.far")));
    let mut tree = Tree::default();
    agreed(&mut tree, &[(service.clone(), Reply::Nothing)], true);
    agreed(&mut tree, &[(service.clone(), Reply::Done), (far.clone(), Reply::Nothing)], true);
    agreed(&mut tree, &[(service, Reply::Done), (far, says("yes"))], false);
    let slice =
        |service: &str| object(&format!(r#"{{"metadata":{{"namespace":"team","labels":{{"service":"{service}"}}}}}}"#));
    for (name, outcome, reads) in [
        ("near", "keep", &["near ", "near metadata.annotations.far"][..]),
        ("far", "hide", &["far ", "far metadata.annotations.far"][..]),
        ("gone", "keep", &["gone ", "gone "][..]),
        ("near", "keep", &[][..]),
    ] {
        assert_eq!(with(&tree, &slice(name), &mut finder).0, outcome, "{name}");
        assert_eq!(std::mem::take(&mut *recorded.reads.lock().unwrap()), reads, "{name}");
    }
    assert_eq!(with(&tree, &object("{}"), &mut finder).0, "keep", "it refers to nothing");
    assert!(recorded.reads.lock().unwrap().is_empty());
}

#[test]
fn what_is_in_no_namespace_is_referred_to_from_any() {
    let (mut finder, ..) = finder();
    let node = Step::Referent(finder.declared("nodes").unwrap(), Which::AtHand, path("spec.nodeName"));
    let mut tree = Tree::default();
    agreed(&mut tree, &[(node.clone(), Reply::Done)], true);
    agreed(&mut tree, &[(node, Reply::Nothing)], false);
    for (name, outcome) in [("edge-a", "keep"), ("edge-b", "hide")] {
        let pod = object(&format!(r#"{{"metadata":{{"namespace":"team"}},"spec":{{"nodeName":"{name}"}}}}"#));
        assert_eq!(with(&tree, &pod, &mut finder).0, outcome, "{name}");
    }
}

#[test]
fn what_a_module_keeps_by_a_fingerprint_is_no_contradiction() {
    let (_, services, _) = finder();
    let steps = |last: &[(Step, Reply<'static>)]| {
        let fingerprint = Step::Ask(Which::Found(0), Question::Fingerprint(path("metadata")));
        let found = Step::Get(services.clone(), Some("team".into()), "near".into());
        [&[(found, Reply::Done), (fingerprint, Reply::Number(7))], last].concat()
    };
    let more = steps(&[(listens(), says("a"))]);
    let less = steps(&[]);
    let mut tree = Tree::default();
    for _ in 0..AGREED {
        // The first call of each instance reads what the others keep; a column can't be told.
        tree.learn(cut_short(&less), true, 0).unwrap();
        tree.learn(whole(&more), true, 0).unwrap();
        tree.learn(whole(&less), true, 0).unwrap();
        tree.learn(whole(&more), true, 0).unwrap();
    }
    assert!(tree.changes > 0);
    for _ in 0..CHANGES {
        tree.learn(whole(&more), true, 0).unwrap();
        tree.learn(whole(&less), true, 0).unwrap();
    }
    assert_eq!(tree.changes, CHANGES + 1, "it is given up");
    assert_eq!(tree.learn(whole(&[]), true, 0), Err(Contradiction), "before the fingerprint nothing is kept");
}

#[test]
fn a_tree_full_of_what_the_world_was_begins_anew_when_the_world_moves() {
    let (mut finder, services, recorded) = finder();
    let get = Step::Get(services, Some("team".into()), "far".into());
    let far = Step::Ask(Which::Found(0), Question::Text(path("metadata.annotations.far")));
    let mut tree = Tree::default();
    for n in 0..=REPLIES {
        agreed(&mut tree, &[(get.clone(), Reply::Done), (far.clone(), says(&n.to_string()))], true);
    }
    let now = [(get, Reply::Done), (far, says("yes"))];
    assert_eq!(with(&tree, &object("{}"), &mut finder).0, "nothing", "there is no room for one more");
    recorded.generation.store(1, Ordering::Relaxed);
    assert_eq!(with(&tree, &object("{}"), &mut finder).0, "unknown");
    for _ in 0..=AGREED {
        tree.learn(whole(&now), false, 1).unwrap();
    }
    assert_eq!(with(&tree, &object("{}"), &mut finder).0, "hide");
}

#[test]
fn texts_are_kept_up_to_a_weight() {
    let heavy = |n: usize| {
        let texts: StringSet = (0..WEIGHT / 100).map(|text| format!("{n}-{text:058}")).collect();
        [(ask(Question::Name), says(&n.to_string())), (Step::RetainIn(path("a[*]"), Arc::new(texts)), Reply::Done)]
    };
    let mut tree = Tree::default();
    for n in 0..3 {
        agreed(&mut tree, &heavy(n), true);
    }
    let named = |n: usize| object(&format!(r#"{{"metadata":{{"name":"{n}"}}}}"#));
    assert_eq!(foresee(&tree, &named(0)), "keep");
    assert_eq!(foresee(&tree, &named(1)), "nothing");
}

#[test]
fn another_outcome_on_the_same_replies_is_a_contradiction() {
    let asked = [(listens(), Reply::Nothing)];
    for contradiction in [
        (whole(&asked), false),
        (cut_short(&asked), true),
        (whole(&[]), true),
        (whole(&[(of_type(), says("ClusterIP"))]), true),
        (whole(&[(listens(), Reply::Nothing), (of_type(), Reply::Nothing)]), true),
    ] {
        let mut tree = Tree::default();
        tree.learn(whole(&asked), true, 0).unwrap();
        assert_eq!(tree.learn(contradiction.0, contradiction.1, 0), Err(Contradiction));
    }
}

#[test]
fn nothing_is_foreseen_for_a_module_that_is_distrusted() {
    let foresight = Foresight::default();
    for _ in 0..AGREED {
        foresight.learn(whole(&[]), true, 0).unwrap();
    }
    assert_eq!(foresee(&foresight.tree(), &object(PLAIN)), "keep");
    foresight.distrust();
    foresight.learn(whole(&[]), false, 0).unwrap();
    assert_eq!(foresee(&foresight.tree(), &object(PLAIN)), "nothing");
}

#[test]
fn bad_bytes_are_left_to_the_call() {
    let mut tree = Tree::default();
    agreed(&mut tree, &[(of_type(), Reply::Nothing)], true);
    assert_eq!(foresee(&tree, &object("{}")), "keep");
    assert_eq!(foresee(&tree, &object(r#"{"spec":{"type":"#)), "nothing");
    assert_eq!(foresee(&tree, &object(r#"{"spec":{},"spec":{}}"#)), "nothing", "a key twice on the way");
}

#[test]
fn a_question_with_countless_replies_stays_bounded() {
    let mut tree = Tree::default();
    for n in 0..2 * NODES {
        let asked = [(ask(Question::Name), says(&n.to_string()))];
        tree.learn(whole(&asked), true, 0).unwrap();
    }
    agreed(&mut tree, &[(ask(Question::Name), Reply::Nothing)], true);
    let Node::Steps(asks) = &tree.root else { panic!("{tree:?}") };
    assert_eq!(asks.replies.len(), REPLIES + 1, "that there is nothing has its place");
    assert_eq!(foresee(&tree, &object(r#"{"metadata":{"name":"other"}}"#)), "nothing");
}

#[test]
fn questions_with_a_few_replies_each_stay_bounded_together() {
    let mut tree = Tree::default();
    for n in 0..REPLIES.pow(3) {
        let asked: Vec<_> = (0..3_u32)
            .map(|place| {
                (ask(Question::Label(place.to_string().into())), says(&(n / REPLIES.pow(place) % REPLIES).to_string()))
            })
            .collect();
        let label = |(place, (_, reply)): (usize, &(Step, Reply<'_>))| match reply {
            Reply::Text(text) => format!(r#""{place}":"{text}""#),
            other => panic!("{other:?}"),
        };
        let labels: Vec<_> = asked.iter().enumerate().map(label).collect();
        let object = object(&format!(r#"{{"metadata":{{"labels":{{{}}}}}}}"#, labels.join(",")));
        if foresee(&tree, &object) == "unknown" {
            tree.learn(whole(&asked), true, 0).unwrap();
        }
    }
    assert!(tree.nodes <= NODES + 4, "{}", tree.nodes);
}

#[test]
fn which_of_several_texts_it_is_has_few_replies() {
    let one_of = Question::OneOf(Path::parse("metadata.name").unwrap(), Box::new(["a".to_owned(), "b".to_owned()]));
    for (json, reply) in [
        (r#"{"metadata":{"name":"b"}}"#, Reply::Position(1)),
        (r#"{"metadata":{"name":"c"}}"#, Reply::Nothing),
        ("{}", Reply::Nothing),
    ] {
        assert_eq!(one_of.ask(&object(json)).unwrap(), reply);
    }
}
