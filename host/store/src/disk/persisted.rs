//! What of one store is on disk, and how it follows the store in memory.
//!
//! A store on disk is a log: a change appends the object to a new segment, so that many small changes of large pages cost
//! what they weigh. Superseded records are garbage. When there is more garbage than objects, the oldest segments are
//! dropped and what is still valid in them is appended again. Each changed byte pays for less than one moved byte.

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Weak};

use rpds::RedBlackTreeMapSync;
use tokio::time::Instant;

use super::config::Confidentiality;
use super::database::{Database, WriteBatch};
use super::error::DiskError;
use super::seal::{CacheKey, seal, unseal};
use super::segment::{SegmentRecord, object_len};
use super::store_row::{StoreRow, segment_place};
use crate::StoreKey;
use crate::cache::{Object, ResourceStore, Snapshot};

/// The size of a segment before compression.
const SEGMENT: usize = 256 << 10;
/// The size of an encrypted segment, which is not compressed.
const ENCRYPTED_SEGMENT: usize = 32 << 10;
/// Garbage that does not count.
const SLACK: u64 = 256 << 10;
/// The most bytes that a quiet store saves up for moving records.
const MAX_CREDIT: i64 = 1 << 20;

/// The state of one store on disk.
#[derive(Clone)]
pub(super) struct Persisted {
    pub(super) id: u64,
    pub(super) row: StoreRow,
    /// The objects on disk. They share their bytes with the store.
    objects: RedBlackTreeMapSync<StoreKey, Arc<Object>>,
    segments: VecDeque<SegmentSize>,
    /// The bytes of the records that no later record supersedes.
    live: u64,
    /// How many bytes of old records may be moved: less than the bytes of changes so far.
    credit: i64,
    /// The position in the history of a store; `None` if it does not continue what is on disk. A store that is opened again
    /// has another history.
    position: Option<(Weak<ResourceStore>, u64)>,
    /// When the row was written last; `None` if that was before this process started, or never.
    pub(super) committed: Option<Instant>,
    /// Records that are not in a segment yet.
    buffer: Vec<u8>,
}

#[derive(Debug, Clone)]
struct SegmentSize {
    sequence: u64,
    /// The bytes of its records.
    records: u64,
    /// The bytes on disk.
    stored: u64,
}

/// The changes that bring a store on disk up to date.
pub(super) struct StoreDiff {
    target: Arc<Snapshot>,
    position: (Weak<ResourceStore>, u64),
    records: Vec<SegmentRecord>,
    rewrite: bool,
    refused: bool,
}

impl StoreDiff {
    /// Whether objects change, and not the version alone.
    pub(super) fn changes_objects(&self) -> bool {
        self.rewrite || !self.records.is_empty()
    }

    /// Whether the API server refuses the reader of the store.
    pub(super) fn is_refused(&self) -> bool {
        self.refused
    }

    /// The resourceVersion after the changes.
    pub(super) fn version(&self) -> u64 {
        self.target.version
    }
}

impl Persisted {
    /// A store that is not on disk yet.
    pub(super) fn empty(id: u64, row: StoreRow) -> Self {
        Self {
            id,
            row,
            objects: RedBlackTreeMapSync::new_sync(),
            segments: VecDeque::new(),
            live: 0,
            credit: 0,
            position: None,
            committed: None,
            buffer: Vec::new(),
        }
    }

    /// Reads a store. Everything that its row promises must be there and be what was written.
    pub(super) fn load(database: &Database, id: u64, row: StoreRow, key: Option<&CacheKey>) -> Result<Self, DiskError> {
        let mut loaded = Self::empty(id, row);
        let mut expected = loaded.row.segments.clone();
        database.segments(id, |sequence, blob| {
            if expected.next() != Some(sequence) {
                return Err(DiskError::Damaged(format!("segment {sequence} does not follow its predecessor")));
            }
            let records = unseal(&segment_place(id, sequence), &blob, key)?;
            let mut rest = records.as_slice();
            while !rest.is_empty() {
                loaded.apply(&SegmentRecord::decode(&mut rest)?);
            }
            let (records, stored) = (records.len() as u64, blob.len() as u64);
            loaded.segments.push_back(SegmentSize { sequence, records, stored });
            Ok(())
        })?;
        let complete = expected.is_empty() && loaded.objects.size() as u64 == loaded.row.objects;
        if !complete {
            return Err(DiskError::Damaged("segments or objects are missing".to_owned()));
        }
        Ok(loaded)
    }

    /// The objects on disk.
    pub(super) fn snapshot(&self) -> Snapshot {
        let version = self.row.version;
        Snapshot { version, format: self.row.format(), objects: self.objects.clone(), changed: version }
    }

    /// Finds what has changed in the store since the last commit.
    pub(super) fn diff(&self, store: &Arc<ResourceStore>) -> StoreDiff {
        let (target, position) = store.snapshot_and_position();
        let rewrite = self.row.format() != target.format;
        let same_history = |(of, _): &&(Weak<ResourceStore>, u64)| !rewrite && of.as_ptr() == Arc::as_ptr(store);
        let events = self.position.as_ref().filter(same_history).and_then(|(_, from)| {
            let from = *from;
            let count = usize::try_from(position.checked_sub(from)?).ok()?;
            store.events_from(from, count).ok()
        });
        let keys: BTreeSet<&StoreKey> = match &events {
            Some(events) => events.iter().filter_map(|event| event.key()).collect(),
            None => self.objects.keys().chain(target.objects.keys()).collect(),
        };
        let records = keys.into_iter().filter_map(|key| {
            let old = self.objects.get(key).filter(|_| !rewrite);
            match (old, target.objects.get(key)) {
                (Some(old), Some(new)) if Arc::ptr_eq(old, new) || old == new => None,
                (_, Some(new)) => Some(SegmentRecord::Put(new.clone())),
                (Some(_), None) => Some(SegmentRecord::Remove(key.clone())),
                (None, None) => None,
            }
        });
        let records = records.collect();
        let refused = store.is_refused();
        StoreDiff { target, position: (Arc::downgrade(store), position), records, rewrite, refused }
    }

