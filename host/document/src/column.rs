//! The values of all rows of a path, concatenated, so that one call passes them to a filter. Bounded by the size of the
//! object and by 31 bits.

use crate::{Error, MAX_OBJECT, Rows};

/// The top bit of an end: the row is absent.
const ABSENT: u32 = 1 << 31;

/// The number of rows to allocate space for with the first one.
const INITIAL_ROWS: usize = 16;

/// Row `i` ends at byte `ends[i] & 0x7fff_ffff` of `text` and starts where row `i - 1` ends. If the top bit of
/// `ends[i]` is set, the row is absent (missing or null) and its span is empty. Strings are unescaped, numbers and
/// booleans are in JSON spelling, objects and arrays are JSON text.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Column {
    /// The values without separators.
    pub text: String,
    /// The end of each row. The top bit marks an absent row.
    pub ends: Vec<u32>,
}

impl Column {
    /// Iterates over the rows, `None` for an absent one. A row whose end does not fit the text is absent.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Option<&str>> + '_ {
        let mut start = 0;
        self.ends.iter().map(move |end| {
            let stop = (end & !ABSENT) as usize;
            let cell = self.text.get(start..stop);
            start = stop;
            if end & ABSENT == 0 { cell } else { None }
        })
    }

    /// Selects the rows for which the predicate holds.
    pub fn rows(&self, test: impl FnMut(Option<&str>) -> bool) -> Rows<'static> {
        self.iter().map(test).collect()
    }

    /// Returns the number of rows.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Returns whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Appends an absent row.
    pub fn push_absent(&mut self) -> Result<(), Error> {
        let end = self.end()?;
        self.ends.push(end | ABSENT);
        Ok(())
    }

    /// Appends a row.
    pub fn push(&mut self, cell: &str) -> Result<(), Error> {
        if self.text.is_empty() {
            self.text.reserve((INITIAL_ROWS * cell.len()).min(1 << 12));
            self.ends.reserve(INITIAL_ROWS);
        }
        self.text.push_str(cell);
        let end = self.end()?;
        self.ends.push(end);
        Ok(())
    }

    fn end(&self) -> Result<u32, Error> {
        match u32::try_from(self.text.len()) {
            Ok(end) if end & ABSENT == 0 => Ok(end),
            _ => Err(Error::TooLarge { limit: MAX_OBJECT }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Column;

    #[test]
    fn rows_come_back_as_they_were_pushed() {
        let mut column = Column::default();
        column.push("a").unwrap();
        column.push_absent().unwrap();
        column.push("").unwrap();
        column.push("ü").unwrap();
        assert_eq!(column.ends, [1, 1 | 1 << 31, 1, 3]);
        let cells: Vec<_> = column.iter().collect();
        assert_eq!(cells, [Some("a"), None, Some(""), Some("ü")]);
    }

    #[test]
    fn ends_that_do_not_fit_the_text_are_absent() {
        let column = Column { text: "ab".into(), ends: vec![5, 1] };
        assert_eq!(column.iter().collect::<Vec<_>>(), [None, None]);
    }
}
