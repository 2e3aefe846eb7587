//! A changing cluster, which filters look up objects in.

use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use weir_document::Document;
use weir_kube::LabelSelector;
use weir_runtime::{ClusterView, Endpoint, Snapshot};
use weir_spec::{CachedObject, InterfaceAddress, LookupSpec, Selection};

use super::rng::Rng;

pub(crate) const NODE: &str = "edge-a";
pub(crate) const NAMESPACES: &[&str] = &["team", "default"];
pub(crate) const SERVICES: &[&str] = &["web", "db", "kubernetes"];
pub(crate) const NODES: &[&str] = &["edge-a", "edge-b", "cloud-a"];
pub(crate) const POOLS: &[&str] = &["hangzhou", "beijing"];
const KEYS: &[&str] = &[
    "kubernetes.io/hostname",
    "openyurt.io/nodepool",
    "kubernetes.io/hostname, openyurt.io/nodepool, *",
    "openyurt.io/nodepool,*",
    "unknown",
];

/// An object of the cluster: resource, namespace and name.
pub(crate) type Changed = (&'static str, &'static str, &'static str);

/// Clones share the state.
#[derive(Debug, Clone)]
pub(crate) struct Cluster(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    objects: Vec<(Changed, Option<Value>)>,
    now: Arc<Version>,
    events: Arc<Events>,
}

/// Events during lookups.
#[derive(Debug, Default)]
struct Events {
    change: Mutex<Option<(Cluster, Changed)>>,
    stall: Mutex<Duration>,
    /// What each `find` over thousands of objects waits for.
    long: Mutex<Option<Receiver<()>>>,
}

/// The state of the cluster at one moment.
#[derive(Debug)]
struct Version {
    number: u64,
    objects: Vec<(Changed, Arc<CachedObject>)>,
    addresses: Arc<[InterfaceAddress]>,
    events: Arc<Events>,
}

impl Cluster {
    pub(crate) fn new(rng: &mut Rng) -> Self {
        let mut objects: Vec<(Changed, Option<Value>)> = Vec::new();
        for namespace in NAMESPACES {
            for name in SERVICES {
                objects.push((("services", namespace, name), None));
            }
            objects.push((("endpointslices.discovery.k8s.io", namespace, "web-1"), None));
        }
        objects.extend(NODES.iter().map(|name| (("nodes", "", *name), None)));
        objects.extend(POOLS.iter().map(|name| (("nodepools.apps.openyurt.io", "", *name), None)));
        for (key, value) in &mut objects {
            *value = object(*key, rng);
        }
        let events = Arc::<Events>::default();
        let now = Arc::new(Version::new(0, &objects, &events));
        Self(Arc::new(Mutex::new(State { objects, now, events })))
    }

    /// Creates a cluster in which every object exists.
    pub(crate) fn complete() -> Self {
        let cluster = Self::new(&mut Rng::new(1));
        let mut rng = Rng::new(1);
        let mut state = cluster.0.lock().unwrap();
        for (key, value) in &mut state.objects {
            while value.is_none() {
                *value = object(*key, &mut rng);
            }
        }
        state.publish();
        drop(state);
        cluster
    }

    /// Changes an object during the next lookup, which still returns the old state.
    pub(crate) fn change_in_next_lookup(&self, changed: Changed) {
        *self.0.lock().unwrap().events.change.lock().unwrap() = Some((self.clone(), changed));
    }

    /// Makes every `find` take this long.
    pub(crate) fn stall(&self, time: Duration) {
        *self.0.lock().unwrap().events.stall.lock().unwrap() = time;
    }

    /// Makes the cluster one of thousands of objects, and every `find` wait for a message.
    pub(crate) fn find_waits_for(&self, message: Receiver<()>) {
        *self.0.lock().unwrap().events.long.lock().unwrap() = Some(message);
    }

    /// Changes some objects.
    pub(crate) fn change(&self, rng: &mut Rng) -> Vec<Changed> {
        let mut state = self.0.lock().unwrap();
        let mut changed = Vec::new();
        for _ in 0..=rng.below(3) {
            let at = rng.below(state.objects.len());
            let (key, value) = &mut state.objects[at];
            *value = object(*key, rng);
            changed.push(*key);
        }
        state.publish();
        changed
    }
}

impl State {
    fn publish(&mut self) {
        self.now = Arc::new(Version::new(self.now.number + 1, &self.objects, &self.events));
    }
}

impl Events {
    fn happen(&self) {
        let Some((cluster, changed)) = self.change.lock().unwrap().take() else { return };
        let mut state = cluster.0.lock().unwrap();
        let (_, value) = state.objects.iter_mut().find(|(key, _)| *key == changed).unwrap();
        value.as_mut().unwrap()["status"]["nodes"] = json!(["new"]);
        state.publish();
    }
}

/// Returns one of the states of an object, or none if it does not exist.
fn object((resource, namespace, name): Changed, rng: &mut Rng) -> Option<Value> {
    if rng.one_in(6) {
        return None;
    }
    let mut metadata =
        json!({"name": name, "resourceVersion": rng.next().to_string(), "labels": {}, "annotations": {}});
    if !namespace.is_empty() {
        metadata["namespace"] = json!(namespace);
    }
    if rng.one_in(2) {
        metadata["labels"]["apps.openyurt.io/nodepool"] = json!(rng.pick(POOLS));
    }
    if rng.one_in(2) {
        metadata["annotations"]["openyurt.io/topologyKeys"] = json!(rng.pick(KEYS));
    }
    let nodes: Vec<_> = NODES.iter().filter(|_| rng.one_in(2)).collect();
    Some(match resource {
        "services" => json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata,
            "spec": {"type": "ClusterIP", "selector": {"app": rng.pick(SERVICES)}}}),
        "nodes" => json!({"apiVersion": "v1", "kind": "Node", "metadata": metadata}),
        "nodepools.apps.openyurt.io" => json!({"apiVersion": "apps.openyurt.io/v1beta2", "kind": "NodePool",
            "metadata": metadata, "status": {"nodes": nodes}}),
        _ => {
            metadata["labels"]["kubernetes.io/service-name"] = json!("web");
            let endpoints: Vec<_> = nodes
                .iter()
                .map(|node| {
                    json!({"addresses": ["10.0.0.1"], "nodeName": node,
                "conditions": {"ready": rng.one_in(2)}})
                })
                .collect();
            json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": metadata,
                "addressType": "IPv4", "endpoints": endpoints})
        }
    })
}

