//! # inclusterconfig: kube-proxy uses its in-cluster configuration
//!
//! kube-proxy as installed by kubeadm reads the API server's address from a kubeconfig file, and bypasses this daemon. This
//! filter removes the entry `kubeconfig` from the key `config.conf` of the ConfigMap `kube-system/kube-proxy`, or from those
//! that the settings name, so that kube-proxy uses its in-cluster configuration. An entry with its own lines becomes a comment.
//! Any other entry, such as one in JSON, gets the value `""`. The rest of the text stays.
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
        if let Some(config) = self.config.read(object)
            && let Some(edited) = in_cluster(&config)
        {
            object.set(self.config.at(), edited)?;
        }
        Ok(Verdict::Keep)
    }
}

/// Returns the configuration without its kubeconfig entries; `None` if it has none.
fn in_cluster(config: &str) -> Option<String> {
    // Nearly all objects end here, without parsing.
    if !config.contains("kubeconfig") {
        return None;
    }
    match weir_yaml::without(config, "kubeconfig") {
        Ok(edited) => edited,
        // kube-proxy rejects this text too. The filter still edits the lines that are unambiguous.
        Err(_) => config.lines().any(names_kubeconfig).then(|| commented(config)),
    }
}

/// Returns whether the line is `kubeconfig`, a colon and a value. A comment is not a value.
fn names_kubeconfig(line: &str) -> bool {
    let value = line.trim().strip_prefix("kubeconfig").and_then(|rest| rest.trim_start().strip_prefix(':'));
    value.is_some_and(|value| !matches!(value.trim_start().bytes().next(), None | Some(b'#')))
}

/// Turns those lines into comments and keeps their indentation.
fn commented(config: &str) -> String {
    let mut result = String::with_capacity(config.len() + 1);
    for line in config.split_inclusive('\n') {
        let text = line.trim_start();
        if names_kubeconfig(line) {
            result.push_str(line.get(..line.len() - text.len()).unwrap_or_default());
            result.push('#');
            result.push_str(text);
        } else {
            result.push_str(line);
        }
    }
    result
}

weir_filter::export!(InClusterConfig);
weir_filter::cases!(InClusterConfig);
