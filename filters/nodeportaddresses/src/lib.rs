//! # nodeportaddresses: which of this node's addresses node ports listen on
//!
//! kube-proxy opens node ports on all addresses of a node, unless its configuration limits them to IP blocks. This
//! filter puts that limit, `nodePortAddresses`, into the configuration on its way to kubelet: ConfigMap
//! `kube-system/kube-proxy`, key `config.conf`. Comments and all other text of that YAML stay.
//!
//! Wanted are IP blocks (`10.0.0.0/8`, `fd00::/8`) and the word `default-route`, which stands for the networks of the
//! interfaces that hold a default route (link-local ones aside: every interface has those); or the word `primary`
//! alone. The setting may be overridden with the annotation `nodeport.openyurt.io/addresses`
//! (`10.0.0.0/8,default-route`), on the NodePool and, stronger, on the Node; an annotation that cannot be read is
//! ignored with a warning. Without any of them nothing changes.
//!
//! To kube-proxy, an address family without a block means all addresses of that family. So a family for which nothing
//! is wanted gets a block that holds no address of this node.
//!
//! kube-proxy reads its file at start, and not all versions notice when kubelet swaps it: after a change, restart
//! kube-proxy on the node (`kubectl -n kube-system delete pod -l k8s-app=kube-proxy --field-selector spec.nodeName=…`).
//!
//! ```yaml
//! - name: nodeportaddresses
//!   module: nodeportaddresses.wasm
//!   settings:
//!     addresses: [127.0.0.0/8, default-route]    # or as one text, as in the annotation
//!     nodePool: hangzhou         # default: label apps.openyurt.io/nodepool of this Node
//! ```

mod blocks;
mod config;

use std::fmt::{self, Formatter};

use serde::Deserialize;
use serde::de::{Deserializer, SeqAccess, Visitor};
use weir_edge::pool::LocalPool;
use weir_filter::{Error, Filter, Object, Path, Plan, Verdict, log, node};

use blocks::Wanted;

const ANNOTATION: &str = "nodeport.openyurt.io/addresses";

static CONFIG: Path = Path::new("data['config.conf']");

/// The settings: see the crate's documentation.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Settings {
    addresses: Option<Addresses>,
    node_pool: Option<String>,
}

/// A list of blocks and words, or the same as one text.
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

        // The SDK's reader goes by what is there, not by what is asked for; asking for anything would link float
        // parsing.
        deserializer.deserialize_seq(ListOrText)
    }
}

/// The filter.
pub struct NodePortAddresses {
    wanted: Option<Wanted>,
    pool: LocalPool,
}

impl Filter for NodePortAddresses {
    type Settings = Settings;

    fn configure(settings: Settings) -> Result<Self, Error> {
        let wanted = settings.addresses.map(|items| Wanted::parse(items.0.iter().map(String::as_str)));
        let wanted = wanted.transpose().map_err(|reason| Error::setting("addresses", reason))?;
        Ok(Self { wanted, pool: LocalPool::configure(settings.node_pool)? })
    }

    fn plan(&self) -> Plan {
        Plan::matching(["kubelet/configmaps#get;list;watch"])
            .with(self.pool.node_lookup())
            .with(self.pool.pool_lookup().metadata_only())
    }

    fn filter(&self, object: &mut Object<'_>) -> Result<Verdict, Error> {
        if object.is_named("kube-proxy")
            && object.namespace().as_deref() == Some("kube-system")
            && object.is("v1", "ConfigMap")
            && let Some(config) = object.text(&CONFIG)
            && let Some(list) = self.list()
        {
            object.set(&CONFIG, config::with_addresses(&config, &list).map_err(Error::new)?)?;
        }
        Ok(Verdict::Keep)
    }
}

impl NodePortAddresses {
    /// What is to be written; none if nobody wants anything.
    fn list(&self) -> Option<Vec<String>> {
        let annotated = |holder: &str, annotation: Option<String>| match Wanted::parse(annotation?.split(',')) {
            Ok(wanted) => Some(wanted),
            Err(reason) => {
                log::warn(format_args!("annotation {ANNOTATION} of the {holder} is ignored: {reason}"));
                None
            }
        };
        let overriding = annotated("Node", self.pool.node_annotation(ANNOTATION))
            .or_else(|| annotated("NodePool", self.pool.pool_annotation(ANNOTATION)));
        let wanted = overriding.as_ref().or(self.wanted.as_ref())?;
        Some(wanted.list(&node::addresses()))
    }
}

weir_filter::export!(NodePortAddresses);
weir_filter::cases!(NodePortAddresses);
