//! Single tokens: white space, strings, numbers and literals. Keeps no state.

use super::scan;
use crate::Error;

/// The number of 8-byte words of a string to check before whole blocks.
const FIRST_WORDS: usize = 4;

/// The span of a string's content, between the quotes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Quoted {
    pub(crate) start: usize,
    pub(crate) end: usize,
    /// Whether there are no escapes, so that the bytes are the text.
    pub(crate) plain: bool,
}

impl Quoted {
    /// Returns the position after the closing quote.
    pub(crate) fn after(self) -> usize {
        self.end + 1
    }
}

/// Returns the first position from `at` that is not white space.
#[inline(always)]
pub(crate) fn space(bytes: &[u8], mut at: usize) -> usize {
    while let Some(b' ' | b'\n' | b'\r' | b'\t') = bytes.get(at) {
        at += 1;
    }
    at
}

/// Returns the string whose opening quote is at `at`, without looking at its content.
#[inline(always)]
pub(crate) fn quoted(bytes: &[u8], at: usize) -> Result<Quoted, Error> {
    if bytes.get(at) != Some(&b'"') {
        return Err(Error::malformed(at, "expected a string"));
    }
    let start = at + 1;
    let mut at = start;
    // Most strings are short. Searches for the next quote or backslash in words of eight bytes.
    for _ in 0..FIRST_WORDS {
        let Some(word) = bytes.get(at..).and_then(|rest| rest.first_chunk::<8>()) else { break };
        let word = u64::from_le_bytes(*word);
        let found = zero_byte(word ^ 0x2222_2222_2222_2222) | zero_byte(word ^ 0x5c5c_5c5c_5c5c_5c5c);
        if found != 0 {
            at += (found.trailing_zeros() / 8) as usize;
            if bytes.get(at) == Some(&b'"') {
                return Ok(Quoted { start, end: at, plain: true });
            }
            break;
        }
        at += 8;
    }
    match scan::string_end(bytes, at) {
        Some((end, plain)) => Ok(Quoted { start, end, plain }),
        None => Err(Error::malformed(bytes.len(), "unterminated string")),
    }
}

/// Returns a mask whose lowest set bit marks the lowest zero byte. Higher bits may be wrong.
#[inline(always)]
fn zero_byte(word: u64) -> u64 {
    word.wrapping_sub(0x0101_0101_0101_0101) & !word & 0x8080_8080_8080_8080
}

/// Returns the position after the number or literal at `at`.
#[inline]
pub(crate) fn scalar(bytes: &[u8], at: usize) -> Result<usize, Error> {
    let literal: &[u8] = match bytes.get(at) {
        Some(b't') => b"true",
        Some(b'f') => b"false",
        Some(b'n') => b"null",
        Some(b'-' | b'0'..=b'9') => return number(bytes, at),
        _ => return Err(Error::malformed(at, "expected a value")),
    };
    match bytes.get(at..) {
        Some(rest) if rest.starts_with(literal) => Ok(at + literal.len()),
        _ => Err(Error::malformed(at, "expected a value")),
    }
}

fn number(bytes: &[u8], mut at: usize) -> Result<usize, Error> {
    if bytes.get(at) == Some(&b'-') {
        at += 1;
    }
    at = match bytes.get(at) {
        Some(b'0') => at + 1,
        _ => digits(bytes, at)?,
    };
    if bytes.get(at) == Some(&b'.') {
        at = digits(bytes, at + 1)?;
    }
    if let Some(b'e' | b'E') = bytes.get(at) {
        at += 1;
        if let Some(b'+' | b'-') = bytes.get(at) {
            at += 1;
        }
        at = digits(bytes, at)?;
    }
    Ok(at)
}

fn digits(bytes: &[u8], start: usize) -> Result<usize, Error> {
    let mut at = start;
    while let Some(b'0'..=b'9') = bytes.get(at) {
        at += 1;
    }
    if at == start { Err(Error::malformed(at, "expected a digit")) } else { Ok(at) }
}
