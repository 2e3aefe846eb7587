//! The edits that filters may make, in the daemon and in the native runs of the SDK. Both have this crate in common.

use weir_document::{EditRules, path};

/// The largest size to which a filter may grow an object. It bounds the memory that a filter can make the daemon allocate.
const MAX_EDITED: usize = 64 << 20;

/// The rules for edits of filters. Resource versions, keys of informers, selectors and owner references depend on the protected
/// fields.
pub static FILTER_EDITS: EditRules = EditRules {
    protected: &[
        path!("apiVersion"),
        path!("kind"),
        path!("metadata.name"),
        path!("metadata.namespace"),
        path!("metadata.uid"),
        path!("metadata.resourceVersion"),
        path!("metadata.labels"),
        path!("metadata.ownerReferences"),
    ],
    max_bytes: MAX_EDITED,
};

#[cfg(test)]
mod tests {
    use weir_document::{Document, Error, Path, Value};

    use super::*;

    #[test]
    fn a_filter_edits_neither_the_identity_of_an_object_nor_beyond_the_limit() {
        let protected: Vec<_> = FILTER_EDITS.protected.iter().map(Path::text).collect();
        assert_eq!(
            protected,
            [
                "apiVersion",
                "kind",
                "metadata.name",
                "metadata.namespace",
                "metadata.uid",
                "metadata.resourceVersion",
                "metadata.labels",
                "metadata.ownerReferences"
            ]
        );
        let json = r#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a","labels":{"b":"c"}},"spec":{}}"#;
        let mut pod = Document::json(json.into()).with_rules(&FILTER_EDITS);
        let (text, large) = (Value::Text("x".to_owned()), Value::Text("x".repeat(MAX_EDITED)));
        let below: Path = path!("metadata.labels.b");
        for field in FILTER_EDITS.protected.iter().chain([&below, &path!("metadata"), &path!("$")]) {
            assert!(matches!(pod.set(field, &text), Err(Error::Protected { .. })), "{field}");
        }
        assert_eq!(pod.set(&path!("spec.nodeName"), &large), Err(Error::TooLarge { limit: MAX_EDITED }));
        assert_eq!(pod.bytes(), json);
        assert_eq!(pod.set(&path!("metadata.annotations.b"), &text), Ok(()));
    }
}
