//! What was listed on a connection.
//!
//! A resume state is that of all clients with one credential and one name. After a restart of the daemon, one of them may list
//! while another one continues from the same version of the former process. Only its connection tells that a client holds
//! what this process made.
//!
//! Losing an entry is safe: it costs the client a repeated state. Bound: [`ENTRIES`]; the oldest leave first.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

/// The most entries of a connection. A client has two for each of its informers: for all that it reads of the resource, too.
const ENTRIES: usize = 128;

/// The hashes of the reads whose lists were answered on one connection.
#[derive(Debug, Default)]
pub(in crate::proxy) struct ConnectionLists(Mutex<VecDeque<[u8; 16]>>);

impl ConnectionLists {
    /// Notes a list that is about to be answered.
    pub(in crate::proxy) fn note(&self, read: [u8; 16]) {
        self.locked(|lists| {
            if !lists.contains(&read) {
                lists.push_back(read);
            }
            if lists.len() > ENTRIES {
                lists.pop_front();
            }
        });
    }

    /// Whether a list of this read was answered.
    pub(in crate::proxy) fn contain(&self, read: [u8; 16]) -> bool {
        self.locked(|lists| lists.contains(&read))
    }

    fn locked<T>(&self, act: impl FnOnce(&mut VecDeque<[u8; 16]>) -> T) -> T {
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_lists_are_known() {
        let lists = ConnectionLists::default();
        lists.note([0; 16]);
        assert!(lists.contain([0; 16]) && !lists.contain([1; 16]));
        for n in 1..=ENTRIES as u8 {
            lists.note([n; 16]);
            lists.note([n; 16]);
        }
        assert!(!lists.contain([0; 16]) && lists.contain([1; 16]));
    }
}
