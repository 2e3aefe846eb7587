//! Joins the outcomes of a protobuf list's items. Kept items and the bytes between them are slices of the input, and
//! edited items are their new bytes. A list begins with its length, so its head is known last. It holds one number, and
//! its results share the bytes of the input.

use super::{ITEM, RAW, TYPE_META};
use crate::{
    Error, TypeMeta,
    list::{Batch, ItemOutcome},
    protobuf::{
        MAGIC,
        envelope::put_type_meta,
        wire::{Records, header, put_varint},
    },
    split::SplitError,
};
use bytes::Bytes;
use std::ops::Range;

/// The tag of an item.
const TAG: u8 = (ITEM << 3 | 2) as u8;

/// Joins the batches of one list. If nothing is dropped or edited, the output equals the input.
#[derive(Debug, Default)]
pub struct Joiner {
    /// The growth of the list.
    growth: i64,
}

impl Joiner {
    /// Creates a joiner for a new list.
    pub fn new() -> Self {
        Joiner::default()
    }

    /// Returns the output for a batch. A run of kept items is one slice. There must be one outcome per item.
    pub fn push(
        &mut self,
        batch: &Batch,
        outcomes: impl IntoIterator<Item = ItemOutcome>,
    ) -> Result<Vec<Bytes>, SplitError> {
        let mut out = Vec::new();
        let mut outcomes = outcomes.into_iter();
        // The current run of bytes to copy unchanged.
        let mut run = 0..0;
        for (i, item) in batch.items.iter().enumerate() {
            let Some(outcome) = outcomes.next() else {
                return Err(SplitError::Outcomes { items: batch.items.len(), outcomes: i });
            };
            let edited = match outcome {
                ItemOutcome::Keep => {
                    run.end = item.end;
                    continue;
                }
                ItemOutcome::Edit(bytes) => Some(bytes),
                ItemOutcome::Drop => None,
            };
            // The bytes between the items stay.
            run.end = record_start(&batch.bytes, run.end, item)?;
            self.growth -= (item.end - run.end) as i64;
            write(&batch.bytes, std::mem::replace(&mut run, item.end..item.end), &mut out);
            if let Some(bytes) = edited {
                let mut head = Vec::with_capacity(8);
                head.push(TAG);
                put_varint(bytes.len() as u64, &mut head);
                self.growth += (head.len() + bytes.len()) as i64;
                out.push(head.into());
                out.push(bytes);
            }
        }
        write(&batch.bytes, run, &mut out);
        match outcomes.count() {
            0 => Ok(out),
            more => Err(SplitError::Outcomes { items: batch.items.len(), outcomes: batch.items.len() + more }),
        }
    }

    /// Returns the new head of the list, once all batches have been pushed: with the new length of the list, and with
    /// another typeMeta if one is given.
    pub fn head(&self, head: &Bytes, type_meta: Option<&TypeMeta>) -> Result<Bytes, SplitError> {
        if self.growth == 0 && type_meta.is_none() {
            return Ok(head.clone());
        }
        self.headed(head, type_meta).map(Into::into).map_err(|source| SplitError::Part { offset: 0, source })
    }

    fn headed(&self, head: &[u8], type_meta: Option<&TypeMeta>) -> Result<Vec<u8>, Error> {
        let mut out = Vec::with_capacity(head.len() + 64);
        out.extend_from_slice(MAGIC);
        if let Some(type_meta) = type_meta {
            put_type_meta(type_meta, &mut out);
        }
        let mut at = MAGIC.len();
        loop {
            let record = header(head, at, head.len())?;
            if record.number == RAW {
                out.extend_from_slice(head.get(at..record.length_at).unwrap_or_default());
                put_varint(record.length.saturating_add_signed(self.growth), &mut out);
                out.extend_from_slice(head.get(record.from..).unwrap_or_default());
                return Ok(out);
            }
            let end = record.from.saturating_add(usize::try_from(record.length).unwrap_or(usize::MAX));
            if type_meta.is_none() || record.number != TYPE_META {
                out.extend_from_slice(head.get(at..end).unwrap_or_default());
            }
            at = end;
        }
    }
}

/// Returns the start of an item's record. Other records may precede it.
fn record_start(bytes: &[u8], from: usize, item: &Range<usize>) -> Result<usize, SplitError> {
    let mut records = Records::new(bytes, from..item.end);
    loop {
        match records.next() {
            Ok(Some(record)) if record.value == *item => return Ok(record.start),
            Ok(Some(_)) => {}
            Ok(None) => return Ok(item.start),
            Err(source) => return Err(SplitError::Part { offset: 0, source }),
        }
    }
}

fn write(bytes: &Bytes, run: Range<usize>, out: &mut Vec<Bytes>) {
    if !run.is_empty() && run.end <= bytes.len() {
        out.push(bytes.slice(run));
    }
}
