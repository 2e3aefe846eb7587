//! Which edits are refused: those that touch what an object is known by, or what the host guards.

use crate::{Path, path::Step};
use std::sync::LazyLock;

/// What no filter may edit: resume points, informer keys, selectors and owners depend on it.
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

/// The fields that stay in every object.
pub(crate) fn fields() -> &'static [Path] {
    &FIELDS
}

/// The first of the fields that an edit at these steps would touch: at, above or below it.
pub(crate) fn touched<'a>(steps: &[Step], fields: &'a [Path]) -> Option<&'a Path> {
    fields
        .iter()
        .find(|field| steps.iter().zip(field.steps()).all(|(a, b)| may_meet(a, b)))
}

/// Whether two steps can lead to the same place. Any two elements do: cutting one moves the others.
fn may_meet(a: &Step, b: &Step) -> bool {
    match (a, b) {
        (Step::Name(a), Step::Name(b)) => a == b,
        (Step::Name(_), _) | (_, Step::Name(_)) => false,
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::{fields, touched};
    use crate::Path;

    fn touches(edit: &str, field: &str) -> bool {
        touched(
            Path::parse(edit).unwrap().steps(),
            &[Path::parse(field).unwrap()],
        )
        .is_some()
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
        assert!(touches(
            "spec.containers[0].image",
            "spec.containers[*].image"
        ));
        assert!(touches("spec.containers[*]", "spec.containers[1].image"));
        assert!(touches("spec.containers[0]", "spec.containers[1]"));
        assert!(!touches(
            "spec.containers[*].env",
            "spec.containers[*].image"
        ));
    }
}
