//! Which edits a document refuses: a policy of the program, for edits that it does not trust.

use crate::{Path, path::Segment};

/// What edits of a document may not do. Without rules they may do everything.
///
/// ```
/// use weir_document::{Document, EditRules, Error, Path, Value, path};
///
/// static KEEP_NAMES: EditRules =
///     EditRules { protected: &[path!("metadata.name"), path!("metadata.namespace")], max_bytes: 1 << 20 };
/// static METADATA: Path = path!("metadata");
///
/// let mut object = Document::json(r#"{"metadata": {"name": "a"}}"#.into()).with_rules(&KEEP_NAMES);
/// assert!(matches!(object.set(&METADATA, &Value::Null), Err(Error::Protected { .. })));
/// ```
#[derive(Debug, PartialEq, Eq)]
pub struct EditRules {
    /// The fields that keep their values: edits at, above or below them are refused.
    pub protected: &'static [Path],
    /// The largest size to which an edit may grow an object, in bytes. It bounds what an edit allocates. An object that is larger
    /// already may keep its size.
    pub max_bytes: usize,
}

impl EditRules {
    pub(crate) const NONE: Self = Self { protected: &[], max_bytes: crate::MAX_OBJECT };
}

/// Rules for tests: those of filters.
#[cfg(test)]
pub(crate) static IDENTITY: EditRules = EditRules {
    protected: &[
        crate::path!("apiVersion"),
        crate::path!("kind"),
        crate::path!("metadata.name"),
        crate::path!("metadata.namespace"),
        crate::path!("metadata.uid"),
        crate::path!("metadata.resourceVersion"),
        crate::path!("metadata.labels"),
        crate::path!("metadata.ownerReferences"),
    ],
    max_bytes: 64 << 20,
};

/// Returns the first field that an edit at these segments affects: at, above or below it.
pub(crate) fn first_affected<'a>(segments: &[Segment], fields: &'a [Path]) -> Option<&'a Path> {
    fields.iter().find(|field| segments.iter().zip(field.segments()).all(|(a, b)| may_overlap(a, b)))
}

/// Returns whether two segments can select the same value. Two elements of an array always can, because removing one
/// moves the others.
fn may_overlap(a: &Segment, b: &Segment) -> bool {
    match (a, b) {
        (Segment::Name(a), Segment::Name(b)) => a == b,
        (Segment::Name(_), _) | (_, Segment::Name(_)) => false,
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::first_affected;
    use crate::Path;

    fn touches(edit: &str, field: &str) -> bool {
        first_affected(Path::parse(edit).unwrap().segments(), &[Path::parse(field).unwrap()]).is_some()
    }

    #[test]
    fn at_above_and_below_a_field_touches_it() {
        assert!(touches("metadata", "metadata.name"));
        assert!(touches("$", "metadata.name"));
        assert!(touches("metadata.labels['a']", "metadata.labels"));
        assert!(touches("['metadata'].labels", "metadata.labels"));
        assert!(!touches("metadata.annotations", "metadata.labels"));
        assert!(!touches("spec.metadata", "metadata"));
        assert!(touches("spec.containers[0].image", "spec.containers[*].image"));
        assert!(touches("spec.containers[*]", "spec.containers[1].image"));
        assert!(touches("spec.containers[0]", "spec.containers[1]"));
        assert!(!touches("spec.containers[*].env", "spec.containers[*].image"));
    }
}
