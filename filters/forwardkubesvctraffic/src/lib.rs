//! # forwardkubesvctraffic: traffic to `default/kubernetes` goes to this node's daemon
//!
//! kube-proxy forwards traffic for the API server's cluster IP to the endpoints of `default/kubernetes`. Of the EndpointSlices
//! of that Service with the address family of `host`, the first by name gets one endpoint, the daemon's address, ready, and the
//! daemon's port in its port named `https`. The filter empties the other ones, whose endpoints would bypass the daemon. It finds
//! the slices by their label, because mirrored ones have generated names. It leaves slices of another address family alone.
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
use weir_edge::addresses::SERVICE_LABEL;
use weir_edge::gateway::Gateway;
use weir_filter::{Error, Filter, Lookup, Object, Path, Plan, StringSet, Value, Verdict, cluster};

const SLICES: &str = "endpointslices.discovery.k8s.io";
const NAMESPACE: &str = "default";
const SERVICE: &str = "kubernetes";

static ADDRESS_TYPE: Path = Path::new("addressType");
static ENDPOINTS: Path = Path::new("endpoints");
static ADDRESSES: Path = Path::new("endpoints[*].addresses");
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
    /// The label selector of the Service's slices.
    selector: String,
    /// The empty set, in which no endpoint is.
    none: StringSet,
}

impl Filter for ForwardKubeSvcTraffic {
    type Settings = Settings;

    fn configure(settings: Settings) -> Result<Self, Error> {
        Ok(Self {
            gateway: Gateway::configure(settings.host.as_deref(), settings.port)?,
            selector: format!("{SERVICE_LABEL}={SERVICE}"),
            none: [""; 0].into_iter().collect(),
        })
    }

    fn plan(&self) -> Plan {
        Plan::matching(["kube-proxy/endpointslices#get;list;watch"])
            .with(Lookup::of(SLICES).versions(["v1"]).selected(&self.selector).optional())
    }

    fn filter(&self, object: &mut Object<'_>) -> Result<Verdict, Error> {
        let family = match self.gateway.host {
            IpAddr::V4(_) => "IPv4",
            IpAddr::V6(_) => "IPv6",
        };
        if object.label(SERVICE_LABEL).as_deref() != Some(SERVICE)
            || object.namespace().as_deref() != Some(NAMESPACE)
            || !object.is("discovery.k8s.io/v1", "EndpointSlice")
            || object.text(&ADDRESS_TYPE).as_deref() != Some(family)
        {
            return Ok(Verdict::Keep);
        }
        if self.is_first(&object.name(), family) {
            let endpoint = format!(r#"[{{"addresses":["{}"],"conditions":{{"ready":true}}}}]"#, self.gateway.host);
            object.set(&ENDPOINTS, Value::Json(endpoint))?;
            let https = object.column(&PORT_NAMES).rows(|name| name == Some("https"));
            object.set_rows(&PORTS, &https, self.gateway.port)?;
        } else {
            object.retain_in(&ADDRESSES, &self.none)?;
        }
        Ok(Verdict::Keep)
    }
}

impl ForwardKubeSvcTraffic {
    /// Returns whether no slice of the Service and family has a name before this one. Slices that the lookup does not have
    /// yet do not count: until it has them, there may be two first ones, and both lead to the daemon.
    fn is_first(&self, name: &str, family: &str) -> bool {
        let slices = cluster::find(SLICES, Some(NAMESPACE), &self.selector);
        (0..slices.count())
            .filter_map(|index| slices.at(index))
            .take_while(|slice| slice.name().as_str() < name)
            .all(|slice| slice.text(&ADDRESS_TYPE).as_deref() != Some(family))
    }
}

weir_filter::export!(ForwardKubeSvcTraffic);
weir_filter::cases!(ForwardKubeSvcTraffic);
