//! Row bitmaps: bit (i % 8) of byte (i / 8) is row i.

use crate::Error;

/// The rows that an edit changes.
#[derive(Clone, Copy)]
pub(crate) enum RowSet<'a> {
    /// Every row.
    All,
    /// The rows whose bit is 1. The length is checked after the walk, which counts the rows.
    Bits(&'a [u8]),
}

/// A row bitmap under construction, one bit per row.
#[derive(Default)]
pub(crate) struct Bitmap {
    bytes: Vec<u8>,
    rows: usize,
}

impl Bitmap {
    /// Appends a row.
    #[inline]
    pub(crate) fn push(&mut self, has: bool) {
        if self.rows.is_multiple_of(8) {
            self.bytes.push(0);
        }
        if let Some(last) = self.bytes.last_mut() {
            *last |= u8::from(has) << (self.rows % 8);
        }
        self.rows += 1;
    }

    /// Returns the bitmap in the format of the edits.
    pub(crate) fn bits(&self) -> &[u8] {
        &self.bytes
    }
}

impl RowSet<'_> {
    pub(crate) fn has(self, row: usize) -> bool {
        match self {
            RowSet::All => true,
            RowSet::Bits(bits) => bits.get(row / 8).is_some_and(|byte| byte >> (row % 8) & 1 == 1),
        }
    }

    /// Checks that a bitmap has the length for this number of rows. Spare bits of its last byte are ignored.
    pub(crate) fn check_length(self, rows: usize) -> Result<(), Error> {
        match self {
            RowSet::Bits(bits) if bits.len() != rows.div_ceil(8) => {
                Err(Error::Bitmap { rows, expected: rows.div_ceil(8), found: bits.len() })
            }
            _ => Ok(()),
        }
    }
}
