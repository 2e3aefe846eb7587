//! Writes a list again: kept items with what is between them as slices of what came, edited ones as they are now.
//! Holds one flag; what it returns shares the batch's bytes.

use crate::{
    list::{Batch, Outcome},
    split::SplitError,
};
use bytes::Bytes;

/// Joins the batches of one list. If nothing is dropped or edited, its output is its input.
#[derive(Debug, Default)]
pub struct Joiner {
    /// An item has left: the next one needs its comma.
    begun: bool,
}

impl Joiner {
    /// For a new list.
    pub fn new() -> Self {
        Joiner::default()
    }

    /// What leaves for a batch: runs of kept items are one slice. There must be one outcome for each item.
    pub fn push(
        &mut self,
        batch: &Batch,
        outcomes: impl IntoIterator<Item = Outcome>,
    ) -> Result<Vec<Bytes>, SplitError> {
        let mut out = Vec::new();
        let mut outcomes = outcomes.into_iter();
        // The run of bytes that leave as they are, not written yet, and the end of the last item.
        let mut run = 0..0;
        let mut last = 0;
        for (i, item) in batch.items.iter().enumerate() {
            let Some(outcome) = outcomes.next() else {
                return Err(SplitError::Outcomes { items: batch.items.len(), outcomes: i });
            };
            let before = std::mem::replace(&mut last, item.end);
            if outcome == Outcome::Drop {
                continue;
            }
            let from = if self.begun { before } else { after_comma(&batch.bytes, before, item.start) };
            self.begun = true;
            if from != run.end {
                write(&batch.bytes, run, &mut out);
                run = from..from;
            }
            run.end = item.end;
            if let Outcome::Edit(bytes) = outcome {
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

/// The first item that leaves has no comma before it.
fn after_comma(bytes: &[u8], from: usize, to: usize) -> usize {
    let between = bytes.get(from..to).unwrap_or_default();
    memchr::memchr(b',', between).map_or(from, |comma| from + comma + 1)
}

fn write(bytes: &Bytes, run: std::ops::Range<usize>, out: &mut Vec<Bytes>) {
    if !run.is_empty() && run.end <= bytes.len() {
        out.push(bytes.slice(run));
    }
}
