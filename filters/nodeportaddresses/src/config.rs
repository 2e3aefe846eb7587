//! Writes `nodePortAddresses` into kube-proxy's configuration.

/// Sets `nodePortAddresses` to these addresses, in any YAML form of the old value, or adds the key. The error gives the reason why
/// the text cannot be edited.
pub(crate) fn with_addresses(config: &str, addresses: &[String]) -> Result<String, String> {
    let mut value = String::from("[");
    for address in addresses {
        let separator = if value.len() > 1 { ", \"" } else { "\"" };
        value = value + separator + address + "\"";
    }
    value.push(']');
    weir_yaml::set(config, "nodePortAddresses", &value)
}

#[cfg(test)]
mod tests;
