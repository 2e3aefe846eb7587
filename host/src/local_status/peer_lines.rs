//! The lines of a peer's reports, as they arrive in pieces. Memory: one line.

use bytes::{Buf as _, BytesMut};

/// The longest line.
const MAX_LINE: usize = 1 << 20;

/// The received bytes, and how far they were searched: each byte is looked at once.
#[derive(Debug, Default)]
pub(super) struct Lines {
    buffer: BytesMut,
    searched: usize,
}

/// A line is too long.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("it has more than {MAX_LINE} bytes")]
pub(super) struct TooLong;

impl Lines {
    /// Adds a piece. The caller takes all lines before the next one.
    pub(super) fn push(&mut self, piece: &[u8]) {
        self.buffer.extend_from_slice(piece);
    }

    /// Returns the next complete line, without its end.
    pub(super) fn next(&mut self) -> Result<Option<BytesMut>, TooLong> {
        let rest = self.buffer.get(self.searched..).unwrap_or_default();
        let end = rest.iter().position(|byte| *byte == b'\n').map(|at| self.searched + at);
        if end.unwrap_or(self.buffer.len()) > MAX_LINE {
            return Err(TooLong);
        }
        let Some(end) = end else {
            self.searched = self.buffer.len();
            return Ok(None);
        };
        let line = self.buffer.split_to(end);
        self.buffer.advance(1);
        self.searched = 0;
        Ok(Some(line))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    fn taken(lines: &mut Lines) -> Vec<String> {
        std::iter::from_fn(|| lines.next().unwrap()).map(|line| String::from_utf8(line.to_vec()).unwrap()).collect()
    }

    #[test]
    fn lines_are_put_together_from_pieces() {
        let mut lines = Lines::default();
        lines.push(b"{\"a\"");
        assert!(taken(&mut lines).is_empty());
        lines.push(b":1}\n{}\n\n{\"b");
        assert_eq!(taken(&mut lines), ["{\"a\":1}", "{}", ""]);
        lines.push(b"\"}\n");
        assert_eq!(taken(&mut lines), ["{\"b\"}"]);
    }

    #[test]
    fn a_line_has_a_bound_with_its_end_and_without() {
        for end in ["", "\n"] {
            let mut lines = Lines::default();
            lines.push(&vec![b'x'; MAX_LINE]);
            assert_eq!(lines.next(), Ok(None));
            lines.push(format!("x{end}").as_bytes());
            assert_eq!(lines.next(), Err(TooLong));
        }
    }

    #[test]
    fn a_line_in_pieces_of_one_byte_is_searched_once() {
        let mut lines = Lines::default();
        let started = Instant::now();
        for _ in 0..MAX_LINE {
            lines.push(b"x");
            assert_eq!(lines.next(), Ok(None));
        }
        // All of it for each byte would be 5 * 10^11 steps.
        assert!(started.elapsed().as_secs() < 20, "{:?}", started.elapsed());
    }
}
