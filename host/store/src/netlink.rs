//! Kernel notifications about links, addresses and routes (rtnetlink).
//!
//! Changes come in bursts: a link goes up, then its addresses, then its routes. One notification stands for a burst.
//! Memory: the socket's buffer.

use std::io;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::stream::{BoxStream, StreamExt as _};
use rtnetlink::{Handle, MulticastGroup, new_connection, new_multicast_connection};

use weir_upstream::Tasks;

/// A subscription to kernel notifications, and a handle for requests.
pub struct NetlinkEvents {
    handle: Handle,
    /// One item per kernel message.
    messages: BoxStream<'static, ()>,
}

impl NetlinkEvents {
    /// Subscribes to the given multicast groups.
    ///
    /// # Errors
    /// The netlink socket cannot be opened.
    pub fn subscribe(groups: &[MulticastGroup], tasks: &Tasks) -> io::Result<Self> {
        let (notifications, _, messages) = new_multicast_connection(groups)?;
        // A member of a group gets the notification of its own change with the number of its request: over one socket it would
        // be taken for a part of the response.
        let (requests, handle, _) = new_connection()?;
        tasks.spawn_until_stop(notifications);
        tasks.spawn_until_stop(requests);
        Ok(Self { handle, messages: messages.map(|_| ()).boxed() })
    }

    /// The handle for requests.
    #[must_use]
    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Waits for a notification, then for `settle`, and drops the notifications of that time. Returns false if the connection
    /// has ended.
    ///
    /// A cancelled call may have consumed a notification, so the caller must read the state again after it.
    pub async fn changed(&mut self, settle: Duration) -> bool {
        if self.messages.next().await.is_none() {
            return false;
        }
        tokio::time::sleep(settle).await;
        while let Some(Some(())) = self.messages.next().now_or_never() {}
        true
    }
}
