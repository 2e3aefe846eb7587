//! The values of all rows of a path, packed back to back: what crosses into a filter in one piece.
//! Bounded by the object it is read from, and by 31 bits.

use crate::{Error, MAX_OBJECT};

/// The top bit of an end: the row has no value.
const ABSENT: u32 = 1 << 31;

/// Room for as many rows is made with the first one.
const SOME: usize = 16;

/// Row `i` ends at byte `ends[i] & 0x7fff_ffff` of `text` and starts where row `i - 1` ended; the top bit of `ends[i]`
/// says absent (missing or null), with an empty span. Text is unescaped; numbers and booleans are in JSON spelling;
/// objects and arrays are JSON text.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Column {
    /// The values, without separators.
    pub text: String,
    /// Where each row ends; top bit = absent.
    pub ends: Vec<u32>,
}

impl Column {
    /// The rows in order; `None` is an absent one. Ends that do not fit the text read as absent.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Option<&str>> + '_ {
        let mut start = 0;
        self.ends.iter().map(move |end| {
            let stop = (end & !ABSENT) as usize;
            let cell = self.text.get(start..stop);
            start = stop;
            if end & ABSENT == 0 { cell } else { None }
        })
    }

    /// How many rows there are.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there is no row.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Adds a row without a value.
    pub fn push_absent(&mut self) -> Result<(), Error> {
        let end = self.end()?;
        self.ends.push(end | ABSENT);
        Ok(())
    }

    /// Adds a row.
    pub fn push(&mut self, cell: &str) -> Result<(), Error> {
        if self.text.is_empty() {
            self.text.reserve((SOME * cell.len()).min(1 << 12));
            self.ends.reserve(SOME);
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
