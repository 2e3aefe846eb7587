//! What one filter read beside its objects, so that a change that counts is told from one that does not: a Node whose
//! heartbeat moved is no change to a filter that read its pool label.
//!
//! Bounded by [`READS`]; past it every change of a looked-up kind counts, which costs re-lists, never correctness.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use tokio::sync::watch;

use crate::{Read, Recorder, Snapshot};

/// Reads remembered per filter.
const READS: usize = 100_000;

/// The recorded reads of one filter, and the generation that moves when one of them reads differently.
#[derive(Debug)]
pub(super) struct Reads {
    identity: u64,
    table: Mutex<Table>,
    generation: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct Table {
    values: HashMap<Read, u64, foldhash::fast::RandomState>,
    overflowed: bool,
}

impl Default for Reads {
    fn default() -> Self {
        static IDENTITIES: AtomicU64 = AtomicU64::new(1);
        let identity = IDENTITIES.fetch_add(1, Ordering::Relaxed);
        Self { identity, table: Mutex::default(), generation: watch::Sender::new(0) }
    }
}

impl Reads {
    /// How often something that was read has changed. Follow it with [`Reads::subscribe`].
    pub(super) fn generation(&self) -> u64 {
        *self.generation.borrow()
    }

    /// The generation as a channel.
    pub(super) fn subscribe(&self) -> watch::Receiver<u64> {
        self.generation.subscribe()
    }

    /// Reads again what `concerns` selects, and moves the generation if a value differs. True if it moved.
    pub(super) fn validate(&self, snapshot: &dyn Snapshot, concerns: impl Fn(&Read) -> bool) -> bool {
        let mut table = self.lock();
        let differs = table.overflowed
            || table.values.iter().any(|(read, value)| concerns(read) && read.value(snapshot) != *value);
        if differs {
            self.advance(&mut table);
        }
        differs
    }

    /// What was recorded belongs to answers that are now out of date; those given from here on record anew. Both happen
    /// under the table's lock: an answer that began after the generation moved keeps what it records.
    fn advance(&self, table: &mut Table) {
        *table = Table::default();
        self.generation.send_modify(|generation| *generation += 1);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Recorder for Reads {
    fn identity(&self) -> u64 {
        self.identity
    }

    fn generation(&self) -> u64 {
        Self::generation(self)
    }

    fn note(&self, read: &Read, value: u64) {
        let mut table = self.lock();
        match table.values.get(read) {
            Some(known) if *known == value => {}
            // The value moved between two reads: what was answered from the first is out of date.
            Some(_) => {
                self.advance(&mut table);
                table.values.insert(read.clone(), value);
            }
            None if table.values.len() >= READS => table.overflowed = true,
            None => {
                table.values.insert(read.clone(), value);
            }
        }
    }
}
