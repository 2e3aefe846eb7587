//! What a request narrows a view to: a namespace, a label selector and a field selector.

use weir_document::Path;
use weir_kube::{FieldSelector, LabelSelector, RequestInfo, Verb};
use weir_store::cache::{Object, ObjectFormat};

/// Selects objects of a view, evaluated on the unfiltered object.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct RequestSelector {
    namespace: Option<String>,
    /// The object that a watch names in its path.
    name: Option<String>,
    labels: LabelSelector,
    fields: FieldSelector,
}

impl RequestSelector {
    /// Returns the selector of a request; `None` if only the API server can evaluate it.
    pub(crate) fn of(request: &RequestInfo) -> Option<Self> {
        let (query, request) = (&request.query, request.resource()?);
        // The API server compares the two, and refuses a field selector that names another object.
        let name = request.name.clone().filter(|_| request.verb == Verb::Watch);
        if name.is_some() && query.first("fieldSelector").is_some_and(|fields| !fields.is_empty()) {
            return None;
        }
        let labels = LabelSelector::parse(query.first("labelSelector").unwrap_or_default()).ok()?;
        let fields = FieldSelector::parse(query.first("fieldSelector").unwrap_or_default()).ok()?;
        // A path `namespaces/<name>` names a namespace, which is not in one.
        let namespace = request.namespace.clone().filter(|_| request.collection.contains("/namespaces/"));
        fields.is_supported(&request.resource).then_some(Self { namespace, name, labels, fields })
    }

    /// Whether the selector matches every object.
    pub(crate) fn is_everything(&self) -> bool {
        self.namespace.is_none() && self.name.is_none() && self.labels.is_empty() && self.fields.is_empty()
    }

    /// Whether the selector matches an object. An object that cannot be read does not match a selector.
    pub(crate) fn matches(&self, format: &ObjectFormat, object: &Object) -> bool {
        if self.namespace.as_deref().is_some_and(|namespace| namespace != object.key.namespace()) {
            return false;
        }
        if self.name.as_deref().is_some_and(|name| name != object.key.name()) {
            return false;
        }
        if self.labels.is_empty() && self.fields.is_empty() {
            return true;
        }
        let document = format.document(object.bytes.clone());
        let field = |field: &str| match field {
            "metadata.name" => object.key.name().to_owned(),
            "metadata.namespace" => object.key.namespace().to_owned(),
            field => Path::parse(field)
                .ok()
                .and_then(|path| document.text(&path).ok().flatten().map(|text| text.into_owned()))
                .unwrap_or_default(),
        };
        self.fields.matches(field) && self.labels.matches(|label| document.label(label).ok().flatten())
    }
}
