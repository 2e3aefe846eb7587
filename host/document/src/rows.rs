//! Row bitmaps: bit (i % 8) of byte (i / 8) is row i.

use crate::Error;

/// Which rows an edit is for. Borrowed; holds nothing.
#[derive(Clone, Copy)]
pub(crate) enum Rows<'a> {
    /// Every row.
    All,
    /// Those whose bit is 1. The length is checked after the walk, when the rows are counted.
    Bits(&'a [u8]),
}

/// Which rows, told one by one. One bit a row.
#[derive(Default)]
pub(crate) struct Bitmap {
    bytes: Vec<u8>,
    rows: usize,
}

impl Bitmap {
    /// Tells of the next row.
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

    /// As edits take it.
    pub(crate) fn bits(&self) -> &[u8] {
        &self.bytes
    }
}

impl Rows<'_> {
    pub(crate) fn has(self, row: usize) -> bool {
        match self {
            Rows::All => true,
            Rows::Bits(bits) => bits.get(row / 8).is_some_and(|byte| byte >> (row % 8) & 1 == 1),
        }
    }

    /// The bitmap must be made for exactly this many rows; spare bits of its last byte are ignored.
    pub(crate) fn fit(self, rows: usize) -> Result<(), Error> {
        match self {
            Rows::Bits(bits) if bits.len() != rows.div_ceil(8) => {
                Err(Error::Bitmap { rows, expected: rows.div_ceil(8), found: bits.len() })
            }
            _ => Ok(()),
        }
    }
}