    /// The changes that write the whole store again.
    pub(super) fn rewritten(diff: &StoreDiff) -> StoreDiff {
        let records = diff.target.objects.values().cloned().map(SegmentRecord::Put).collect();
        let (target, position, refused) = (diff.target.clone(), diff.position.clone(), diff.refused);
        StoreDiff { target, position, records, rewrite: true, refused }
    }

    /// Writes the changes. Returns the state that is on disk once the transaction has been committed.
    pub(super) fn write(
        &self,
        batch: &mut WriteBatch,
        diff: &StoreDiff,
        key: Option<&CacheKey>,
        used: u64,
    ) -> Result<Self, DiskError> {
        let mut next = self.clone();
        let mut sequence = next.row.segments.end;
        if diff.rewrite {
            batch.remove_segments(next.id)?;
            next.segments.clear();
            next.objects = RedBlackTreeMapSync::new_sync();
            next.live = 0;
        }
        let old_segments = next.segments.len();
        let mut changed = 0;
        for record in &diff.records {
            changed += record.len();
            next.apply(record);
            next.append(batch, record, &mut sequence, key)?;
        }
        next.credit = (next.credit + i64::try_from(changed / 5 * 4).unwrap_or(i64::MAX)).min(MAX_CREDIT);
        next.clean(batch, old_segments, &mut sequence, key)?;
        next.flush(batch, &mut sequence, key)?;
        next.objects = diff.target.objects.clone();
        next.position = Some(diff.position.clone());
        next.committed = Some(Instant::now());
        let name = next.row.name.clone();
        next.row = StoreRow {
            version: diff.target.version,
            objects: next.objects.size() as u64,
            segments: next.segments.front().map_or(sequence, |first| first.sequence)..sequence,
            bytes: next.segments.iter().map(|segment| segment.stored).sum(),
            used,
            refused: diff.refused,
            ..StoreRow::new(name, key.map(|key| key.id.as_str()), &diff.target.format)
        };
        batch.put_store(next.id, &next.row.seal(next.id)?)?;
        Ok(next)
    }

    /// Notes a record's effect on the objects and on the garbage.
    fn apply(&mut self, record: &SegmentRecord) {
        let key = match record {
            SegmentRecord::Put(object) => &object.key,
            SegmentRecord::Remove(key) => key,
        };
        if let Some(old) = self.objects.get(key) {
            self.live = self.live.saturating_sub(object_len(old));
        }
        match record {
            SegmentRecord::Put(object) => {
                self.live += record.len();
                self.objects.insert_mut(object.key.clone(), object.clone());
            }
            SegmentRecord::Remove(key) => drop(self.objects.remove_mut(key)),
        }
    }

    /// Moves valid records of the oldest segments to the end of the log, as long as there is too much garbage.
    fn clean(
        &mut self,
        batch: &mut WriteBatch,
        old_segments: usize,
        sequence: &mut u64,
        key: Option<&CacheKey>,
    ) -> Result<(), DiskError> {
        for _ in 0..old_segments {
            let total = self.segments.iter().map(|segment| segment.records).sum::<u64>() + self.buffer.len() as u64;
            if self.credit <= 0 || total <= 2 * self.live + SLACK {
                break;
            }
            let Some(oldest) = self.segments.pop_front() else { break };
            let blob = batch.segment(self.id, oldest.sequence)?;
            let records = unseal(&segment_place(self.id, oldest.sequence), &blob, key)?;
            let mut rest = records.as_slice();
            while !rest.is_empty() {
                // A deletion in the oldest segment has nothing left to delete.
                let SegmentRecord::Put(old) = SegmentRecord::decode(&mut rest)? else { continue };
                let valid = self.objects.get(&old.key).filter(|now| **now == old).cloned();
                if let Some(object) = valid {
                    let moved = SegmentRecord::Put(object);
                    self.credit -= i64::try_from(moved.len()).unwrap_or(i64::MAX);
                    self.append(batch, &moved, sequence, key)?;
                }
            }
            batch.remove_segment(self.id, oldest.sequence)?;
        }
        Ok(())
    }

    fn append(
        &mut self,
        batch: &mut WriteBatch,
        record: &SegmentRecord,
        sequence: &mut u64,
        key: Option<&CacheKey>,
    ) -> Result<(), DiskError> {
        record.encode(&mut self.buffer);
        let full = match self.row.confidentiality {
            Confidentiality::Plain => SEGMENT,
            Confidentiality::Encrypted => ENCRYPTED_SEGMENT,
        };
        if self.buffer.len() >= full { self.flush(batch, sequence, key) } else { Ok(()) }
    }

    /// Writes the buffered records as a segment.
    fn flush(&mut self, batch: &mut WriteBatch, sequence: &mut u64, key: Option<&CacheKey>) -> Result<(), DiskError> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        let blob = seal(&segment_place(self.id, *sequence), &self.buffer, key)?;
        batch.put_segment(self.id, *sequence, &blob)?;
        let (records, stored) = (self.buffer.len() as u64, blob.len() as u64);
        self.segments.push_back(SegmentSize { sequence: *sequence, records, stored });
        *sequence += 1;
        self.buffer.clear();
        Ok(())
    }
}
