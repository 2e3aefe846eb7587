//! Complete validation of one value: the grammar, strings, numbers and depth. It is iterative, and its memory is one
//! bit per open bracket.

use super::{string, token};
use crate::{Error, MAX_DEPTH};

/// Validates the value at `at` completely. Returns the position after it.
pub(crate) fn checked_end(bytes: &[u8], at: usize) -> Result<usize, Error> {
    match bytes.get(at) {
        Some(b'{' | b'[') => container_end(bytes, at, 0),
        Some(b'"') => {
            let quoted = token::quoted(bytes, at)?;
            string::validate(bytes, quoted)?;
            Ok(quoted.after())
        }
        _ => token::scalar(bytes, at),
    }
}

/// Validates that the bytes are one value, surrounded only by white space. Returns the span of the value.
pub(crate) fn whole(bytes: &[u8]) -> Result<std::ops::Range<usize>, Error> {
    whole_below(bytes, 0)
}

/// Like [`whole`], for a value that will be nested `depth` levels deep.
pub(crate) fn whole_below(bytes: &[u8], depth: usize) -> Result<std::ops::Range<usize>, Error> {
    let start = token::space(bytes, 0);
    let end = match bytes.get(start) {
        Some(b'{' | b'[') => container_end(bytes, start, depth)?,
        _ => checked_end(bytes, start)?,
    };
    match token::space(bytes, end) {
        after if after == bytes.len() => Ok(start..end),
        after => Err(Error::malformed(after, "bytes after the end of the value")),
    }
}

/// The kinds of the open brackets. The value itself is nested `base` levels deep.
struct OpenBrackets {
    kinds: [u64; MAX_DEPTH / 64],
    depth: usize,
    base: usize,
}

impl OpenBrackets {
    fn push(&mut self, curly: bool, offset: usize) -> Result<(), Error> {
        let word = self.kinds.get_mut(self.depth / 64).ok_or(Error::TooDeep { offset })?;
        let bit = self.depth % 64;
        *word = *word & !(1 << bit) | u64::from(curly) << bit;
        self.depth += 1;
        Ok(())
    }

    fn curly(&self) -> Option<bool> {
        let depth = self.depth.checked_sub(1).filter(|depth| *depth >= self.base)?;
        self.kinds.get(depth / 64).map(|word| word >> (depth % 64) & 1 == 1)
    }
}

fn container_end(bytes: &[u8], mut at: usize, base: usize) -> Result<usize, Error> {
    let mut open = OpenBrackets { kinds: [0; MAX_DEPTH / 64], depth: base, base };
    loop {
        // At the start of a value.
        at = token::space(bytes, at);
        at = match bytes.get(at) {
            Some(b'{') => {
                open.push(true, at)?;
                let next = token::space(bytes, at + 1);
                if bytes.get(next) != Some(&b'}') {
                    at = key(bytes, next)?;
                    continue;
                }
                next
            }
            Some(b'[') => {
                open.push(false, at)?;
                let next = token::space(bytes, at + 1);
                if bytes.get(next) != Some(&b']') {
                    at = next;
                    continue;
                }
                next
            }
            _ => token::space(bytes, checked_end(bytes, at)?),
        };
        // At the end of a value, which may also end the containers around it.
        loop {
            let Some(curly) = open.curly() else {
                return Ok(at);
            };
            match (bytes.get(at), curly) {
                (Some(b','), true) => {
                    at = key(bytes, token::space(bytes, at + 1))?;
                    break;
                }
                (Some(b','), false) => {
                    at += 1;
                    break;
                }
                (Some(b'}'), true) | (Some(b']'), false) => {
                    open.depth -= 1;
                    at += 1;
                    if open.depth == base {
                        return Ok(at);
                    }
                    at = token::space(bytes, at);
                }
                _ => {
                    return Err(Error::malformed(at, "expected a comma or the end of the container"));
                }
            }
        }
    }
}

/// Validates a key and its colon. Returns the position after them.
fn key(bytes: &[u8], at: usize) -> Result<usize, Error> {
    let quoted = token::quoted(bytes, at)?;
    string::validate(bytes, quoted)?;
    let colon = token::space(bytes, quoted.after());
    match bytes.get(colon) {
        Some(b':') => Ok(colon + 1),
        _ => Err(Error::malformed(colon, "expected a colon")),
    }
}

#[cfg(test)]
mod tests {
    use super::whole;
    use crate::MAX_DEPTH;

    #[test]
    fn the_validator_accepts_and_refuses_what_serde_json_does() {
        let cases = [
            "{}",
            "[]",
            " [ ] ",
            "{\"a\":1}",
            "[1,2]",
            "[[],{}]",
            "[1,]",
            "{,}",
            "{\"a\":1,}",
            "{\"a\"}",
            "{1:2}",
            "[1 2]",
            "",
            " ",
            "nul",
            "null",
            "nullx",
            "tru",
            "true",
            "-",
            "-0",
            "01",
            "0.5",
            ".5",
            "1.",
            "1e5",
            "1e",
            "1E+5",
            "-1.5e-3",
            "+1",
            "\"a",
            "\"a\"",
            "\"\\x\"",
            "\"\\ud800\"",
            "\"\u{1}\"",
            "{} {}",
            "[1]]",
            "[}",
            "{]",
            "[\"a\":1]",
            "{\"a\":[{\"b\":[]}]}",
        ];
        for case in cases {
            let expected = serde_json::from_str::<serde_json::Value>(case).is_ok();
            assert_eq!(whole(case.as_bytes()).is_ok(), expected, "{case}");
        }
        assert!(whole(b"\"\xff\"").is_err());
        assert!(whole(b"{\"\xff\":1}").is_err());
    }

    #[test]
    fn depth_is_bounded_without_recursion() {
        let nested = |depth| "[".repeat(depth) + &"]".repeat(depth);
        assert!(whole(nested(MAX_DEPTH).as_bytes()).is_ok());
        assert!(whole(nested(MAX_DEPTH + 1).as_bytes()).is_err());
        assert!(whole("[".repeat(1 << 20).as_bytes()).is_err());
    }
}
