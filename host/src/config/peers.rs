//! Validates the flags that name the other Weirs of the pool.

use http::Uri;
use weir_upstream::ServerSource;

use super::flags::ServeFlags;
use super::secure::SecureConfig;

/// The path below which a Weir serves its peers.
pub const PEER_PATH: &str = "/peer";

/// The Weirs of the pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeersConfig {
    /// Their nodes, and from where each is read. The list may be the same on all nodes.
    peers: Vec<(String, ServerSource)>,
}

impl PeersConfig {
    /// The others than that of this node.
    pub(crate) fn others<'a>(&'a self, own: &'a str) -> impl Iterator<Item = &'a (String, ServerSource)> {
        self.peers.iter().filter(move |(node, _)| node != own)
    }

    /// Returns none without `--peer`.
    pub(super) fn from_flags(
        flags: &ServeFlags,
        secure: Option<&SecureConfig>,
        errors: &mut Vec<String>,
    ) -> Option<Self> {
        if flags.peer.is_empty() {
            if flags.peer_ca_file.is_some() {
                errors.push("--peer-ca-file: needs --peer".to_owned());
            }
            return None;
        }
        if secure.is_none_or(|secure| secure.client_ca.is_none()) {
            errors.push("--peer: needs --client-ca-file, by which peers are recognized".to_owned());
        }
        let Some(kubeconfig) = &flags.node_kubeconfig else {
            errors.push("--peer: needs --node-kubeconfig, whose client certificate peers recognize".to_owned());
            return None;
        };
        let mut peers: Vec<(String, ServerSource)> = Vec::new();
        for text in &flags.peer {
            let Some((node, url)) = peer(text) else {
                errors.push(format!("--peer: {text:?} is not NODE=URL, e.g. edge-a=https://10.0.0.1:10268"));
                continue;
            };
            if peers.iter().any(|(other, _)| *other == node) {
                errors.push(format!("--peer: node {node} is given twice"));
            }
            let (kubeconfig, certificate_authority) = (kubeconfig.clone(), flags.peer_ca_file.clone());
            peers.push((node, ServerSource::Peer { url, kubeconfig, certificate_authority }));
        }
        (!peers.is_empty()).then_some(Self { peers })
    }
}

/// Parses `NODE=URL`, and adds the path for peers.
fn peer(text: &str) -> Option<(String, Uri)> {
    let (node, url) = text.split_once('=')?;
    let url: Uri = url.parse().ok()?;
    let plain = url.scheme_str() == Some("https") && url.path_and_query().is_none_or(|rest| rest == "/");
    let named = !node.is_empty()
        && node.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(&byte));
    let authority = url.authority().filter(|authority| plain && named && !authority.host().is_empty())?;
    let url = Uri::builder().scheme("https").authority(authority.clone()).path_and_query(PEER_PATH).build().ok()?;
    Some((node.to_owned(), url))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_is_a_node_and_an_https_address() {
        let (node, url) = peer("edge-a=https://10.0.0.1:10268").unwrap();
        assert_eq!((node.as_str(), url.to_string().as_str()), ("edge-a", "https://10.0.0.1:10268/peer"));
        assert!(peer("edge-a=https://[fd00::1]:10268/").is_some());
        for text in [
            "https://10.0.0.1:10268",
            "edge-a",
            "edge-a=http://10.0.0.1:10268",
            "edge-a=https://10.0.0.1/x",
            "=https://10.0.0.1",
            "Edge A=https://10.0.0.1",
            "edge-a=https://",
        ] {
            assert!(peer(text).is_none(), "{text}");
        }
    }
}
