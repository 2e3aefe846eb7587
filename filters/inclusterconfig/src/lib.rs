//! # inclusterconfig: kube-proxy uses its in-cluster configuration
//!
//! kube-proxy as installed by kubeadm reads the API server's address from a kubeconfig file, and bypasses this daemon. This
//! filter removes the entry `kubeconfig` from the key `config.conf` of the ConfigMap `kube-system/kube-proxy`, or from those
//! that the settings name, so that kube-proxy uses its in-cluster configuration. An entry with its own lines becomes a comment.
//! Any other entry, such as one in JSON, gets the value `""`. The rest of the text stays. A text with the word `kubeconfig` that
//! cannot be edited is an error: one that is not YAML, or where a removed value has an anchor that is used elsewhere.
//!
//! ```yaml
//! - name: inclusterconfig
//!   module: inclusterconfig.wasm
//!   settings:
//!     configMap: kube-system/kube-proxy          # Amazon's add-on: kube-system/kube-proxy-config
//!     key: config.conf                           # Amazon's add-on: config
//! ```

use serde::Deserialize;
use weir_edge::kube_proxy::KubeProxyConfig;
use weir_filter::{Error, Filter, Object, Plan, Verdict};

const KEY: &str = "kubeconfig";

/// The settings, see the crate's documentation.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Settings {
    config_map: Option<String>,
    key: Option<String>,
}

/// The filter.
pub struct InClusterConfig {
    config: KubeProxyConfig,
}

impl Filter for InClusterConfig {
    type Settings = Settings;

    fn configure(settings: Settings) -> Result<Self, Error> {
        Ok(Self { config: KubeProxyConfig::configure(settings.config_map.as_deref(), settings.key.as_deref())? })
    }

    fn plan(&self) -> Plan {
        Plan::matching(["kubelet/configmaps#get;list;watch"])
    }

    fn filter(&self, object: &mut Object<'_>) -> Result<Verdict, Error> {
        // Nearly all configurations end here, without parsing.
        if let Some(config) = self.config.read(object)
            && config.contains(KEY)
        {
            let edited = weir_yaml::without(&config, KEY);
            if let Some(edited) = edited.map_err(|reason| Error::new(format!("{}: {reason}", self.config.key())))? {
                object.set(self.config.at(), edited)?;
            }
        }
        Ok(Verdict::Keep)
    }
}

weir_filter::export!(InClusterConfig);
weir_filter::cases!(InClusterConfig);
