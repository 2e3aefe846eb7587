//! Native runs refuse what the host refuses. One filter does one thing per setting, and each test covers a rule of the
//! contract.

use bytes::Bytes;
use serde::Deserialize;
use weir_document::Document;
use weir_filter::native::{Environment, NativeError, Node, Runner};
use weir_filter::{Error, Filter, Lookup, Object, Path, Plan, Value, Verdict, cluster, node};

static NAME: Path = Path::new("metadata.name");
static NODES: Path = Path::new("status.nodes[*]");
static TYPE: Path = Path::new("spec.type");
static SPEC: Path = Path::new("spec");
static FRONT: Path = Path::new("metadata.labels.front");
static ON: Path = Path::new("metadata.labels.on");
static PORT_NAMES: Path = Path::new("spec.ports[*].name");

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
enum Act {
    Keep,
    AskInConfigure,
    AskUndeclared,
    EditFound,
    EditProtected,
    ReplaceProtected,
    EditThenFail,
    WildcardText,
    ReadFound,
    Follow,
}

struct Actor(Act);

#[derive(Deserialize)]
struct Settings {
    act: Act,
}

impl Filter for Actor {
    type Settings = Settings;

    fn configure(settings: Settings) -> Result<Self, Error> {
        assert_eq!(node::name(), "edge-1");
        if let Act::AskInConfigure = settings.act {
            cluster::get("services", None, "a");
        }
        Ok(Self(settings.act))
    }

    fn plan(&self) -> Plan {
        Plan::matching(["*/services"])
            .with(Lookup::of("nodes").named("edge-1").metadata_only())
            .with(Lookup::of("services").selected("tier=front"))
            .with(Lookup::of("nodepools.apps.openyurt.io").versions(["v1beta2"]).optional())
    }

