//! Validates the flags that name the other Weirs of the pool.

use std::collections::BTreeSet;
use std::net::IpAddr;

use http::Uri;
use weir_upstream::ServerSource;

use super::flags::ServeFlags;

/// The path below which a Weir serves its peers.
pub const PEER_PATH: &str = "/peer";

/// The Weirs of the pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeersConfig {
    /// The host at which the others reach this Weir; `None` if no list names this node.
    pub(crate) own_host: Option<String>,
    /// The nodes of the others, and from where each is read.
    pub(crate) others: Vec<(String, ServerSource)>,
}

impl PeersConfig {
    /// Returns none without `--peer`. Of several lists that of this node counts.
    pub(super) fn from_flags(flags: &ServeFlags, node: Option<&str>, errors: &mut Vec<String>) -> Option<Self> {
        if flags.peer.is_empty() {
            if flags.peer_ca_file.is_some() {
                errors.push("--peer-ca-file: needs --peer".to_owned());
            }
            return None;
        }
        if flags.client_ca_file.is_none() {
            errors.push("--peer: needs --client-ca-file, by which peers are recognized".to_owned());
        }
        let Some(kubeconfig) = &flags.node_kubeconfig else {
            errors.push("--peer: needs --node-kubeconfig, whose client certificate peers recognize".to_owned());
            return None;
        };
        let pools: Vec<_> = flags.peer.iter().map(|list| pool(list, errors)).collect();
        if pools.len() > 1 && pools.iter().any(|pool| pool.len() == 1) {
            errors.push("--peer: a list has one node: give all nodes of a pool in one list, with commas".to_owned());
        }
        let mut nodes = BTreeSet::new();
        for (name, _) in pools.iter().flatten() {
            if !nodes.insert(name) {
                errors.push(format!("--peer: node {name} is given twice"));
            }
        }
        let is_own = |(name, _): &&(String, Uri)| Some(name.as_str()) == node;
        let chosen = match pools.as_slice() {
            [only] => only.as_slice(),
            several => several.iter().find(|pool| pool.iter().any(|peer| is_own(&peer))).map_or(&[][..], Vec::as_slice),
        };
        let own_host = chosen.iter().find(is_own).and_then(|(_, url)| url.host()).map(host_name);
        let others = chosen.iter().filter(|peer| !is_own(peer)).map(|(name, url)| {
            let (kubeconfig, certificate_authority) = (kubeconfig.clone(), flags.peer_ca_file.clone());
            (name.clone(), ServerSource::Peer { url: url.clone(), kubeconfig, certificate_authority })
        });
        Some(Self { own_host, others: others.collect() })
    }
}

/// A host as certificates have it: an IPv6 address without brackets, in its short form.
fn host_name(host: &str) -> String {
    let host = host.trim_matches(['[', ']']);
    host.parse::<IpAddr>().map_or_else(|_| host.to_ascii_lowercase(), |address| address.to_string())
}

/// Parses the list of one pool.
fn pool(list: &str, errors: &mut Vec<String>) -> Vec<(String, Uri)> {
    let mut peers = Vec::new();
    for text in list.split(',') {
        match peer(text) {
            Some(peer) => peers.push(peer),
            None => errors.push(format!("--peer: {text:?} is not NODE=URL, e.g. edge-a=https://10.0.0.1:10268")),
        }
    }
    peers
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
    use clap::{Args as _, FromArgMatches as _};

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

    /// What a node uses of `--peer`: its own host, and the others' nodes.
    fn chosen(node: &str, lists: &[&str]) -> Result<(Option<String>, Vec<String>), Vec<String>> {
        let files = ["--client-ca-file=ca", "--node-kubeconfig=kubelet.conf"].map(str::to_owned);
        let lists = lists.iter().map(|list| format!("--peer={list}"));
        let command = ServeFlags::augment_args(clap::Command::new("serve").no_binary_name(true));
        let flags = ServeFlags::from_arg_matches(&command.get_matches_from(files.into_iter().chain(lists))).unwrap();
        let mut errors = Vec::new();
        let peers = PeersConfig::from_flags(&flags, Some(node), &mut errors);
        let Some(peers) = peers.filter(|_| errors.is_empty()) else { return Err(errors) };
        Ok((peers.own_host, peers.others.into_iter().map(|(node, _)| node).collect()))
    }

    #[test]
    fn of_several_lists_that_of_the_node_counts() {
        let one = "a=https://10.0.0.1:10268,b=https://[fd00:0::2]:10268";
        let other = "c=https://10.1.0.1:10268,d=https://D.example:10268";
        let names = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(chosen("a", &[one]), Ok((Some("10.0.0.1".to_owned()), names(&["b"]))));
        assert_eq!(chosen("b", &[one, other]), Ok((Some("fd00::2".to_owned()), names(&["a"]))));
        assert_eq!(chosen("d", &[one, other]), Ok((Some("d.example".to_owned()), names(&["c"]))));
        // One list need not name the node. Of several it is not known which is meant.
        assert_eq!(chosen("x", &[one]), Ok((None, names(&["a", "b"]))));
        assert_eq!(chosen("x", &[one, other]), Ok((None, Vec::new())));
        let alone = chosen("a", &[one, "c=https://10.1.0.1:10268"]);
        assert_eq!(
            alone,
            Err(names(&["--peer: a list has one node: give all nodes of a pool in one list, with commas"]))
        );
        let twice = chosen("a", &[one, "c=https://10.1.0.1:10268,a=https://10.0.0.3:10268"]);
        assert_eq!(twice, Err(names(&["--peer: node a is given twice"])));
    }
}
