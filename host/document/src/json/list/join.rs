//! Joins the outcomes of a list's items. Kept items and the bytes between them are slices of the input, and edited
//! items are their new bytes. It holds one flag, and its results share the bytes of the batch.

use crate::{
    list::{Batch, ItemOutcome},
    split::SplitError,
};
use bytes::Bytes;

/// Joins the batches of one list. If nothing is dropped or edited, the output equals the input.
#[derive(Debug, Default)]
pub struct Joiner {
    /// Whether an item has been written, so that the next one needs a comma.
    begun: bool,
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
        // The current run of bytes to copy unchanged, and the end of the last item.
        let mut run = 0..0;
        let mut last = 0;
        for (i, item) in batch.items.iter().enumerate() {
            let Some(outcome) = outcomes.next() else {
                return Err(SplitError::Outcomes { items: batch.items.len(), outcomes: i });
            };
            let before = std::mem::replace(&mut last, item.end);
            if outcome == ItemOutcome::Drop {
                continue;
            }
            let from = if self.begun { before } else { after_comma(&batch.bytes, before, item.start) };
            self.begun = true;
            if from != run.end {
                write(&batch.bytes, run, &mut out);
                run = from..from;
            }
            run.end = item.end;
            if let ItemOutcome::Edit(bytes) = outcome {
                run.end = item.start;
                write(&batch.bytes, run, &mut out);
                run = item.end..item.end;
                out.push(bytes);
            }
        }
        write(&batch.bytes, run, &mut out);
        match outcomes.count() {
            0 => Ok(out),
            more => Err(SplitError::Outcomes { items: batch.items.len(), outcomes: batch.items.len() + more }),
        }
    }
}

/// The first written item has no comma before it.
fn after_comma(bytes: &[u8], from: usize, to: usize) -> usize {
    let between = bytes.get(from..to).unwrap_or_default();
    memchr::memchr(b',', between).map_or(from, |comma| from + comma + 1)
}

fn write(bytes: &Bytes, run: std::ops::Range<usize>, out: &mut Vec<Bytes>) {
    if !run.is_empty() && run.end <= bytes.len() {
        out.push(bytes.slice(run));
    }
}
