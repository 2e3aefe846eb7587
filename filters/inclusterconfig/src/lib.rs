//! # inclusterconfig: kube-proxy uses its in-cluster configuration
//!
//! kube-proxy as installed by kubeadm reads the API server's address from a kubeconfig file, and bypasses this daemon. In the
//! ConfigMap `kube-system/kube-proxy`, key `config.conf`, this filter turns the line `kubeconfig: …` into a comment, so that
//! kube-proxy uses its in-cluster configuration. The rest of the text stays. The filter has no settings.
//!
//! ```yaml
//! - name: inclusterconfig
//!   module: inclusterconfig.wasm
//! ```

use serde::Deserialize;
use weir_filter::{Error, Filter, Object, Path, Plan, Verdict};

static CONFIG: Path = Path::new("data['config.conf']");

/// This filter has no settings.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {}

/// The filter.
pub struct InClusterConfig;

impl Filter for InClusterConfig {
    type Settings = Settings;

    fn configure(_: Settings) -> Result<Self, Error> {
        Ok(Self)
    }

    fn plan(&self) -> Plan {
        Plan::matching(["kubelet/configmaps#get;list;watch"])
    }

    fn filter(&self, object: &mut Object<'_>) -> Result<Verdict, Error> {
        if object.is_named("kube-proxy")
            && object.namespace().as_deref() == Some("kube-system")
            && object.is("v1", "ConfigMap")
            && let Some(config) = object.text(&CONFIG)
            && config.lines().any(names_kubeconfig)
        {
            object.set(&CONFIG, commented(&config))?;
        }
        Ok(Verdict::Keep)
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
