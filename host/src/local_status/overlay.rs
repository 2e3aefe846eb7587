//! The reports of pods, as the filter lays them over documents.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use serde_json::Value;
use weir_document::{Document, Error, Path, path};

use super::endpoints::{PodReport, edit_endpoints, edit_pod, edit_slice};

/// The label of an EndpointSlice with the name of its Service.
const SERVICE_NAME: &str = "kubernetes.io/service-name";

/// Where objects of one kind name pods and their nodes.
struct References {
    pods: Path,
    nodes: Path,
}

static OF_SLICES: [References; 1] =
    [References { pods: path!("endpoints[*].targetRef.uid"), nodes: path!("endpoints[*].nodeName") }];
static OF_ENDPOINTS: [References; 2] = [
    References {
        pods: path!("subsets[*].addresses[*].targetRef.uid"),
        nodes: path!("subsets[*].addresses[*].nodeName"),
    },
    References {
        pods: path!("subsets[*].notReadyAddresses[*].targetRef.uid"),
        nodes: path!("subsets[*].notReadyAddresses[*].nodeName"),
    },
];
static OF_PODS: [References; 1] = [References { pods: path!("metadata.uid"), nodes: path!("spec.nodeName") }];

/// Where a document names pods. None in other kinds than these three.
fn references(document: &Document) -> Result<&'static [References], Error> {
    Ok(match &*document.kind()? {
        "EndpointSlice" => &OF_SLICES,
        "Endpoints" => &OF_ENDPOINTS,
        "Pod" => &OF_PODS,
        _ => &[],
    })
}

/// Whose word on which pod it is: a peer may name pods of other nodes, and none of their own words may give way to it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct PodKey {
    /// The node that reports the pod. Objects that bind it to another node are left alone.
    pub(super) node: Arc<str>,
    pub(super) uid: Arc<str>,
}

/// The report of one pod by one node.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct OverlaidPod {
    pub(super) node: Arc<str>,
    /// Whether this node has the pod. An endpoint that names no node is one of it, as far as its peers can know.
    pub(super) is_own: bool,
    pub(super) report: PodReport,
    /// Objects of later versions are left alone: at this one, the API server says what the report says.
    pub(super) until: Option<u64>,
}

/// Reports by the uid of the pod, and the nodes whose other pods are not ready.
#[derive(Debug, Default, Clone, PartialEq)]
pub(super) struct Overlay {
    pods: HashMap<Arc<str>, Vec<OverlaidPod>>,
    silent: BTreeSet<Arc<str>>,
}

/// Whether a Service, by namespace and name, publishes the addresses of pods that are not ready.
pub(super) type PublishesNotReady<'a> = &'a dyn Fn(&str, &str) -> bool;

impl FromIterator<(Arc<str>, OverlaidPod)> for Overlay {
    fn from_iter<I: IntoIterator<Item = (Arc<str>, OverlaidPod)>>(pods: I) -> Self {
        let mut overlay = Self::default();
        for (uid, pod) in pods {
            overlay.pods.entry(uid).or_default().push(pod);
        }
        overlay
    }
}

impl Overlay {
    /// Adds nodes whose other pods are not ready.
    pub(super) fn with_silent(self, silent: BTreeSet<Arc<str>>) -> Self {
        Self { silent, ..self }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pods.is_empty() && self.silent.is_empty()
    }

    /// The overlay of one of its reports.
    pub(super) fn only(&self, PodKey { node, uid }: &PodKey) -> Self {
        let reports = self.pods.get(uid).into_iter().flatten().filter(|pod| pod.node == *node);
        reports.map(|pod| (uid.clone(), pod.clone())).collect()
    }

    /// The reports of this overlay on pods that a document refers to.
    pub(super) fn pods_in(&self, document: &Document) -> Result<Vec<PodKey>, Error> {
        let mut found = Vec::new();
        for References { pods, .. } in references(document)? {
            let column = document.column(pods)?;
            for (uid, reports) in column.iter().flatten().filter_map(|uid| self.pods.get_key_value(uid)) {
                found.extend(reports.iter().map(|pod| PodKey { node: pod.node.clone(), uid: uid.clone() }));
            }
        }
        Ok(found)
    }

