//! Columns and row bitmaps. A column returns the values of a whole array in one host call, and a bitmap selects rows
//! for an edit. A column holds one string and four bytes per row, a bitmap one bit per row.

/// The values of all rows of a path, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Column {
    text: String,
    ends: Vec<u32>,
}

/// Marks a row that is missing or null.
const ABSENT: u32 = 1 << 31;

impl Column {
    pub(crate) fn new(text: String, ends: Vec<u32>) -> Self {
        Self { text, ends }
    }

    /// Returns the number of rows.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Returns whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Iterates over the rows, none for a row that is missing or null. Strings are unescaped, numbers and booleans are
    /// in JSON spelling, objects and arrays are JSON text.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Option<&str>> {
        let mut start = 0;
        self.ends.iter().map(move |end| {
            let span = start..(end & !ABSENT) as usize;
            start = span.end;
            if end & ABSENT == 0 { self.text.get(span) } else { None }
        })
    }

    /// Selects the rows for which the predicate holds.
    pub fn rows(&self, test: impl FnMut(Option<&str>) -> bool) -> Rows {
        self.iter().map(test).collect()
    }
}

/// A selection among the rows of a path, one bit per row.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rows {
    bits: Vec<u8>,
    len: usize,
    chosen: usize,
}

impl Rows {
    /// Appends a row.
    pub fn push(&mut self, chosen: bool) {
        if self.len.is_multiple_of(8) {
            self.bits.push(0);
        }
        if let (true, Some(last)) = (chosen, self.bits.last_mut()) {
            *last |= 1 << (self.len % 8);
            self.chosen += 1;
        }
        self.len += 1;
    }

    /// Returns the number of rows.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns whether every row is selected.
    pub fn all(&self) -> bool {
        self.chosen == self.len
    }

    /// Returns whether no row is selected.
    pub fn none(&self) -> bool {
        self.chosen == 0
    }

    /// Returns the bitmap in the format of the contract: row i is bit (i % 8) of byte (i / 8).
    pub fn as_bytes(&self) -> &[u8] {
        &self.bits
    }
}

impl FromIterator<bool> for Rows {
    fn from_iter<I: IntoIterator<Item = bool>>(rows: I) -> Self {
        let rows = rows.into_iter();
        let mut result = Self { bits: Vec::with_capacity(rows.size_hint().0.div_ceil(8)), len: 0, chosen: 0 };
        rows.for_each(|chosen| result.push(chosen));
        result
    }
}

#[cfg(test)]
mod tests {
    use super::{ABSENT, Column, Rows};

    #[test]
    fn rows_are_read_back_to_back_and_absent_ones_are_none() {
        let column = Column::new("abc".into(), vec![1, 1 | ABSENT, 1, 3]);
        assert_eq!(column.iter().collect::<Vec<_>>(), [Some("a"), None, Some(""), Some("bc")]);
    }

    #[test]
    fn bit_i_of_the_bitmap_is_row_i() {
        let rows: Rows = (0..10).map(|row| row == 1 || row == 9).collect();
        assert_eq!((rows.as_bytes(), rows.len(), rows.all(), rows.none()), (&[0b10, 0b10][..], 10, false, false));
        assert!(Rows::default().all() && Rows::default().none());
    }
}
