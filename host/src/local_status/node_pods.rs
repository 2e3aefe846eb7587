//! The pods of the node, in the store that kubelet reads.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use weir_document::{Document, Path, path};
use weir_kube::{GroupResource, node_of_user};
use weir_store::cache::{Collection, ObjectContent};
use weir_store::{ResourceStores, StoreHandle, StoreKey, StoreReader};

static PUBLISHES_NOT_READY: Path = path!("spec.publishNotReadyAddresses");

/// Finds the pods of the node.
#[derive(Debug, Clone)]
pub(super) struct NodePods {
    node: Arc<str>,
    stores: ResourceStores,
}

impl NodePods {
    pub(super) fn new(node: Arc<str>, stores: ResourceStores) -> Self {
        Self { node, stores }
    }

    /// Whether this is the identity of the node's kubelet: the node credential, or the node's client certificate.
    pub(super) fn is_kubelet(&self, reader: &StoreReader) -> bool {
        match reader {
            StoreReader::Node => true,
            StoreReader::User(user) => node_of_user(&user.user, &user.groups) == Some(&self.node),
            StoreReader::Daemon | StoreReader::Client(_) | StoreReader::Private(_) => false,
        }
    }

    /// Opens the store from which kubelet reads its pods.
    pub(super) fn open(&self, reader: &StoreReader) -> Option<StoreHandle> {
        let collection = Collection {
            resource: GroupResource::new("pods", ""),
            version: "v1".to_owned(),
            path: "/api/v1/pods".to_owned(),
            field_selector: format!("spec.nodeName={}", self.node),
            label_selector: String::new(),
            parameters: String::new(),
            content: ObjectContent::Complete,
        };
        self.stores.open(reader, &collection)
    }

    /// A pod of the node by its name.
    pub(super) fn get(&self, store: &StoreHandle, namespace: &str, name: &str) -> Option<Pod> {
        let snapshot = store.snapshot();
        let object = snapshot.objects.get(&StoreKey::new(namespace, name))?;
        self.read(&snapshot.format.document(object.bytes.clone()))
    }

    /// All pods of the node.
    pub(super) fn all(&self, store: &StoreHandle) -> Vec<Pod> {
        let snapshot = store.snapshot();
        let pods = snapshot.objects.values().map(|object| snapshot.format.document(object.bytes.clone()));
        pods.filter_map(|pod| self.read(&pod)).collect()
    }

    /// `None` if the pod is bound to another node.
    fn read(&self, document: &Document) -> Option<Pod> {
        let pod: Pod = document.deserialize_at(&path!("$")).ok()??;
        let bound = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()) == Some(&self.node);
        bound.then_some(pod)
    }

    /// The open stores whose objects name addresses of pods: EndpointSlices and Endpoints.
    pub(super) fn endpoint_stores(&self) -> Vec<StoreHandle> {
        self.stores_of(|resource| matches!(resource, ("endpointslices", "discovery.k8s.io") | ("endpoints", "")))
    }

    /// Whether a Service publishes the addresses of pods that are not ready, as far as Weir has the Service.
    pub(super) fn publishes_not_ready(&self, namespace: &str, name: &str) -> bool {
        let key = StoreKey::new(namespace, name);
        let publishes = |store: StoreHandle| {
            let snapshot = store.snapshot();
            let document = snapshot.format.document(snapshot.objects.get(&key)?.bytes.clone());
            Some(document.text(&PUBLISHES_NOT_READY).ok()??.as_ref() == "true")
        };
        self.stores_of(|resource| resource == ("services", "")).into_iter().find_map(publishes).unwrap_or_default()
    }

    /// The open stores of whole objects of these resources, given as resource and group.
    fn stores_of(&self, is_wanted: impl Fn((&str, &str)) -> bool) -> Vec<StoreHandle> {
        let mut stores = self.stores.all();
        stores.retain(|store| {
            let Collection { resource, content, .. } = store.collection();
            let is_whole = *content != ObjectContent::Metadata && !store.reader().is_private();
            is_wanted((&resource.resource, &resource.group)) && is_whole
        });
        stores
    }
}
