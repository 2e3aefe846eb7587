//! Names of objects.

/// The longest name of an object.
const MAX: usize = 253;

/// Whether a text is a DNS subdomain (RFC 1123), as the names of most objects are: `validation.IsDNS1123Subdomain`.
#[must_use]
pub fn is_dns_subdomain(text: &str) -> bool {
    let is_edge = |byte: Option<&u8>| byte.is_some_and(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    let is_inner = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || *byte == b'-';
    let is_label = |label: &str| {
        let bytes = label.as_bytes();
        is_edge(bytes.first()) && is_edge(bytes.last()) && bytes.iter().all(is_inner)
    };
    text.len() <= MAX && text.split('.').all(is_label)
}

/// The name of a node as kubelet registers it: without white space around it, in lower case.
///
/// # Errors
/// What remains is no name of a Node, with the reason.
pub fn node_name(text: &str) -> Result<String, String> {
    let name = text.trim().to_lowercase();
    match is_dns_subdomain(&name) {
        true => Ok(name),
        false => Err(format!("{text:?} is not the name of a node: lower-case letters, digits, '-' and '.'")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_called_as_kubelet_calls_it() {
        for (text, name) in [("edge-a", "edge-a"), ("Edge-A", "edge-a"), ("  edge-a \n", "edge-a"), ("1.a", "1.a")] {
            assert_eq!(node_name(text).as_deref(), Ok(name), "{text:?}");
        }
        for text in ["", " ", "edge_a", "edge-", ".a", "a..b", "edge a", &"a".repeat(254), "é"] {
            assert!(node_name(text).unwrap_err().contains("is not the name of a node"), "{text:?}");
        }
    }
}
