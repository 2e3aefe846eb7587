//! # nodeportaddresses: the node addresses on which node ports listen
//!
//! kube-proxy opens node ports on all addresses of a node, unless its configuration restricts them to IP blocks. This filter
//! writes the restriction, `nodePortAddresses`, into the configuration on its way to kubelet: ConfigMap
//! `kube-system/kube-proxy`, key `config.conf`, or those that the settings name. The text may be YAML or JSON. Comments and all
//! other text stay. A text that cannot be edited is an error: one that is not YAML, or whose old value has an anchor that is
//! used elsewhere.
//!
//! The setting `addresses` is a list of IP blocks (`10.0.0.0/8`, `fd00::/8`) and the word `default-route`, or the word
//! `primary` alone. `default-route` means the networks of the interfaces with a default route, except link-local ones. The
//! annotation `nodeport.openyurt.io/addresses` (`10.0.0.0/8,default-route`) on the NodePool overrides the setting, and the
//! same annotation on the Node overrides both. The filter ignores an invalid annotation and logs a warning. Without setting
//! and annotations it changes nothing.
//!
//! For kube-proxy, an address family without a block means all addresses of that family. For a family that is not requested,
//! the filter therefore writes a block that contains no address of this node.
//!
//! kube-proxy reads its file at start, and not all versions notice when kubelet replaces it. After a change, restart
//! kube-proxy on the node (`kubectl -n kube-system delete pod -l k8s-app=kube-proxy --field-selector spec.nodeName=…`).
//!
//! ```yaml
//! - name: nodeportaddresses
//!   module: nodeportaddresses.wasm
//!   settings:
//!     addresses: [127.0.0.0/8, default-route]    # or one string, as in the annotation
//!     nodePool: hangzhou         # default: label apps.openyurt.io/nodepool of this Node
//!     configMap: kube-system/kube-proxy          # Amazon's add-on: kube-system/kube-proxy-config
//!     key: config.conf                           # Amazon's add-on: config
//! ```

mod blocks;
mod config;

use std::fmt::{self, Formatter};

use serde::Deserialize;
use serde::de::{Deserializer, SeqAccess, Visitor};
use weir_edge::kube_proxy::KubeProxyConfig;
use weir_edge::pool::LocalPool;
use weir_filter::{Error, Filter, Object, Plan, Verdict, log, node};

use blocks::Wanted;

const ANNOTATION: &str = "nodeport.openyurt.io/addresses";

/// The settings, see the crate's documentation.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Settings {
    addresses: Option<Addresses>,
    node_pool: Option<String>,
    config_map: Option<String>,
    key: Option<String>,
}

/// A list of blocks and words, from a list or a comma-separated string.
struct Addresses(Vec<String>);

impl<'de> Deserialize<'de> for Addresses {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ListOrText;

        impl<'de> Visitor<'de> for ListOrText {
            type Value = Addresses;

            fn expecting(&self, f: &mut Formatter<'_>) -> fmt::Result {
                f.write_str("a list of IP blocks")
            }

            fn visit_str<E>(self, text: &str) -> Result<Addresses, E> {
                Ok(Addresses(text.split(',').map(str::to_owned).collect()))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Addresses, A::Error> {
                let mut items = Vec::new();
                while let Some(item) = list.next_element()? {
                    items.push(item);
                }
                Ok(Addresses(items))
            }
        }

        // The SDK's deserializer ignores this hint and calls the visitor for the value that it finds. `deserialize_any`
        // would link float parsing.
        deserializer.deserialize_seq(ListOrText)
    }
}

/// The filter.
pub struct NodePortAddresses {
    wanted: Option<Wanted>,
    pool: LocalPool,
    config: KubeProxyConfig,
}

impl Filter for NodePortAddresses {
    type Settings = Settings;

    fn configure(settings: Settings) -> Result<Self, Error> {
        let wanted = settings.addresses.map(|items| Wanted::parse(items.0.iter().map(String::as_str)));
        let wanted = wanted.transpose().map_err(|reason| Error::setting("addresses", reason))?;
        let config = KubeProxyConfig::configure(settings.config_map.as_deref(), settings.key.as_deref())?;
        Ok(Self { wanted, pool: LocalPool::configure(settings.node_pool)?, config })
    }

    fn plan(&self) -> Plan {
        Plan::matching(["kubelet/configmaps#get;list;watch"])
            .with(self.pool.node_lookup())
            .with(self.pool.pool_lookup().metadata_only())
    }

    fn filter(&self, object: &mut Object<'_>) -> Result<Verdict, Error> {
        if let Some(config) = self.config.read(object)
            && let Some(list) = self.list()?
        {
            let edited = config::with_addresses(&config, &list);
            let edited = edited.map_err(|reason| Error::new(format!("{}: {reason}", self.config.key())))?;
            object.set(self.config.at(), edited)?;
        }
        Ok(Verdict::Keep)
    }
}

impl NodePortAddresses {
    /// Returns the list to write, or none if neither the setting nor an annotation requests anything.
    fn list(&self) -> Result<Option<Vec<String>>, Error> {
        let annotated = |holder: &str, annotation: Option<String>| match Wanted::parse(annotation?.split(',')) {
            Ok(wanted) => Some(wanted),
            Err(reason) => {
                log::warn(format_args!("ignoring invalid annotation {ANNOTATION} of the {holder}: {reason}"));
                None
            }
        };
        let overriding = match annotated("Node", self.pool.node_annotation(ANNOTATION)?) {
            Some(wanted) => Some(wanted),
            None => annotated("NodePool", self.pool.pool_annotation(ANNOTATION)?),
        };
        let wanted = overriding.as_ref().or(self.wanted.as_ref());
        Ok(wanted.map(|wanted| wanted.list(&node::addresses())))
    }
}

weir_filter::export!(NodePortAddresses);
weir_filter::cases!(NodePortAddresses);
