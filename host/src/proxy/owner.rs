//! Whose share a request counts in.

use http::HeaderMap;
use weir_store::StoreReader;
use weir_upstream::Identity;

use super::Proxy;
use super::credential::{token_user, user};
use crate::ledger::Owner;
use crate::view::is_node;

impl Proxy {
    /// The owner of what a request makes the daemon hold.
    pub(in crate::proxy) fn owner(&self, identity: Identity, headers: &HeaderMap) -> Owner {
        match identity {
            Identity::Client => Owner::Client(token_user(headers).unwrap_or_else(|| user(identity, headers)).into()),
            identity if is_node(identity, headers) => Owner::Node,
            identity => match StoreReader::of(identity, headers) {
                Some(StoreReader::Daemon) => Owner::Daemon,
                _ => Owner::Client(user(identity, headers).into()),
            },
        }
    }
}
