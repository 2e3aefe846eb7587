//! Notifications of the kernel about links, addresses and routes (rtnetlink).
//!
//! Changes come in bursts: a link goes up, then its addresses, then its routes. One notification stands for a burst.
//! Memory: the socket's buffer.

use std::io;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::stream::{BoxStream, StreamExt as _};
use rtnetlink::{Handle, MulticastGroup, new_multicast_connection};

use weir_upstream::Tasks;

/// A subscription, and a handle for requests.
pub struct NetlinkEvents {
    handle: Handle,
    /// One item per message of the kernel.
    messages: BoxStream<'static, ()>,
}

impl NetlinkEvents {
    /// Subscribes: every change from now on is notified.
    ///
    /// # Errors
    /// Netlink is not available.
    pub fn subscribe(groups: &[MulticastGroup], tasks: &Tasks) -> io::Result<Self> {
        let (connection, handle, messages) = new_multicast_connection(groups)?;
        tasks.spawn_until_stop(connection);
        Ok(Self { handle, messages: messages.map(|_| ()).boxed() })
    }

    /// For requests.
    #[must_use]
    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Resolves when a burst of changes has lasted for `settle`; false: the connection has ended. Cancel-safe: a burst that
    /// is cut short is notified again.
    pub async fn changed(&mut self, settle: Duration) -> bool {
        if self.messages.next().await.is_none() {
            return false;
        }
        tokio::time::sleep(settle).await;
        while let Some(Some(())) = self.messages.next().now_or_never() {}
        true
    }
}