    fn filter(&self, object: &mut Object<'_>) -> Result<Verdict, Error> {
        match self.0 {
            Act::Keep | Act::AskInConfigure => {}
            Act::AskUndeclared => drop(cluster::get("pods", Some("default"), "a")),
            Act::EditFound => cluster::get("nodes", None, "edge-1").ok_or(Error::new("no node"))?.set(&TYPE, "x")?,
            Act::EditProtected => object.set(&NAME, "other")?,
            Act::ReplaceProtected => object.replace(r#"{"metadata":{"name":"other"}}"#)?,
            Act::EditThenFail => {
                object.set(&TYPE, "ClusterIP")?;
                assert_eq!(object.text(&TYPE).as_deref(), Some("ClusterIP"));
                return Err(Error::new("on purpose"));
            }
            Act::WildcardText => drop(object.text(&NODES)),
            Act::ReadFound => self.read_found(object)?,
            Act::Follow => {
                let service = cluster::referent("services", object, &FRONT).ok_or(Error::new("no service"))?;
                assert_eq!((service.name().as_str(), service.namespace().as_deref()), ("a", Some("default")));
                // A Node is cluster-scoped. The referring object is read like any other.
                let node = cluster::referent("nodes", &service, &ON).ok_or(Error::new("no node"))?;
                assert_eq!(node.label("zone").as_deref(), Some("z"));
                assert!(
                    cluster::referent("nodes", object, &FRONT).is_none()
                        && cluster::referent("nodes", object, &ON).is_none()
                );
                object.retain_in(&PORT_NAMES, &["http"].into_iter().collect())?;
            }
        }
        Ok(Verdict::Keep)
    }
}

impl Actor {
    /// Returns what the declared lookups find in the environment below.
    fn read_found(&self, object: &mut Object<'_>) -> Result<(), Error> {
        let own = cluster::get("nodes", None, "edge-1").ok_or(Error::new("no node"))?;
        assert_eq!(own.label("zone").as_deref(), Some("z"));
        assert_eq!(own.get(&SPEC), None, "only metadata was asked for");
        assert!(cluster::get("nodes", None, "edge-2").is_none(), "another name was not declared");

        let services = cluster::find("services", None, "");
        let names: Vec<_> = services.column(&NAME).iter().flatten().map(str::to_owned).collect();
        assert_eq!(names, ["b", "a"], "by namespace, then name; those of the declared selector");
        assert_eq!(cluster::find("services", Some("default"), "tier in (front,back)").count(), 1);
        assert_eq!(cluster::find("services", Some("default"), "tier!=front").count(), 0);
        assert!(services.at(0).is_some_and(|service| service.namespace().as_deref() == Some("alpha")));
        assert!(services.at(2).is_none());

        assert!(cluster::get("nodepools.apps.openyurt.io", None, "old").is_none(), "in a version that is not declared");
        assert_eq!(cluster::find("nodepools.apps.openyurt.io", None, "").column(&NODES).len(), 2);
        object.set(&TYPE, Value::Null)
    }
}

fn environment() -> Environment {
    let objects = [
        r#"{"apiVersion":"v1","kind":"Node","metadata":{"name":"edge-1","labels":{"zone":"z"}},"spec":{"podCIDR":"c"}}"#,
        r#"{"apiVersion":"v1","kind":"Node","metadata":{"name":"edge-2"}}"#,
        r#"{"apiVersion":"v1","kind":"Service","metadata":{"name":"a","namespace":"default","labels":{"tier":"front","on":"edge-1"}}}"#,
        r#"{"apiVersion":"v1","kind":"Service","metadata":{"name":"b","namespace":"alpha","labels":{"tier":"front"}}}"#,
        r#"{"apiVersion":"v1","kind":"Service","metadata":{"name":"c","namespace":"default","labels":{"tier":"back"}}}"#,
        r#"{"apiVersion":"apps.openyurt.io/v1beta2","kind":"NodePool","metadata":{"name":"p"},"status":{"nodes":["x","y"]}}"#,
        r#"{"apiVersion":"apps.openyurt.io/v1alpha1","kind":"NodePool","metadata":{"name":"old"},"spec":{}}"#,
    ];
    let cluster = objects.map(|json| Document::json(Bytes::from_static(json.as_bytes()))).to_vec();
    Environment { node: Node { name: "edge-1".to_owned(), ..Node::default() }, cluster }
}

const SERVICE: &[u8] = br#"{"apiVersion":"v1","kind":"Service","metadata":{"name":"a"},"spec":{"type":"NodePort"}}"#;

fn run_on(act: &str, input: &'static [u8]) -> (Result<Verdict, NativeError>, Bytes) {
    let mut document = Document::json(Bytes::from_static(input));
    let outcome = Runner::<Actor>::new(&format!(r#"{{"act":"{act}"}}"#), &environment())
        .and_then(|runner| runner.filter(&mut document));
    (outcome, document.bytes().clone())
}

fn run(act: &str) -> (Result<Verdict, NativeError>, Bytes) {
    run_on(act, SERVICE)
}

#[test]
fn an_undeclared_lookup_fails_the_call() {
    let (outcome, bytes) = run("askUndeclared");
    assert!(matches!(outcome, Err(NativeError::Misuse(message)) if message.contains("no lookup of pods")));
    assert_eq!(bytes, SERVICE);
}

#[test]
fn a_lookup_in_configure_refuses_the_filter() {
    let outcome = Runner::<Actor>::new(r#"{"act":"askInConfigure"}"#, &environment());
    assert!(
        matches!(outcome.err(), Some(NativeError::Misuse(message)) if message.contains("while a filter is configured"))
    );
}

#[test]
fn an_object_that_was_looked_up_refuses_edits() {
    assert!(matches!(run("editFound").0, Err(NativeError::Filter(message)) if message.contains("looked-up")));
}

#[test]
fn protected_fields_refuse_edits() {
    assert!(matches!(run("editProtected").0, Err(NativeError::Filter(message)) if message.contains("protected")));
    assert!(matches!(run("replaceProtected").0, Err(NativeError::Filter(message)) if message.contains("protected")));
}

#[test]
fn a_filter_that_fails_leaves_the_object_as_it_was() {
    let (outcome, bytes) = run("editThenFail");
    assert!(matches!(outcome, Err(NativeError::Filter(message)) if message == "on purpose"));
    assert_eq!(bytes, SERVICE);
}

#[test]
fn a_wildcard_where_one_value_is_read_fails_the_call() {
    assert!(matches!(run("wildcardText").0, Err(NativeError::Document(_))));
}

#[test]
fn a_malformed_object_fails_the_call() {
    let (outcome, _) = run_on("editThenFail", br#"{"spec":{"type":"a","type":"b"}}"#);
    assert!(outcome.is_err());
}

#[test]
fn references_are_followed_within_the_namespace_and_out_of_it() {
    const REFERS: &[u8] = br#"{"metadata":{"name":"x","namespace":"default","labels":{"front":"a"}},"spec":{"ports":[{"name":"http"},{"name":"b"},{}]}}"#;
    let (outcome, bytes) = run_on("follow", REFERS);
    assert_eq!(outcome.unwrap(), Verdict::Keep);
    assert_eq!(
        bytes,
        r#"{"metadata":{"name":"x","namespace":"default","labels":{"front":"a"}},"spec":{"ports":[{"name":"http"}]}}"#
    );
}

#[test]
fn lookups_return_declared_objects_only() {
    let (outcome, bytes) = run("readFound");
    assert!(matches!(outcome, Ok(Verdict::Keep)), "{outcome:?}");
    assert!(bytes.ends_with(br#""spec":{"type":null}}"#), "{bytes:?}");
}

#[test]
fn an_unedited_object_keeps_its_bytes() {
    let (outcome, bytes) = run("keep");
    assert!(matches!(outcome, Ok(Verdict::Keep)));
    assert_eq!(bytes.as_ptr(), SERVICE.as_ptr());
}
