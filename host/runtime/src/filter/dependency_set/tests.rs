use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::json;

use super::*;
use crate::testing::Fixed;
use crate::{Dependency, Endpoint};
use weir_spec::{CachedObject, InterfaceAddress, LookupSpec, Selection};

/// A view whose objects change on demand. Each version is a [`Fixed`] of its own.
#[derive(Debug)]
struct Changing {
    now: Mutex<Arc<Version>>,
    asked: Arc<AtomicU64>,
}

#[derive(Debug)]
struct Version {
    number: u64,
    objects: Arc<dyn Snapshot>,
    asked: Arc<AtomicU64>,
}

fn service(name: &str, value: &str) -> serde_json::Value {
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": "team"}, "x": value})
}

impl Changing {
    fn new(objects: Vec<serde_json::Value>) -> Self {
        let asked = Arc::new(AtomicU64::new(0));
        Self { now: Mutex::new(Version::new(0, objects, &asked)), asked }
    }

    fn set(&self, objects: Vec<serde_json::Value>) {
        let mut now = self.now.lock().unwrap();
        *now = Version::new(now.number + 1, objects, &self.asked);
    }

    fn asked(&self) -> u64 {
        self.asked.swap(0, Ordering::Relaxed)
    }
}

impl Version {
    fn new(number: u64, objects: Vec<serde_json::Value>, asked: &Arc<AtomicU64>) -> Arc<Self> {
        let objects = Fixed::new(objects).snapshot();
        Arc::new(Self { number, objects, asked: asked.clone() })
    }
}

impl ClusterView for Changing {
    fn snapshot(&self) -> Arc<dyn Snapshot> {
        self.now.lock().unwrap().clone()
    }

    fn version(&self) -> u64 {
        self.now.lock().unwrap().number
    }

    fn node_name(&self) -> &'static str {
        "node"
    }

    fn secure_endpoint(&self) -> Option<Endpoint> {
        None
    }
}

impl Snapshot for Version {
    fn version(&self) -> u64 {
        self.number
    }

    fn get(&self, lookup: &LookupSpec, namespace: Option<&str>, name: &str) -> Option<Arc<CachedObject>> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        self.objects.get(lookup, namespace, name)
    }

    fn find(
        &self,
        lookup: &LookupSpec,
        namespace: Option<&str>,
        label_selector: &str,
    ) -> Result<Arc<Selection>, String> {
        self.objects.find(lookup, namespace, label_selector)
    }

    fn addresses(&self) -> Arc<[InterfaceAddress]> {
        self.objects.addresses()
    }
}

/// Simulates the calls of one filter.
struct Calls {
    view: Arc<Changing>,
    set: DependencySet,
    lookup: Arc<LookupSpec>,
}

impl Calls {
    fn new(objects: Vec<serde_json::Value>) -> Self {
        Self {
            view: Arc::new(Changing::new(objects)),
            set: DependencySet::default(),
            lookup: Arc::new(LookupSpec::all("services".parse().unwrap())),
        }
    }

    fn object(&self, name: &str) -> Dependency {
        let at = Some(weir_document::Path::parse("x").unwrap());
        Dependency::Object { lookup: self.lookup.clone(), namespace: Some("team".into()), name: name.into(), at }
    }

    /// Returns the dependencies of a call with a snapshot.
    fn read(&self, name: &str, snapshot: &Arc<dyn Snapshot>) -> Dependencies {
        let dependency = self.object(name);
        let value = dependency.value(&**snapshot);
        Dependencies::test(snapshot.clone(), vec![(dependency, value)])
    }

    fn call(&self, name: &str) {
        self.set.store(&self.read(name, &self.view.snapshot()), &*self.view);
    }

    async fn validate(&self, changes: impl FnOnce(&mut ChangeSet)) -> bool {
        let mut set = ChangeSet::default();
        changes(&mut set);
        self.set.validate(&*self.view.snapshot(), &set).await
    }
}

#[tokio::test]
async fn a_change_is_relevant_if_a_read_value_differs() {
    let calls = Calls::new(vec![service("a", "1"), service("b", "1")]);
    calls.call("a");
    let generation = calls.set.generation();
    calls.view.set(vec![service("a", "1"), service("b", "2")]);
    assert!(!calls.validate(|changes| changes.add_object(&calls.lookup, "team", "b")).await);
    assert!(!calls.validate(|changes| changes.add_lookup(&calls.lookup)).await);
    assert_eq!(calls.set.generation(), generation);
    calls.view.set(vec![service("a", "2"), service("b", "2")]);
    assert!(!calls.validate(|changes| changes.add_addresses()).await, "no address was read");
    assert!(calls.validate(|changes| changes.add_object(&calls.lookup, "team", "a")).await);
    assert!(calls.set.generation() > generation && calls.set.is_empty());
}

