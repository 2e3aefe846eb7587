//! The same filter twice with the same cluster: once with replay, once with a call for each object.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use serde_json::Value;
use weir_document::{Document, TypeMeta};
use weir_kube::{FILTER_EDITS, GroupResource, VerbClass};
use weir_runtime::{
    Chain, ChangeSet, ClusterView, Engine, Filter, FilterSet, Loader, LookupSource, Lookups, Outcome, RuntimeMetrics,
};
use weir_spec::{Digest, FilterEntry, LookupSpec};

use super::cluster::{Changed, Cluster};

/// The engine and the modules, which all cases share.
pub(crate) struct Parts {
    engine: Engine,
    modules: Mutex<HashMap<String, (Bytes, Arc<Loader>)>>,
    /// The view of the current case. The loaders of modules are shared, because they keep the code.
    source: Arc<Source>,
    pub(crate) metrics: Arc<RuntimeMetrics>,
}

/// The lookups in the cluster of the current case.
#[derive(Debug, Default)]
struct Source {
    cluster: Mutex<Option<Cluster>>,
    lookups: Mutex<Vec<Arc<LookupSpec>>>,
}

/// Both filters as chains, and the number of replays before the case.
pub(crate) struct Pair {
    replaying: (Arc<Filter>, Chain),
    calling: (Arc<Filter>, Chain),
    cluster: Cluster,
    lookups: Vec<Arc<LookupSpec>>,
    metrics: Arc<RuntimeMetrics>,
    before: u64,
}

impl LookupSource for Source {
    fn view(&self) -> Arc<dyn ClusterView> {
        Arc::new(self.cluster.lock().unwrap().clone().unwrap())
    }

    fn follow(&self, lookups: Vec<Arc<LookupSpec>>) -> BoxFuture<'static, Result<Lookups, String>> {
        *self.lookups.lock().unwrap() = lookups;
        Box::pin(std::future::ready(Ok(Box::new(()) as Lookups)))
    }
}

impl Parts {
    pub(crate) fn new() -> Self {
        Self {
            engine: Engine::new(None).unwrap(),
            modules: Mutex::default(),
            source: Arc::default(),
            metrics: Arc::default(),
        }
    }

    fn module(&self, name: &str) -> (Bytes, Arc<Loader>) {
        let mut modules = self.modules.lock().unwrap();
        let made = modules.entry(name.to_owned()).or_insert_with(|| {
            let path = built(name);
            let loader = Loader::new(self.engine.clone(), None, self.source.clone(), self.metrics.clone(), 2);
            (std::fs::read(path).unwrap().into(), Arc::new(loader))
        });
        made.clone()
    }

    /// Loads a filter that reads a cluster.
    pub(crate) async fn filter(&self, cluster: &Cluster, name: &str, settings: &str) -> Arc<Filter> {
        // Time depends on the machine.
        self.filter_within(cluster, name, settings, "10s").await
    }

    /// Loads a filter that reads a cluster, with a time limit.
    pub(crate) async fn filter_within(&self, cluster: &Cluster, name: &str, settings: &str, time: &str) -> Arc<Filter> {
        *self.source.cluster.lock().unwrap() = Some(cluster.clone());
        let (module, loader) = self.module(name);
        let Ok(Value::Object(settings)) = serde_json::from_str(settings) else { panic!("{settings}") };
        let mut entry = FilterEntry::of(name.parse().unwrap(), Some(vec!["*/*".parse().unwrap()]));
        entry.settings = settings;
        entry.limits.time = time.parse().unwrap();
        Arc::new(loader.load(&entry, "test".to_owned(), Digest::of(&module), &module, || {}).await.unwrap())
    }

    /// Returns the lookups of the filter that was loaded last.
    pub(crate) fn lookups(&self) -> Vec<Arc<LookupSpec>> {
        self.source.lookups.lock().unwrap().clone()
    }
}

/// Returns the path of a built module. The test's own program is `<target>/release/deps/replay`.
fn built(name: &str) -> PathBuf {
    let program = std::env::current_exe().unwrap();
    let release = program.ancestors().find(|folder| folder.ends_with("release")).unwrap();
    let target = release.parent().unwrap();
    let folder = if name == "guest" { target.to_owned() } else { target.join("modules") };
    let path = folder.join(format!("{name}.wasm"));
    assert!(path.exists(), "{} is not there: run `make modules` first (`make test` does)", path.display());
    path
}

/// Returns the chain of one filter.
pub(crate) fn chain(filter: &Arc<Filter>) -> Chain {
    let set = FilterSet::new(vec![filter.clone()]);
    set.chain("test", &GroupResource::new("services", ""), VerbClass::Read).unwrap()
}

