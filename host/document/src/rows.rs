//! Selections of rows: what an edit of many rows changes.

use std::borrow::Cow;

use crate::Error;

/// A selection among the rows of a path, one bit per row. It comes from the values of a column, by
/// [`Column::rows`](crate::Column::rows), or from any iterator of booleans with one for each row.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rows<'a> {
    /// Row i is bit (i % 8) of byte (i / 8).
    bits: Cow<'a, [u8]>,
    /// The number of rows; none if only the number of bytes is known.
    len: Option<usize>,
}

/// The rows that an edit changes.
#[derive(Clone, Copy)]
pub(crate) enum RowSet<'a> {
    /// Every row.
    All,
    /// The selected rows. Their number is checked after the walk, which counts the rows.
    Selected { bits: &'a [u8], len: Option<usize> },
}

impl<'a> Rows<'a> {
    /// Reads a bitmap, in which row i is bit (i % 8) of byte (i / 8). Spare bits of its last byte are ignored.
    pub const fn from_bits(bits: &'a [u8]) -> Self {
        Self { bits: Cow::Borrowed(bits), len: None }
    }

    pub(crate) fn set(&self) -> RowSet<'_> {
        RowSet::Selected { bits: &self.bits, len: self.len }
    }
}

impl Rows<'_> {
    /// Appends a row. The number of rows must be known.
    #[inline]
    pub(crate) fn push(&mut self, is_selected: bool) {
        let (bits, len) = (self.bits.to_mut(), self.len.get_or_insert(0));
        if len.is_multiple_of(8) {
            bits.push(0);
        }
        if let Some(last) = bits.last_mut() {
            *last |= u8::from(is_selected) << (*len % 8);
        }
        *len += 1;
    }
}

impl FromIterator<bool> for Rows<'_> {
    fn from_iter<I: IntoIterator<Item = bool>>(rows: I) -> Self {
        let mut selected = Self { bits: Cow::default(), len: Some(0) };
        rows.into_iter().for_each(|row| selected.push(row));
        selected
    }
}

impl RowSet<'_> {
    pub(crate) fn has(self, row: usize) -> bool {
        match self {
            RowSet::All => true,
            RowSet::Selected { bits, .. } => bits.get(row / 8).is_some_and(|byte| byte >> (row % 8) & 1 == 1),
        }
    }

    /// Checks that the selection is of this number of rows.
    pub(crate) fn check_length(self, rows: usize) -> Result<(), Error> {
        let RowSet::Selected { bits, len } = self else { return Ok(()) };
        if len.map_or(bits.len() == rows.div_ceil(8), |len| len == rows) {
            return Ok(());
        }
        Err(Error::Rows { rows, selected: len.unwrap_or(8 * bits.len()) })
    }
}
