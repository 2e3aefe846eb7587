//! # forwardkubesvctraffic: traffic to `default/kubernetes` goes to this node's daemon
//!
//! kube-proxy forwards traffic for the API server's cluster IP to the endpoints of `default/kubernetes`. In the
//! EndpointSlice of that name, this filter replaces the endpoints with the daemon's address, ready, and sets the port named
//! `https` to the daemon's port. It leaves slices of another address family than the daemon's alone.
//!
//! ```yaml
//! - name: forwardkubesvctraffic
//!   module: forwardkubesvctraffic.wasm
//!   settings:
//!     host: 169.254.2.1          # default: the daemon's --pod-address; a loopback address is rejected
//!     port: 10268                # default: the daemon's --secure-port
//! ```

use std::net::IpAddr;

use serde::Deserialize;
use weir_edge::gateway::Gateway;
use weir_filter::{Error, Filter, Object, Path, Plan, Value, Verdict};

static ADDRESS_TYPE: Path = Path::new("addressType");
static ENDPOINTS: Path = Path::new("endpoints");
static PORT_NAMES: Path = Path::new("ports[*].name");
static PORTS: Path = Path::new("ports[*].port");

/// The settings, see the crate's documentation.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Settings {
    host: Option<String>,
    port: Option<u16>,
}

/// The filter.
pub struct ForwardKubeSvcTraffic {
    gateway: Gateway,
}

impl Filter for ForwardKubeSvcTraffic {
    type Settings = Settings;

    fn configure(settings: Settings) -> Result<Self, Error> {
        Ok(Self { gateway: Gateway::configure(settings.host.as_deref(), settings.port)? })
    }

    fn plan(&self) -> Plan {
        Plan::matching(["kube-proxy/endpointslices#get;list;watch"])
    }

    fn filter(&self, object: &mut Object<'_>) -> Result<Verdict, Error> {
        let family = match self.gateway.host {
            IpAddr::V4(_) => "IPv4",
            IpAddr::V6(_) => "IPv6",
        };
        if object.is_named("kubernetes")
            && object.namespace().as_deref() == Some("default")
            && object.is("discovery.k8s.io/v1", "EndpointSlice")
            && object.text(&ADDRESS_TYPE).as_deref() == Some(family)
        {
            let endpoint = format!(r#"[{{"addresses":["{}"],"conditions":{{"ready":true}}}}]"#, self.gateway.host);
            object.set(&ENDPOINTS, Value::Json(endpoint))?;
            let https = object.column(&PORT_NAMES).rows(|name| name == Some("https"));
            object.set_rows(&PORTS, &https, self.gateway.port)?;
        }
        Ok(Verdict::Keep)
    }
}

weir_filter::export!(ForwardKubeSvcTraffic);
weir_filter::cases!(ForwardKubeSvcTraffic);