/// Returns the changes to validate dependencies for.
pub(crate) fn changes(lookups: &[Arc<LookupSpec>], changed: &[Changed]) -> ChangeSet {
    let mut changes = ChangeSet::default();
    for (resource, namespace, name) in changed {
        for lookup in lookups.iter().filter(|lookup| lookup.resource.to_string() == *resource) {
            changes.add_object(lookup, namespace, name);
        }
    }
    changes
}

impl Pair {
    pub(crate) async fn load(parts: &Parts, cluster: &Cluster, filter: &str, settings: &str) -> Self {
        let (replaying, calling) =
            (parts.filter(cluster, filter, settings).await, parts.filter(cluster, filter, settings).await);
        calling.disable_replay();
        let (lookups, metrics) = (parts.lookups(), parts.metrics.clone());
        let before = replayed(&metrics);
        let with_chain = |filter: Arc<Filter>| {
            let chain = chain(&filter);
            (filter, chain)
        };
        let (replaying, calling) = (with_chain(replaying), with_chain(calling));
        Self { replaying, calling, cluster: cluster.clone(), lookups, metrics, before }
    }

    /// Filters a batch by both and compares the outcomes.
    pub(crate) async fn compare(&self, batch: Vec<Document>, seed: u64, round: usize) {
        let expected: Vec<_> = self.calling.1.run(batch.clone()).await.into_iter().collect();
        let outcomes: Vec<_> = self.replaying.1.run(batch.clone()).await.into_iter().collect();
        for ((expected, outcome), object) in expected.iter().zip(&outcomes).zip(&batch) {
            assert_eq!(
                shown(outcome),
                shown(expected),
                "seed {seed}, round {round}: replayed, then called, on {}",
                String::from_utf8_lossy(object.bytes())
            );
            if let Outcome::Edited(edited) = outcome {
                assert_protected_fields_are_the_same(object, edited.clone(), seed);
            }
        }
        self.compare_dependencies(seed, round);
    }

    /// Validates the dependencies of both after a change.
    pub(crate) async fn validate(&self, changed: &[Changed], seed: u64, round: usize) {
        let changes = changes(&self.lookups, changed);
        let snapshot = self.cluster.snapshot();
        let replaying = self.replaying.0.validate_dependencies(&*snapshot, &changes).await;
        let calling = self.calling.0.validate_dependencies(&*snapshot, &changes).await;
        assert_eq!(replaying, calling, "seed {seed}, round {round}: whether {changed:?} counts");
        self.compare_dependencies(seed, round);
    }

    /// Returns the number of replayed objects.
    pub(crate) fn replayed(&self) -> u64 {
        replayed(&self.metrics) - self.before
    }

    fn compare_dependencies(&self, seed: u64, round: usize) {
        let (replaying, calling) = (self.replaying.0.dependencies(), self.calling.0.dependencies());
        assert_eq!(replaying, calling, "seed {seed}, round {round}: dependencies of replays and of calls");
    }
}

/// Whatever a program edits, and by whichever path.
fn assert_protected_fields_are_the_same(object: &Document, edited: Bytes, seed: u64) {
    let edited = if object.is_protobuf() {
        let (api_version, kind) = (object.api_version().unwrap().into_owned(), object.kind().unwrap().into_owned());
        Document::protobuf(edited, Arc::new(TypeMeta { api_version, kind })).unwrap()
    } else {
        Document::json(edited)
    };
    for field in FILTER_EDITS.protected {
        // What cannot be read before cannot be read after.
        let value = |document: &Document| document.deserialize_at::<Value>(field).ok();
        assert_eq!(value(&edited), value(object), "seed {seed}: {field} is protected");
    }
}

/// Returns an outcome in the form that is compared. Handle numbers and code positions differ between instances.
fn shown(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Unchanged => "unchanged".to_owned(),
        Outcome::Hidden => "hidden".to_owned(),
        Outcome::Edited(bytes) => format!("edited: {bytes:?}"),
        Outcome::Failed(failure) => {
            let message: String = failure.message.chars().filter(|letter| !letter.is_ascii_digit()).collect();
            format!("failed ({}): {message}", failure.class.label())
        }
    }
}

impl Parts {
    /// Returns the sum of a metric's series.
    pub(crate) fn metric(&self, name: &str) -> u64 {
        sum(&self.metrics, name)
    }
}

/// Returns the number of objects that all filters have replayed.
pub(crate) fn replayed(metrics: &RuntimeMetrics) -> u64 {
    sum(metrics, "weir_filter_replayed_total")
}

fn sum(metrics: &RuntimeMetrics, name: &str) -> u64 {
    let mut registry = Registry::default();
    metrics.register(&mut registry);
    let mut text = String::new();
    encode(&mut text, &registry).unwrap();
    let lines = text.lines().filter(|line| line.starts_with(name));
    lines.filter_map(|line| line.rsplit_once(' ')?.1.parse::<u64>().ok()).sum()
}
