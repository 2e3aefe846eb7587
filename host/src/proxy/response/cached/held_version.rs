//! Remembers what a client holds once a view has answered it.

use std::sync::Arc;

use weir_runtime::ChainVersion;

use super::CachedRead;
use crate::proxy::Proxy;
use crate::view::ViewSnapshot;

impl Proxy {
    /// Remembers the version at which the watch of a client ended, and the chain version that made what the client holds.
    pub(super) fn remember_watch(&self, read: &CachedRead, chain: Option<ChainVersion>, version: u64) {
        let chain = chain.unwrap_or(ChainVersion::UNFILTERED);
        self.resume.save(read.client, chain, &version.to_string(), Arc::default());
    }

    /// Remembers what a client holds, so that its next watch continues there.
    pub(super) fn remember_list(&self, read: &CachedRead, snapshot: &ViewSnapshot) {
        let chain = snapshot.chain.unwrap_or(ChainVersion::UNFILTERED);
        self.resume.save_list(read.client, chain, &snapshot.version.to_string(), Arc::default());
    }
}