/// An object changes during a call, and the change is validated before the call's dependencies are stored.
#[tokio::test]
async fn dependencies_of_an_older_snapshot_are_validated_when_they_are_stored() {
    let calls = Calls::new(vec![service("a", "1"), service("b", "1")]);
    let stalled = calls.view.snapshot();
    calls.view.set(vec![service("a", "2"), service("b", "1")]);
    assert!(!calls.validate(|changes| changes.add_object(&calls.lookup, "team", "a")).await, "nothing was stored yet");
    let generation = calls.set.generation();
    calls.set.store(&calls.read("b", &stalled), &*calls.view);
    assert_eq!(calls.set.generation(), generation, "the value is still the same");
    calls.set.store(&calls.read("a", &stalled), &*calls.view);
    assert!(calls.set.generation() > generation, "the stalled call's outcome is out of date");
}

#[tokio::test]
async fn two_calls_that_read_different_values_invalidate_the_first() {
    let calls = Calls::new(vec![service("a", "1")]);
    calls.call("a");
    let generation = calls.set.generation();
    calls.view.set(vec![service("a", "2")]);
    calls.call("a");
    assert!(calls.set.generation() > generation);
    assert_eq!(calls.set.len(), 1, "the second one's value is stored");
}

#[tokio::test]
async fn a_call_that_invalidates_an_earlier_one_keeps_all_its_dependencies() {
    let calls = Calls::new(vec![service("a", "1"), service("b", "1")]);
    calls.call("b");
    calls.view.set(vec![service("a", "1"), service("b", "2")]);
    let snapshot = calls.view.snapshot();
    let both = ["a", "b"].map(|name| (calls.object(name), calls.object(name).value(&*snapshot)));
    calls.set.store(&Dependencies::test(snapshot.clone(), both.into()), &*calls.view);
    assert_eq!(calls.set.len(), 2);
    calls.view.set(vec![service("a", "2"), service("b", "2")]);
    assert!(calls.validate(|changes| changes.add_object(&calls.lookup, "team", "a")).await);
}

#[tokio::test]
async fn a_change_validates_the_affected_dependencies_only_and_locks_for_chunks() {
    const OBJECTS: usize = 20_000;
    let calls = Calls::new((0..4).map(|n| service(&format!("s-{n}"), "1")).collect());
    let snapshot = calls.view.snapshot();
    let all: Vec<_> = (0..OBJECTS).map(|n| (calls.object(&format!("s-{n}")), u64::from(n < 4))).collect();
    let all = all.into_iter().map(|(dependency, _)| (dependency.clone(), dependency.value(&*snapshot))).collect();
    calls.set.store(&Dependencies::test(snapshot.clone(), all), &*calls.view);
    calls.view.asked();
    assert!(!calls.validate(|changes| changes.add_object(&calls.lookup, "team", "s-7")).await);
    assert_eq!(calls.view.asked(), 1, "one object has changed");
    let began = std::time::Instant::now();
    assert!(!calls.validate(|changes| changes.add_lookup(&calls.lookup)).await);
    assert_eq!(calls.view.asked(), OBJECTS as u64);
    println!("validated {OBJECTS} dependencies in {:?}", began.elapsed());
    let (table, changes) = (calls.set.lock(), {
        let mut changes = ChangeSet::default();
        changes.add_everything();
        changes
    });
    let mut scan = table.concerned(&changes).unwrap();
    let (mut chunks, mut longest) = (0, std::time::Duration::ZERO);
    loop {
        let began = std::time::Instant::now();
        let Some(chunk) = table.chunk(&mut scan, CHUNK) else { break };
        longest = longest.max(began.elapsed());
        assert!(chunk.len() <= CHUNK);
        chunks += 1;
    }
    assert_eq!(chunks, OBJECTS.div_ceil(CHUNK));
    println!("the lock was held for {longest:?} at most");
}

#[tokio::test]
async fn beyond_the_bound_every_change_is_relevant() {
    let calls = Calls::new(Vec::new());
    let snapshot = calls.view.snapshot();
    let all = (0..=DEPENDENCIES).map(|n| (calls.object(&n.to_string()), 0)).collect();
    calls.set.store(&Dependencies::test(snapshot, all), &*calls.view);
    assert_eq!(calls.set.len(), DEPENDENCIES);
    assert!(calls.validate(|changes| changes.add_object(&calls.lookup, "team", "other")).await);
    assert!(calls.set.is_empty());
}