    /// Whether a document names one of the silent nodes.
    fn names_silent(&self, document: &Document) -> Result<bool, Error> {
        if self.silent.is_empty() {
            return Ok(false);
        }
        for References { nodes, .. } in references(document)? {
            if document.column(nodes)?.iter().flatten().any(|node| self.silent.contains(node)) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Lays the reports over a document. A document without any of the pods stays as it is.
    ///
    /// # Errors
    /// The document is malformed. It stays as it is.
    pub(super) fn apply(&self, document: &mut Document, publishes: PublishesNotReady<'_>) -> Result<(), Error> {
        let pods = self.pods_in(document)?;
        if pods.is_empty() && !self.names_silent(document)? {
            return Ok(());
        }
        let version = document.resource_version()?.and_then(|version| version.parse::<u64>().ok()).unwrap_or_default();
        let find = |uid: &str, node: Option<&str>| {
            let is_bound = |pod: &&OverlaidPod| node.map_or(pod.is_own, |node| *node == *pod.node);
            let Some(pod) = self.pods.get(uid).and_then(|reports| reports.iter().find(is_bound)) else {
                return node.filter(|node| self.silent.contains(*node)).map(|_| &PodReport::Awaited);
            };
            let is_later = pod.until.is_some_and(|until| version > until);
            (!is_later).then_some(&pod.report)
        };
        let before: Value = document.deserialize_at(&path!("$"))?.unwrap_or_default();
        let mut after = before.clone();
        let namespace = document.namespace()?.unwrap_or_default().into_owned();
        match &*document.kind()? {
            "EndpointSlice" => {
                let service = document.label(SERVICE_NAME)?.unwrap_or_default();
                edit_slice(&mut after, &find, publishes(&namespace, &service));
            }
            "Endpoints" => edit_endpoints(&mut after, &find, publishes(&namespace, &document.name()?)),
            _ => {
                let node = before.pointer("/spec/nodeName").and_then(Value::as_str);
                if let Some(report) = pods.first().and_then(|pod| find(&pod.uid, node)) {
                    edit_pod(&mut after, report);
                }
            }
        }
        if after != before {
            document.replace(&after.to_string())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use weir_document::TypeMeta;
    use weir_document::protobuf::from_json;

    use super::*;

    fn overlay(until: Option<u64>) -> Overlay {
        let report = PodReport::Reported(
            serde_json::from_value(json!({
                "addresses": ["10.0.0.9"], "phase": "Running", "conditions": [{"type": "Ready", "status": "True"}],
            }))
            .unwrap(),
        );
        [(Arc::from("u"), OverlaidPod { node: "edge-a".into(), is_own: true, report, until })].into_iter().collect()
    }

    #[test]
    fn only_the_node_to_which_the_object_binds_the_pod_reports_its_status() {
        let report = |node: &str, is_own, address: &str| {
            let status = json!({
                "addresses": [address], "phase": "Running", "conditions": [{"type": "Ready", "status": "True"}],
            });
            let report = PodReport::Reported(serde_json::from_value(status).unwrap());
            (Arc::from("u"), OverlaidPod { node: node.into(), is_own, report, until: None })
        };
        let overlay: Overlay =
            [report("attacker", false, "10.6.6.6"), report("edge-a", true, "10.0.0.9")].into_iter().collect();
        let overlay = overlay.with_silent(["edge-c".into()].into());
        let mut unbound = slice("", 7);
        unbound["endpoints"][0].as_object_mut().unwrap().remove("nodeName");
        for (object, address, ready) in [
            (slice("edge-a", 7), "10.0.0.9", "true"),
            (slice("attacker", 7), "10.6.6.6", "true"),
            (unbound, "10.0.0.9", "true"),
            (slice("edge-b", 7), "10.0.0.1", "null"),
            (slice("edge-c", 7), "10.0.0.1", "false"),
        ] {
            for mut document in documents(&object) {
                overlay.apply(&mut document, &|_, _| false).unwrap();
                let shown: Value = serde_json::from_str(&document.to_json().unwrap()).unwrap();
                let endpoint = &shown["endpoints"][0];
                assert_eq!(endpoint["addresses"], json!([address]), "{object}");
                assert_eq!(endpoint["conditions"]["ready"].to_string(), ready, "{object}");
            }
        }
    }

    fn slice(node: &str, version: u64) -> Value {
        json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
            "metadata": {"name": "web-a", "namespace": "shop", "resourceVersion": version.to_string(),
                         "labels": {"kubernetes.io/service-name": "web"}},
            "endpoints": [{"addresses": ["10.0.0.1"], "nodeName": node, "targetRef": {"kind": "Pod", "uid": "u"}}],
            "ports": [{"port": 80, "protocol": "TCP"}],
        })
    }

    fn documents(object: &Value) -> [Document; 2] {
        let text = |name: &str| object[name].as_str().unwrap().to_owned();
        let type_meta = Arc::new(TypeMeta { api_version: text("apiVersion"), kind: text("kind") });
        let message = from_json(&type_meta, &object.to_string()).unwrap();
        [Document::json(object.to_string().into()), Document::protobuf(message, type_meta).unwrap()]
    }

    #[test]
    fn both_encodings_are_edited_and_other_nodes_and_later_versions_are_not() {
        for (object, until, edited) in [
            (slice("edge-a", 7), None, true),
            (slice("edge-a", 7), Some(7), true),
            (slice("edge-a", 8), Some(7), false),
            (slice("edge-b", 7), None, false),
        ] {
            for mut document in documents(&object) {
                overlay(until).apply(&mut document, &|_, _| false).unwrap();
                assert_eq!(document.is_edited(), edited, "{object}");
                let address = document.column(&Path::parse("endpoints[*].addresses[0]").unwrap()).unwrap();
                assert_eq!(address.iter().next().unwrap(), Some(if edited { "10.0.0.9" } else { "10.0.0.1" }));
            }
        }
    }

    #[test]
    fn what_says_the_same_already_stays_as_it_is() {
        let mut same = slice("edge-a", 7);
        same["endpoints"][0]["addresses"] = json!(["10.0.0.9"]);
        same["endpoints"][0]["conditions"] = json!({"ready": true, "serving": true});
        for mut document in documents(&same) {
            overlay(None).apply(&mut document, &|_, _| false).unwrap();
            assert!(!document.is_edited());
        }
    }

    #[test]
    fn a_pod_is_edited_in_both_encodings() {
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "a", "namespace": "shop", "uid": "u", "resourceVersion": "7"},
            "spec": {"nodeName": "edge-a", "containers": []}, "status": {"podIP": "10.0.0.1"},
        });
        for mut document in documents(&pod) {
            overlay(None).apply(&mut document, &|_, _| false).unwrap();
            assert_eq!(document.text(&Path::parse("status.podIP").unwrap()).unwrap().as_deref(), Some("10.0.0.9"));
        }
    }
}
