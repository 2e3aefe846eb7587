//! A revision: a template with the values that render it.
//!
//! Each revision that a pool has is kept in a ConfigMap. A pool that must not upgrade yet, or whose template cannot be used any
//! more, is still put back and scaled as its own revision says. The ConfigMap belongs to the YurtIngress and goes with it, or when
//! no pool has the revision any more.

use kube::api::DynamicObject;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::template::{CONFIG_MAP, RenderedObject, Surroundings, Template};

/// The key of the ConfigMap.
const KEY: &str = "revision.json";
/// The first part of its name.
const PREFIX: &str = "weir-ingress-revision-";

/// A template with the values that render it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct TemplateRevision {
    pub(super) template: Template,
    pub(super) surroundings: Surroundings,
    /// The hash of both.
    #[serde(skip)]
    pub(super) hash: String,
}

impl TemplateRevision {
    /// The revision of a template.
    pub(super) fn new(template: Template, surroundings: &Surroundings) -> Self {
        let mut surroundings = surroundings.clone();
        surroundings.overrides.retain(|key, _| template.owns(key));
        let hash = template.revision(&surroundings);
        Self { template, surroundings, hash }
    }

    /// The ConfigMap that keeps it.
    pub(super) fn config_map(&self) -> RenderedObject {
        let name = name_of(&self.hash);
        // The only error of this serializer is a map whose keys are no strings.
        let text = serde_json::to_string(self).unwrap_or_default();
        let object = json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": name, "namespace": self.surroundings.namespace},
            "data": {KEY: text},
        });
        RenderedObject { kind: &CONFIG_MAP, name, object }
    }

    /// The revision of its ConfigMap; `None` if somebody has changed it.
    pub(super) fn of_config_map(map: &DynamicObject, hash: &str) -> Option<Self> {
        let text = map.data.get("data")?.get(KEY)?.as_str()?;
        let mut kept: Self = serde_json::from_str(text).ok()?;
        kept.hash = kept.template.revision(&kept.surroundings);
        (kept.hash == hash).then_some(kept)
    }
}

/// The name of the ConfigMap of a revision.
pub(super) fn name_of(hash: &str) -> String {
    format!("{PREFIX}{hash}")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::template::built_in;

    #[test]
    fn a_revision_survives_its_config_map_and_a_changed_one_is_refused() {
        let set = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        let surroundings = Surroundings {
            namespace: "ingress-nginx".to_owned(),
            pool_label: "pool".to_owned(),
            api_server: Some(("169.254.20.10".to_owned(), 10268)),
            overrides: BTreeMap::from([set("traefik.image", "mirror/traefik:1"), set("other.image", "x")]),
        };
        for name in crate::template::BUILT_IN {
            let revision = TemplateRevision::new(built_in(name).unwrap().unwrap(), &surroundings);
            let map = revision.config_map();
            let read: DynamicObject = serde_json::from_value(map.object.clone()).unwrap();
            let kept = TemplateRevision::of_config_map(&read, &revision.hash).unwrap();
            assert_eq!((kept.config_map(), &kept.hash), (map, &revision.hash));
            assert!(!kept.surroundings.overrides.contains_key("other.image"), "of this template only");
            let mut changed = read;
            let text = changed.data["data"][KEY].as_str().unwrap().replace("NodePort", "LoadBalancer");
            changed.data["data"][KEY] = text.into();
            assert!(TemplateRevision::of_config_map(&changed, &revision.hash).is_none());
        }
    }
}
