//! A cluster of a few objects that never change, for tests.

use std::sync::Arc;

use weir_document::Document;
use weir_kube::{GroupResource, LabelSelector};
use weir_spec::{CachedObject, InterfaceAddress, LookupSpec, Selection};

use crate::{ClusterView, Endpoint, Snapshot};

/// The objects, each with its resource.
#[derive(Debug, Clone)]
pub(crate) struct Fixed(Arc<Vec<(GroupResource, Arc<CachedObject>)>>);

impl Fixed {
    pub(crate) fn new(objects: impl IntoIterator<Item = serde_json::Value>) -> Self {
        let object = |value: serde_json::Value| {
            let document = Document::json(value.to_string().into());
            let resource = GroupResource::of_kind(&document.api_version().unwrap(), &document.kind().unwrap());
            (resource, Arc::new(CachedObject::new(document)))
        };
        Self(Arc::new(objects.into_iter().map(object).collect()))
    }

    fn of(&self, lookup: &LookupSpec, namespace: Option<&str>) -> impl Iterator<Item = &Arc<CachedObject>> {
        let resource = lookup.resource.clone();
        let namespace = namespace.map(str::to_owned);
        self.0.iter().filter(move |(of, _)| *of == resource).map(|(_, object)| object).filter(move |object| {
            namespace.is_none() || object.document().namespace().unwrap().as_deref() == namespace.as_deref()
        })
    }
}

impl ClusterView for Fixed {
    fn snapshot(&self) -> Arc<dyn Snapshot> {
        Arc::new(self.clone())
    }

    fn version(&self) -> u64 {
        0
    }

    fn node_name(&self) -> &str {
        "node"
    }

    fn secure_endpoint(&self) -> Option<Endpoint> {
        None
    }
}

impl Snapshot for Fixed {
    fn version(&self) -> u64 {
        0
    }

    fn get(&self, lookup: &LookupSpec, namespace: Option<&str>, name: &str) -> Option<Arc<CachedObject>> {
        // Without a namespace, only cluster-scoped objects match.
        self.of(lookup, None)
            .find(|object| {
                object.document().name().unwrap() == name
                    && object.document().namespace().unwrap().as_deref() == namespace
            })
            .cloned()
    }

    fn find(
        &self,
        lookup: &LookupSpec,
        namespace: Option<&str>,
        label_selector: &str,
    ) -> Result<Arc<Selection>, String> {
        let selector = LabelSelector::parse(label_selector).map_err(|error| error.to_string())?;
        let matches = |object: &&Arc<CachedObject>| selector.matches(|label| object.document().label(label).unwrap());
        Ok(Arc::new(Selection::new(self.of(lookup, namespace).filter(matches).cloned().collect())))
    }

    fn addresses(&self) -> Arc<[InterfaceAddress]> {
        Arc::new([])
    }
}
