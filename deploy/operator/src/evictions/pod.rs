//! What the controller keeps of a pod: a small part, because it keeps all pods of the cluster.

use k8s_openapi::api::core::v1::{Pod, Toleration};
use kube::ResourceExt as _;
use kube::api::{ApiResource, DynamicObject};
use kube::core::Object;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::ORIGINAL;
use super::tolerations::Change;

/// A pod as the watch delivers it: without what is not needed.
pub(super) type WatchedPod = Object<WatchedSpec, Ignored>;

/// The needed part of a pod's spec.
#[derive(Debug, Clone, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct WatchedSpec {
    #[serde(default)]
    node_name: Option<String>,
    #[serde(default)]
    tolerations: Vec<Toleration>,
}

/// The status is not read.
#[derive(Debug, Clone, Default, Deserialize, Serialize)]
pub(super) struct Ignored {}

/// The name of a pod.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct PodKey {
    pub(super) namespace: String,
    pub(super) name: String,
}

/// What is kept of a pod.
#[derive(Debug, Clone)]
pub(super) struct PodRecord {
    pub(super) node: Box<str>,
    pub(super) tolerations: Box<[Toleration]>,
    pub(super) original: Option<Box<str>>,
    version: Box<str>,
    uid: Box<str>,
}

/// The resource of the watch.
pub(super) fn resource() -> ApiResource {
    ApiResource::erase::<Pod>(&())
}

/// The API of pods in a namespace, for patches.
pub(super) type PodApi = kube::Api<DynamicObject>;

impl PodKey {
    pub(super) fn of(pod: &WatchedPod) -> Self {
        Self { namespace: pod.namespace().unwrap_or_default(), name: pod.name_any() }
    }
}

impl PodRecord {
    /// `None` for a pod that is not on a node, or is going, or that the kubelet itself runs.
    pub(super) fn of(pod: WatchedPod) -> Option<Self> {
        let is_mirror = pod.annotations().contains_key("kubernetes.io/config.mirror");
        if is_mirror || pod.metadata.deletion_timestamp.is_some() {
            return None;
        }
        Some(Self {
            original: pod.annotations().get(ORIGINAL).map(|text| text.as_str().into()),
            version: pod.resource_version()?.into(),
            uid: pod.uid()?.into(),
            node: pod.spec.node_name.filter(|node| !node.is_empty())?.into(),
            tolerations: pod.spec.tolerations.into(),
        })
    }

    /// The patch for a change. It fails if the pod has changed meanwhile.
    pub(super) fn patch(&self, change: &Change) -> Value {
        json!({
            "metadata": {
                "uid": self.uid,
                "resourceVersion": self.version,
                "annotations": {ORIGINAL: change.original},
            },
            "spec": {"tolerations": change.tolerations},
        })
    }
}
