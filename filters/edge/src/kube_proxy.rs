//! kube-proxy's configuration in a ConfigMap: the settings `configMap` and `key` of two filters. The defaults are the names
//! that kubeadm uses; other installers use others, such as Amazon's add-on `kube-proxy-config` and `config`.

use weir_filter::{Error, Object, Path};

/// The ConfigMap with kube-proxy's configuration.
#[derive(Debug)]
pub struct KubeProxyConfig {
    namespace: String,
    name: String,
    key: String,
    at: Path,
}

impl KubeProxyConfig {
    /// Creates it from the settings `configMap` (a name in `kube-system`, or namespace/name) and `key`.
    pub fn configure(config_map: Option<&str>, key: Option<&str>) -> Result<Self, Error> {
        let config_map = config_map.unwrap_or("kube-proxy");
        let (namespace, name) = config_map.split_once('/').unwrap_or(("kube-system", config_map));
        if !is_name(namespace) || !is_name(name) {
            let reason = format!("`{config_map}` is neither a name in kube-system nor of the form namespace/name");
            return Err(Error::setting("configMap", reason));
        }
        let key = key.unwrap_or("config.conf");
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
        if key.is_empty() || key.len() > 253 || !key.bytes().all(plain) {
            return Err(Error::setting("key", format!("`{key}` is not a key of a ConfigMap")));
        }
        let at = Path::parse(&format!("data['{key}']")).map_err(|error| Error::setting("key", error))?;
        Ok(Self { namespace: namespace.to_owned(), name: name.to_owned(), key: key.to_owned(), at })
    }

    /// Returns the configuration if this object is the ConfigMap and has the key.
    pub fn read(&self, object: &Object<'_>) -> Option<String> {
        let is_it = object.is_named(&self.name)
            && object.namespace().as_deref() == Some(&self.namespace)
            && object.is("v1", "ConfigMap");
        if is_it { object.text(&self.at) } else { None }
    }

    /// Returns the path of the configuration.
    pub fn at(&self) -> &Path {
        &self.at
    }

    /// Returns the key, for messages.
    pub fn key(&self) -> &str {
        &self.key
    }
}

/// Returns whether the text can be the name of a namespace or a ConfigMap.
fn is_name(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'.');
    !text.is_empty() && text.len() <= 253 && text.bytes().all(plain)
}
