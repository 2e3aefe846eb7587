//! The kinds, as typed objects of k8s-openapi.

use super::types::{Message, TYPES};
use k8s_openapi::api::{
    core::v1::{ConfigMap, Endpoints, Pod, Service},
    discovery::v1::EndpointSlice,
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Error, Value as Tree};
use std::sync::{Arc, LazyLock};
use weir_document::TypeMeta;

/// A kind of generated objects.
pub(crate) struct Root {
    pub(crate) type_meta: Arc<TypeMeta>,
    /// The full name of the message.
    pub(crate) name: &'static str,
    through: fn(&Tree) -> Result<Tree, Error>,
}

pub(crate) static KINDS: LazyLock<Vec<Root>> = LazyLock::new(|| {
    vec![
        root::<Service>("v1", "Service", "k8s.io.api.core.v1.Service"),
        root::<EndpointSlice>("discovery.k8s.io/v1", "EndpointSlice", "k8s.io.api.discovery.v1.EndpointSlice"),
        root::<Endpoints>("v1", "Endpoints", "k8s.io.api.core.v1.Endpoints"),
        root::<Pod>("v1", "Pod", "k8s.io.api.core.v1.Pod"),
        root::<ConfigMap>("v1", "ConfigMap", "k8s.io.api.core.v1.ConfigMap"),
    ]
});

fn root<T: Serialize + DeserializeOwned>(api_version: &str, kind: &str, name: &'static str) -> Root {
    let type_meta = Arc::new(TypeMeta { api_version: api_version.into(), kind: kind.into() });
    Root { type_meta, name, through: |tree| serde_json::to_value(T::deserialize(tree)?) }
}

impl Root {
    pub(crate) fn message(&self) -> &'static Message {
        &TYPES[self.name]
    }
}

/// Converts the object to the typed one and back, which drops unknown members. Fails if the type cannot represent the
/// object.
pub(crate) fn through(root: &Root, tree: &Tree) -> Result<Tree, Error> {
    let mut filled = tree.clone();
    let conditions = filled.pointer_mut("/status/conditions").and_then(Tree::as_array_mut);
    for condition in conditions.into_iter().flatten().filter_map(Tree::as_object_mut) {
        // Required, and without a zero value in k8s-openapi. Go writes its zero value as null.
        let time = condition.entry("lastTransitionTime").or_insert(Tree::Null);
        if time.is_null() {
            *time = "1970-01-01T00:00:00Z".into();
        }
    }
    let mut held = (root.through)(&filled)?;
    take_added(&mut held, tree);
    Ok(held)
}

/// Removes members that were not given, because the typed object adds required ones.
fn take_added(held: &mut Tree, given: &Tree) {
    match (held, given) {
        (Tree::Object(held), Tree::Object(given)) => {
            held.retain(|name, _| given.get(name).is_some_and(|given| !given.is_null()));
            held.iter_mut().for_each(|(name, held)| take_added(held, &given[name]));
        }
        (Tree::Array(held), Tree::Array(given)) => {
            held.iter_mut().zip(given).for_each(|(held, given)| take_added(held, given));
        }
        _ => {}
    }
}
