//! # discardcloudservice: hides Services that do not work at the edge
//!
//! Hides Services of type LoadBalancer, whose addresses belong to the cloud, unless the annotation `openyurt.io/skip-discard`
//! is exactly `true`. Also hides the Services that the settings name, of any type. All other Services stay as they are.
//!
//! ```yaml
//! - name: discardcloudservice
//!   module: discardcloudservice.wasm
//!   settings:
//!     loadBalancers: discard     # keep: hide only those with svc.openyurt.io/discard: "true"
//!     services: [kube-system/x-tunnel-server-internal-svc]
//! ```

use serde::Deserialize;
use weir_filter::{Error, Filter, Object, Path, Plan, Verdict, log};

static TYPE: Path = Path::new("spec.type");
static NAME: Path = Path::new("metadata.name");

/// The settings, see the crate's documentation.
#[derive(Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Settings {
    load_balancers: LoadBalancers,
    services: Vec<String>,
}

/// The handling of a LoadBalancer Service without annotation.
#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum LoadBalancers {
    Discard,
    Keep,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            load_balancers: LoadBalancers::Discard,
            services: vec!["kube-system/x-tunnel-server-internal-svc".to_owned()],
        }
    }
}

/// The filter.
pub struct DiscardCloudService {
    load_balancers: LoadBalancers,
    /// The Services that are hidden regardless of their type, as namespace and name.
    services: Vec<(String, String)>,
    /// Their names, in the same order.
    names: Vec<String>,
}

impl Filter for DiscardCloudService {
    type Settings = Settings;

    fn configure(settings: Settings) -> Result<Self, Error> {
        let services = settings.services.iter().map(|service| match service.split_once('/') {
            Some((namespace, name)) if !namespace.is_empty() && !name.is_empty() && !name.contains('/') => {
                Ok((namespace.to_owned(), name.to_owned()))
            }
            _ => Err(Error::setting("services", format!("`{service}` is not of the form namespace/name"))),
        });
        let services = services.collect::<Result<Vec<_>, _>>()?;
        let names = services.iter().map(|service| service.1.clone()).collect();
        Ok(Self { load_balancers: settings.load_balancers, services, names })
    }

    fn plan(&self) -> Plan {
        Plan::matching(["kube-proxy/services#get;list;watch"])
    }

    fn filter(&self, object: &mut Object<'_>) -> Result<Verdict, Error> {
        // Most Services are neither, so the kind is read last.
        let reason = if self.is_cloud_balancer(object) {
            "hides a Service of type LoadBalancer, by its annotations and the setting loadBalancers"
        } else if self.is_named(object) {
            "hides a Service that the setting services names"
        } else {
            return Ok(Verdict::Keep);
        };
        if !object.is("v1", "Service") {
            return Ok(Verdict::Keep);
        }
        log::debug(reason);
        Ok(Verdict::Hide)
    }
}

impl DiscardCloudService {
    fn is_named(&self, object: &Object<'_>) -> bool {
        let Some(name) = object.one_of(&NAME, &self.names).and_then(|position| self.names.get(position)) else {
            return false;
        };
        let namespace = object.namespace().unwrap_or_default();
        self.services.iter().any(|service| service.0 == namespace && service.1 == *name)
    }

    fn is_cloud_balancer(&self, object: &Object<'_>) -> bool {
        let is_set = |annotation| object.annotation(annotation).as_deref() == Some("true");
        object.text(&TYPE).as_deref() == Some("LoadBalancer")
            && match self.load_balancers {
                LoadBalancers::Discard => !is_set("openyurt.io/skip-discard"),
                LoadBalancers::Keep => is_set("svc.openyurt.io/discard"),
            }
    }
}

weir_filter::export!(DiscardCloudService);
weir_filter::cases!(DiscardCloudService);
