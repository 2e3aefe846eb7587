//! # serviceenvupdater: pods' environment variables name this node's daemon
//!
//! In-cluster clients read the API server's address from `KUBERNETES_SERVICE_HOST` and `KUBERNETES_SERVICE_PORT`. kubelet sets
//! these variables unless the Pod sets them itself. For such Pods, this filter replaces the values of
//! `KUBERNETES_SERVICE_HOST`, `KUBERNETES_SERVICE_PORT` and `KUBERNETES_SERVICE_PORT_HTTPS` with the daemon's address, in
//! containers, init containers and ephemeral containers. It replaces duplicates too, removes a `valueFrom` beside a replaced
//! value, and adds no variables.
//!
//! ```yaml
//! - name: serviceenvupdater
//!   module: serviceenvupdater.wasm
//!   settings:
//!     host: 169.254.2.1          # default: the daemon's --pod-address; a loopback address is rejected
//!     port: 10268                # default: the daemon's --secure-port
//! ```

use serde::Deserialize;
use weir_edge::gateway::Gateway;
use weir_filter::{Error, Filter, Object, Path, Plan, Verdict};

/// The paths of the environment variables in one list of containers.
struct EnvPaths {
    names: Path,
    values: Path,
    sources: Path,
}

static ENV_PATHS: [EnvPaths; 3] = [
    EnvPaths {
        names: Path::new("spec.containers[*].env[*].name"),
        values: Path::new("spec.containers[*].env[*].value"),
        sources: Path::new("spec.containers[*].env[*].valueFrom"),
    },
    EnvPaths {
        names: Path::new("spec.initContainers[*].env[*].name"),
        values: Path::new("spec.initContainers[*].env[*].value"),
        sources: Path::new("spec.initContainers[*].env[*].valueFrom"),
    },
    EnvPaths {
        names: Path::new("spec.ephemeralContainers[*].env[*].name"),
        values: Path::new("spec.ephemeralContainers[*].env[*].value"),
        sources: Path::new("spec.ephemeralContainers[*].env[*].valueFrom"),
    },
];

/// The settings, see the crate's documentation.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Settings {
    host: Option<String>,
    port: Option<u16>,
}

/// The filter.
pub struct ServiceEnvUpdater {
    host: String,
    port: String,
}

impl Filter for ServiceEnvUpdater {
    type Settings = Settings;

    fn configure(settings: Settings) -> Result<Self, Error> {
        let gateway = Gateway::configure(settings.host.as_deref(), settings.port)?;
        Ok(Self { host: gateway.host.to_string(), port: gateway.port.to_string() })
    }

    fn plan(&self) -> Plan {
        Plan::matching(["kubelet/pods#get;list;watch;patch;update"])
    }

    fn filter(&self, object: &mut Object<'_>) -> Result<Verdict, Error> {
        if object.is("v1", "Pod") {
            for paths in &ENV_PATHS {
                self.update(object, paths)?;
            }
        }
        Ok(Verdict::Keep)
    }
}

fn is_host(name: Option<&str>) -> bool {
    name == Some("KUBERNETES_SERVICE_HOST")
}

fn is_port(name: Option<&str>) -> bool {
    matches!(name, Some("KUBERNETES_SERVICE_PORT" | "KUBERNETES_SERVICE_PORT_HTTPS"))
}

impl ServiceEnvUpdater {
    fn update(&self, object: &mut Object<'_>, paths: &EnvPaths) -> Result<(), Error> {
        let names = object.column(&paths.names);
        object.set_rows(&paths.values, &names.rows(is_host), self.host.as_str())?;
        object.set_rows(&paths.values, &names.rows(is_port), self.port.as_str())?;
        object.remove_rows(&paths.sources, &names.rows(|name| is_host(name) || is_port(name)))?;
        Ok(())
    }
}

weir_filter::export!(ServiceEnvUpdater);
weir_filter::cases!(ServiceEnvUpdater);
