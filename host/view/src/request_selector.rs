//! What a request narrows a view to: a namespace, a label selector and a field selector.

use weir_document::Path;
use weir_kube::{FieldSelector, FieldSupport, LabelSelector, ResourceRequest};
use weir_store::cache::{Object, ObjectFormat};

/// The longest text of a selector that views evaluate. Views and open watches keep what it is parsed into.
const MAX_TEXT: usize = 1024;

/// Selects objects of a view, evaluated on the unfiltered object.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RequestSelector {
    namespace: Option<String>,
    labels: LabelSelector,
    fields: FieldSelector,
}

impl RequestSelector {
    /// Returns the selector of a request, with the name in its path; `None` if only the API server can evaluate it, or if it is
    /// longer than [`MAX_TEXT`].
    pub fn of(request: &ResourceRequest) -> Option<Self> {
        let options = request.options.as_ref().ok()?;
        if options.fields.support(&request.resource, request.is_namespaced()) != FieldSupport::Evaluated {
            return None;
        }
        // A path `namespaces/<name>` names a namespace, which is not in one.
        let namespace = request.namespace.clone().filter(|_| request.is_namespaced());
        let text = options.labels.to_string().len() + options.fields.to_string().len();
        if text + namespace.as_ref().map_or(0, String::len) > MAX_TEXT {
            return None;
        }
        Some(Self { namespace, labels: options.labels.clone(), fields: options.fields.clone() })
    }

    /// The bytes that it takes in memory.
    pub fn size(&self) -> usize {
        self.namespace.as_ref().map_or(0, String::len) + self.labels.size() + self.fields.size()
    }

    /// Whether the selector matches every object.
    pub(crate) fn is_everything(&self) -> bool {
        self.namespace.is_none() && self.labels.is_empty() && self.fields.is_empty()
    }

    /// Whether the selector matches an object. An object that cannot be read does not match a selector.
    pub fn matches(&self, format: &ObjectFormat, object: &Object) -> bool {
        if self.namespace.as_deref().is_some_and(|namespace| namespace != object.key.namespace()) {
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

#[cfg(test)]
mod tests {
    use weir_kube::RequestInfo;

    use super::*;

    fn of(query: &str) -> Option<RequestSelector> {
        let path = format!("/api/v1/services?{query}").parse().unwrap();
        RequestSelector::of(RequestInfo::parse(&http::Method::GET, &path).unwrap().resource().unwrap())
    }

    #[test]
    fn a_long_selector_is_not_evaluated_here_and_a_short_one_counts_with_what_it_is_parsed_into() {
        assert_eq!(of("").unwrap().size(), 0);
        for key in ["labelSelector=a", "fieldSelector=metadata.name%3Da"] {
            assert!(of(key).is_some() && of(&format!("{key}{}", "a".repeat(1100))).is_none(), "{key}");
        }
        let requirements = of(&format!("labelSelector={}", ["a"; 500].join(","))).unwrap();
        assert!(requirements.size() >= 500 * (size_of::<String>() + 1), "{}", requirements.size());
        assert!(requirements.size() <= 128 << 10, "{}", requirements.size());
    }
}
