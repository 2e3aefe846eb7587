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
