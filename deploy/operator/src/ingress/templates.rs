//! The templates of ConfigMaps: those of the operator's namespace with the label [`LABEL`], whose value is the template's name.

use futures_util::Stream;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::runtime::reflector::{Store, store, store::Writer};
use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt as _};

use crate::changes::Changes;
use crate::follow::Follower;
use crate::health::Health;
use crate::template::{Template, built_in};

/// The label of a ConfigMap with a template.
const LABEL: &str = "weir.openyurt.io/ingress-template";
/// The part in `/readyz`.
pub(super) const TEMPLATES: &str = "templates";

/// The templates of the cluster. Clones share them.
#[derive(Clone)]
pub(super) struct Templates {
    maps: Store<ConfigMap>,
    changed: Changes,
}

/// Fills them.
pub(super) struct TemplatesWatch {
    api: Api<ConfigMap>,
    writer: Writer<ConfigMap>,
    changed: Changes,
}

impl Templates {
    /// Without any, and what fills them.
    #[must_use]
    pub(super) fn new(client: Client, namespace: &str) -> (Self, TemplatesWatch) {
        let (maps, writer) = store();
        let changed = Changes::default();
        let watch = TemplatesWatch { api: Api::namespaced(client, namespace), writer, changed: changed.clone() };
        (Self { maps, changed }, watch)
    }

    pub(super) async fn ready(&self) {
        // The writer lives as long as the process.
        let _ = self.maps.wait_until_ready().await;
    }

    pub(super) fn changes(&self) -> impl Stream<Item = ()> + Send + use<> {
        self.changed.stream()
    }

    /// A template by name: that of a ConfigMap, else the built-in one.
    ///
    /// # Errors
    /// There is none, there are two, or it is invalid: the reason in one word and for people.
    pub(super) fn get(&self, name: &str) -> Result<Template, (&'static str, String)> {
        let invalid = |error: crate::template::TemplateError| ("TemplateInvalid", error.to_string());
        let maps = self.maps.state_filter(|map| map.labels().get(LABEL).is_some_and(|label| label == name));
        match maps.as_slice() {
            [] => match built_in(name) {
                Some(template) => template.map_err(invalid),
                None => Err((
                    "TemplateNotFound",
                    format!(
                        "there is no template {name}: neither a built-in one nor a ConfigMap with the label {LABEL}={name}"
                    ),
                )),
            },
            [map] => Template::of_config_map(name, map.data.as_ref().unwrap_or(&std::collections::BTreeMap::new()))
                .map_err(invalid),
            [one, other, ..] => Err((
                "TemplateInvalid",
                format!("template {name}: two ConfigMaps have it: {} and {}", one.name_any(), other.name_any()),
            )),
        }
    }
}

impl TemplatesWatch {
    /// Fills the templates for ever.
    pub(super) async fn run(self, health: &Health) {
        let events = watcher(self.api, watcher::Config::default().labels(LABEL));
        let follower = Follower { part: TEMPLATES, resource: "configmaps", changes: &self.changed, health };
        follower.follow(events, self.writer, |map| map.metadata.managed_fields = None, |_| true).await;
    }
}
