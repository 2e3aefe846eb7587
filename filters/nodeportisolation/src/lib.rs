//! # nodeportisolation: node ports only in the node pools that a Service names
//!
//! A Service of type NodePort or LoadBalancer names the pools in which its node ports are open, in the annotation
//! `nodeport.openyurt.io/listen`. `foo, bar` opens them in these two pools, `-foo, *` in all pools except foo. A pool that is
//! not named is closed, unless `*` is listed. The first item for a name applies, and an empty value closes all pools. The
//! filter changes nothing if the node is in no pool, or if the Service has no annotation.
//!
//! In a closed pool, clients can still use the Service through its cluster IP. A NodePort Service becomes a ClusterIP Service.
//! A LoadBalancer Service keeps its addresses and loses its node ports.
//!
//! ```yaml
//! - name: nodeportisolation
//!   module: nodeportisolation.wasm
//!   settings:
//!     nodePool: hangzhou         # default: label apps.openyurt.io/nodepool of this Node
//!     whenClosed: clusterip      # drop: hide the whole Service, as YurtHub does, including its cluster IP
//! ```

use serde::Deserialize;
use weir_edge::pool::LocalPool;
use weir_filter::{Error, Filter, Object, Path, Plan, Verdict, log};

const LISTEN: &str = "nodeport.openyurt.io/listen";

static TYPE: Path = Path::new("spec.type");
static NODE_PORTS: Path = Path::new("spec.ports[*].nodePort");
static EXTERNAL_IPS: Path = Path::new("spec.externalIPs[*]");
static EXTERNAL_POLICY: Path = Path::new("spec.externalTrafficPolicy");
static ALLOCATE: Path = Path::new("spec.allocateLoadBalancerNodePorts");
static HEALTH_PORT: Path = Path::new("spec.healthCheckNodePort");

/// The settings, see the crate's documentation.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Settings {
    node_pool: Option<String>,
    when_closed: WhenClosed,
}

/// The handling of a Service whose node ports are closed in this pool.
#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum WhenClosed {
    #[default]
    ClusterIp,
    Drop,
}

/// The filter.
pub struct NodePortIsolation {
    pool: LocalPool,
    when_closed: WhenClosed,
}

impl Filter for NodePortIsolation {
    type Settings = Settings;

    fn configure(settings: Settings) -> Result<Self, Error> {
        Ok(Self { pool: LocalPool::configure(settings.node_pool)?, when_closed: settings.when_closed })
    }

    fn plan(&self) -> Plan {
        Plan::matching(["kube-proxy/services#get;list;watch"]).with_all(self.pool.lookup())
    }

    fn filter(&self, object: &mut Object<'_>) -> Result<Verdict, Error> {
        let Some(listen) = object.annotation(LISTEN) else {
            return Ok(Verdict::Keep);
        };
        let service = object.text(&TYPE).unwrap_or_default();
        if !matches!(service.as_str(), "NodePort" | "LoadBalancer") {
            return Ok(Verdict::Keep);
        }
        let Some(pool) = self.pool.name()? else {
            return Ok(Verdict::Keep);
        };
        // The kind comes last, because nearly every object here is a Service: it separates the fewest traces.
        if is_open(&listen, &pool) || !object.is("v1", "Service") {
            return Ok(Verdict::Keep);
        }
        log::debug(format_args!("the annotation {LISTEN} does not open node ports in node pool {pool}"));
        match self.when_closed {
            WhenClosed::Drop => return Ok(Verdict::Hide),
            WhenClosed::ClusterIp if service == "NodePort" => {
                object.set(&TYPE, "ClusterIP")?;
                // The policy also applies to external IPs. Without them, the API server would reject it.
                if object.lengths(&EXTERNAL_IPS).iter().sum::<u32>() == 0 {
                    object.remove(&EXTERNAL_POLICY)?;
                }
            }
            WhenClosed::ClusterIp => {
                object.set(&ALLOCATE, false)?;
                object.remove(&HEALTH_PORT)?;
            }
        }
        object.remove(&NODE_PORTS)?;
        Ok(Verdict::Keep)
    }
}

/// Returns whether the annotation opens node ports in this pool. The first item for the pool applies, otherwise the
/// first `*`.
fn is_open(listen: &str, pool: &str) -> bool {
    let first = |wanted: &str| {
        let items = listen.split(',').map(str::trim);
        items
            .map(|item| item.strip_prefix('-').map_or((item, true), |name| (name, false)))
            .find(|(name, _)| *name == wanted)
    };
    first(pool).or_else(|| first("*")).is_some_and(|(_, open)| open)
}

weir_filter::export!(NodePortIsolation);
weir_filter::cases!(NodePortIsolation);
