//! What the open requests of a port take of the memory.
//!
//! Until its response begins, a request takes its head, a copy of it, and the state of its handler. Then it takes its head, as long as
//! the response lasts. A small field of HTTP/2 is one byte on the wire and a hundred in memory, and a client may open hundreds of
//! thousands of streams.
//!
//! Bounds: [`CLIENT`] and [`ALL`]. Memory: an entry for each client with an open request.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::ConnectionPeer;

/// What the open requests of one client may take.
const CLIENT: usize = 64 << 20;
/// What those of all clients of a port may take, but for those of uid 0: others must not shut out the node's own.
const ALL: usize = 128 << 20;
/// What the handler of a request takes.
const HANDLER: usize = 32 << 10;
/// What a header field takes beside its name and its value, and beside the 32 bytes with which it counts in the size of its head.
const FIELD: usize = 80;
/// The part of a head that counts no more once the response has begun: that of most requests is smaller.
const SMALL: usize = 4 << 10;

/// The memory of the open requests of a port.
#[derive(Debug, Default)]
pub(crate) struct RequestMemory(Mutex<Used>);

#[derive(Debug, Default)]
struct Used {
    all: usize,
    of_client: HashMap<ConnectionPeer, usize>,
}

/// Bytes that count until it is dropped.
#[derive(Debug)]
pub(crate) struct RequestCharge {
    memory: Arc<RequestMemory>,
    client: ConnectionPeer,
    bytes: usize,
}

impl RequestMemory {
    /// Counts a request by the size of its head ([`HeadError::check`](crate::HeadError)) and the number of its fields: what it takes until
    /// its response begins, and what it takes as long as that lasts. `None`: its client, or all together, would exceed their bound.
    pub(crate) fn charge(
        self: &Arc<Self>,
        client: ConnectionPeer,
        size: usize,
        fields: usize,
    ) -> Option<(RequestCharge, RequestCharge)> {
        let head = size + FIELD * fields;
        let lasting = head.saturating_sub(SMALL);
        let bytes = HANDLER + 2 * head;
        let mut used = self.used();
        let of_client = used.of_client.get(&client).copied().unwrap_or_default() + bytes;
        if of_client > CLIENT || used.all + counted(client, bytes) > ALL {
            return None;
        }
        used.all += counted(client, bytes);
        used.of_client.insert(client, of_client);
        let charge = |bytes| RequestCharge { memory: self.clone(), client, bytes };
        Some((charge(bytes - lasting), charge(lasting)))
    }

    fn used(&self) -> MutexGuard<'_, Used> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The part that counts in [`ALL`].
fn counted(client: ConnectionPeer, bytes: usize) -> usize {
    if client == ConnectionPeer::Local(Some(0)) { 0 } else { bytes }
}

impl Drop for RequestCharge {
    fn drop(&mut self) {
        let mut used = self.memory.used();
        used.all = used.all.saturating_sub(counted(self.client, self.bytes));
        if let Some(of_client) = used.of_client.get_mut(&self.client) {
            *of_client = of_client.saturating_sub(self.bytes);
            if *of_client == 0 {
                used.of_client.remove(&self.client);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::head_guard::HeadError;

    const ONE: ConnectionPeer = ConnectionPeer::Local(Some(1000));
    const OTHERS: [ConnectionPeer; 2] = [ConnectionPeer::Local(Some(1)), ConnectionPeer::Local(None)];

    /// Charges a request with so many small fields.
    fn charge(
        memory: &Arc<RequestMemory>,
        client: ConnectionPeer,
        fields: usize,
    ) -> Option<(RequestCharge, RequestCharge)> {
        let mut request = http::Request::new(());
        for n in 0..fields {
            request.headers_mut().insert(http::HeaderName::from_bytes(format!("x-{n}").as_bytes()).unwrap(), n.into());
        }
        memory.charge(client, HeadError::check(&request).unwrap(), fields)
    }

    #[test]
    fn a_client_has_its_share_and_all_clients_have_theirs() {
        let memory = Arc::<RequestMemory>::default();
        let open = |client| std::iter::from_fn(|| charge(&memory, client, 10)).collect::<Vec<_>>();
        let mut charges = open(ONE);
        assert!((1900..2048).contains(&charges.len()), "{}", charges.len());
        let others: Vec<_> = OTHERS.into_iter().flat_map(open).collect();
        assert!((1900..2048).contains(&others.len()), "two of them have what one has left: {}", others.len());
        assert!(charge(&memory, ONE, 10).is_none());
        charges.pop();
        assert!(charge(&memory, ONE, 10).is_some());
        let of_node = open(ConnectionPeer::Local(Some(0)));
        assert_eq!(of_node.len(), charges.len() + 1, "others do not shut out the node's own");
        drop((charges, others, of_node));
        let used = memory.used();
        assert_eq!((used.all, used.of_client.len()), (0, 0));
    }

    #[test]
    fn a_large_head_counts_as_long_as_the_response_and_a_small_one_until_that_begins() {
        let memory = Arc::<RequestMemory>::default();
        for (fields, lasting) in [(10, 0..=0), (1000, 110_000..=130_000)] {
            let (first, last) = charge(&memory, ONE, fields).unwrap();
            assert!(memory.used().all > HANDLER);
            drop(first);
            let all = memory.used().all;
            assert!(lasting.contains(&all), "{fields}: {all}");
            drop(last);
        }
    }
}
