//! Refuses edits of an object's identity and of guarded fields.

use crate::{Path, path::Segment};
use std::sync::LazyLock;

/// The fields that no filter may edit. Resource versions, informer keys, selectors and owner references depend on them.
static FIELDS: LazyLock<Vec<Path>> = LazyLock::new(|| {
    [
        "apiVersion",
        "kind",
        "metadata.name",
        "metadata.namespace",
        "metadata.uid",
        "metadata.resourceVersion",
        "metadata.labels",
        "metadata.ownerReferences",
    ]
    .iter()
    .filter_map(|field| Path::parse(field).ok())
    .collect()
});

/// Returns the fields that are protected in every object.
pub(crate) fn fields() -> &'static [Path] {
    &FIELDS
}

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
    use super::{fields, first_affected};
    use crate::Path;

    fn touches(edit: &str, field: &str) -> bool {
        first_affected(Path::parse(edit).unwrap().segments(), &[Path::parse(field).unwrap()]).is_some()
    }

    #[test]
    fn at_above_and_below_a_field_touches_it() {
        assert_eq!(fields().len(), 8);
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
