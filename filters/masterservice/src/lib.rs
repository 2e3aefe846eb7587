//! # masterservice: `default/kubernetes` has the address of this node's daemon
//!
//! kubelet passes the API server's address to each new container, from the Service `default/kubernetes`. This filter replaces
//! it with the daemon's own address, so that pods with in-cluster configuration connect through the daemon. It edits
//! `spec.clusterIP`, `spec.clusterIPs` and the port named `https`, and nothing else.
//!
//! ```yaml
//! - name: masterservice
//!   module: masterservice.wasm
//!   settings:
//!     host: 169.254.2.1          # default: the daemon's --pod-address; a loopback address is rejected
//!     port: 10268                # default: the daemon's --secure-port
//! ```

use serde::Deserialize;
use weir_edge::gateway::Gateway;
use weir_filter::{Error, Filter, Object, Path, Plan, Value, Verdict};

static CLUSTER_IP: Path = Path::new("spec.clusterIP");
static CLUSTER_IPS: Path = Path::new("spec.clusterIPs");
static PORT_NAMES: Path = Path::new("spec.ports[*].name");
static PORTS: Path = Path::new("spec.ports[*].port");

/// The settings, see the crate's documentation.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Settings {
    host: Option<String>,
    port: Option<u16>,
}

/// The filter.
pub struct MasterService {
    gateway: Gateway,
}

impl Filter for MasterService {
    type Settings = Settings;

    fn configure(settings: Settings) -> Result<Self, Error> {
        Ok(Self { gateway: Gateway::configure(settings.host.as_deref(), settings.port)? })
    }

    fn plan(&self) -> Plan {
        Plan::matching(["kubelet/services#get;list;watch"])
    }

    fn filter(&self, object: &mut Object<'_>) -> Result<Verdict, Error> {
        if object.is_named("kubernetes")
            && object.namespace().as_deref() == Some("default")
            && object.is("v1", "Service")
        {
            let host = self.gateway.host.to_string();
            object.set(&CLUSTER_IPS, Value::Json(format!("[\"{host}\"]")))?;
            object.set(&CLUSTER_IP, host)?;
            let https = object.column(&PORT_NAMES).rows(|name| name == Some("https"));
            object.set_rows(&PORTS, &https, self.gateway.port)?;
        }
        Ok(Verdict::Keep)
    }
}

weir_filter::export!(MasterService);
weir_filter::cases!(MasterService);
