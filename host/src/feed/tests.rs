//! What several modules' tests share; the feeds against a served API are in `host/tests/feed.rs`.

use crate::resource::GroupResource;
use crate::wasm::Lookup;

/// All objects of a kind.
pub(super) fn lookup(resource: &str) -> Lookup {
    Lookup {
        resource: resource.parse::<GroupResource>().unwrap(),
        versions: Vec::new(),
        name: None,
        label_selector: None,
        metadata_only: false,
        optional: false,
    }
}