impl Version {
    fn new(number: u64, objects: &[(Changed, Option<Value>)], events: &Arc<Events>) -> Self {
        let cached = |value: &Value| Arc::new(CachedObject::new(Document::json(value.to_string().into())));
        let mut objects: Vec<_> =
            objects.iter().filter_map(|(key, value)| Some((*key, cached(value.as_ref()?)))).collect();
        objects.sort_by_key(|(key, _)| *key);
        let address = InterfaceAddress {
            interface_name: "eth0".to_owned(),
            ip: "10.0.0.7".parse().unwrap(),
            prefix_length: 24,
            default_route: true,
        };
        Self { number, objects, addresses: Arc::new([address]), events: events.clone() }
    }

    /// Returns the objects of a lookup.
    fn of(&self, lookup: &LookupSpec) -> impl Iterator<Item = &(Changed, Arc<CachedObject>)> {
        let (resource, name) = (lookup.resource.to_string(), lookup.name.clone());
        let selector = lookup.label_selector.as_deref().map(|text| LabelSelector::parse(text).unwrap());
        self.objects.iter().filter(move |((of, _, named), object)| {
            *of == resource
                && name.as_ref().is_none_or(|name| name == named)
                && selector.as_ref().is_none_or(|selector| selects(selector, object))
        })
    }
}

fn selects(selector: &LabelSelector, object: &CachedObject) -> bool {
    selector.matches(|label| object.document().label(label).ok().flatten())
}

impl ClusterView for Cluster {
    fn snapshot(&self) -> Arc<dyn Snapshot> {
        self.0.lock().unwrap().now.clone()
    }

    fn version(&self) -> u64 {
        self.0.lock().unwrap().now.number
    }

    fn node_name(&self) -> &str {
        NODE
    }

    fn secure_endpoint(&self) -> Option<Endpoint> {
        Some(Endpoint { host: "10.0.0.9".to_owned(), port: 9443 })
    }
}

impl Snapshot for Version {
    fn version(&self) -> u64 {
        self.number
    }

    fn get(&self, lookup: &LookupSpec, namespace: Option<&str>, name: &str) -> Option<Arc<CachedObject>> {
        self.events.happen();
        let wanted = (namespace.unwrap_or_default(), name);
        self.of(lookup)
            .find(|((_, namespace, name), _)| (*namespace, *name) == wanted)
            .map(|(_, object)| object.clone())
    }

    fn find(
        &self,
        lookup: &LookupSpec,
        namespace: Option<&str>,
        label_selector: &str,
    ) -> Result<Arc<Selection>, String> {
        // It computes: a call is not charged for time in which its thread does not run.
        let (began, stall) = (Instant::now(), *self.events.stall.lock().unwrap());
        while began.elapsed() < stall {
            std::hint::spin_loop();
        }
        if let Some(message) = &*self.events.long.lock().unwrap() {
            message.recv_timeout(Duration::from_secs(5)).map_err(|_| "nothing else went on".to_owned())?;
        }
        let selector = LabelSelector::parse(label_selector).map_err(|error| error.to_string())?;
        let wanted = |((_, of, _), object): &&(Changed, Arc<CachedObject>)| {
            namespace.is_none_or(|namespace| namespace == *of) && selects(&selector, object)
        };
        Ok(Arc::new(Selection::new(self.of(lookup).filter(wanted).map(|(_, object)| object.clone()).collect())))
    }

    fn count(&self, lookup: &LookupSpec) -> usize {
        let is_large = self.events.long.lock().unwrap().is_some();
        if is_large { 10_000 } else { self.of(lookup).count() }
    }

    fn objects_to_read(&self, lookup: &LookupSpec, _namespace: Option<&str>, _label_selector: &str) -> usize {
        self.count(lookup)
    }

    fn addresses(&self) -> Arc<[InterfaceAddress]> {
        self.addresses.clone()
    }
}
