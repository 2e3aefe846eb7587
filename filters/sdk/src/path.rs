//! Paths to values in an object. They are checked at compile time. The host parses each once per instance, at its first
//! use. A path holds its text and one handle.

use std::borrow::Cow;
use std::fmt::{self, Debug, Formatter};
use std::sync::OnceLock;

use crate::{Error, backend};

/// A path to values in an object: `spec.ports[*].nodePort`, `metadata.annotations['openyurt.io/topologyKeys']`.
///
/// ```
/// use weir_filter::Path;
/// static NODE_PORTS: Path = Path::new("spec.ports[*].nodePort");
/// ```
///
/// Declare it as a `static`. An invalid path then fails to compile, and the host parses the path once per instance.
///
/// ```compile_fail
/// static BROKEN: weir_filter::Path = weir_filter::Path::new("spec.ports[*");
/// ```
pub struct Path {
    text: Cow<'static, str>,
    compiled: OnceLock<backend::CompiledPath>,
}

impl Path {
    /// Creates a path from a text that is known at compile time.
    ///
    /// # Panics
    /// Panics if the text is not a valid path. In a `static` this is a compile error. For a text from the settings use
    /// [`Path::parse`].
    pub const fn new(text: &'static str) -> Self {
        assert!(is_path(text.as_bytes()), "invalid path: expected names, ['quoted names'], [index] and [*]");
        Self { text: Cow::Borrowed(text), compiled: OnceLock::new() }
    }

    /// Creates a path from a text that is known at run time, such as a setting.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let compiled = backend::CompiledPath::parse(text).map_err(Error::new)?;
        Ok(Self { text: Cow::Owned(text.to_owned()), compiled: OnceLock::from(compiled) })
    }

    /// Returns the path's text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the host's handle. Creates it at the first use.
    pub(crate) fn compiled(&self) -> Result<&backend::CompiledPath, String> {
        if let Some(compiled) = self.compiled.get() {
            return Ok(compiled);
        }
        let compiled = backend::CompiledPath::parse(&self.text)?;
        Ok(self.compiled.get_or_init(|| compiled))
    }
}

impl Debug for Path {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "Path({:?})", self.text)
    }
}

/// The state of the check between two bytes of a path.
enum ParseState {
    /// At the start, where a name needs no dot.
    Start,
    /// After a dot, where a name must follow.
    Name,
    /// Inside a name.
    NameRest,
    /// After a segment in brackets.
    Step,
}

/// Returns whether the text is a valid path. It rejects escapes in quoted names, which the host accepts.
const fn is_path(text: &[u8]) -> bool {
    let mut rest = match text {
        [b'$', rest @ ..] => rest,
        rest => rest,
    };
    let mut expect = match text {
        [b'$', ..] => ParseState::Step,
        _ => ParseState::Start,
    };
    loop {
        match (rest, expect) {
            ([], ParseState::NameRest | ParseState::Step) => return true,
            ([], ParseState::Start | ParseState::Name) => return false,
            (
                [b'a'..=b'z' | b'A'..=b'Z' | b'_', tail @ ..],
                ParseState::Start | ParseState::Name | ParseState::NameRest,
            ) => {
                rest = tail;
                expect = ParseState::NameRest;
            }
            ([b'0'..=b'9', tail @ ..], ParseState::NameRest) => {
                rest = tail;
                expect = ParseState::NameRest;
            }
            ([b'.', tail @ ..], ParseState::NameRest | ParseState::Step) => {
                rest = tail;
                expect = ParseState::Name;
            }
            ([b'[', tail @ ..], ParseState::Start | ParseState::NameRest | ParseState::Step) => {
                match after_bracket(tail) {
                    Some(tail) => {
                        rest = tail;
                        expect = ParseState::Step;
                    }
                    None => return false,
                }
            }
            _ => return false,
        }
    }
}

/// Returns the text after a segment whose `[` has been consumed, or none if the segment is invalid.
const fn after_bracket(text: &[u8]) -> Option<&[u8]> {
    match text {
        [b'*', b']', tail @ ..] => Some(tail),
        [quote @ (b'\'' | b'"'), tail @ ..] => {
            let mut rest = tail;
            loop {
                match rest {
                    [end, b']', tail @ ..] if *end == *quote => return Some(tail),
                    [] | [b'\\', ..] => return None,
                    [byte, ..] if *byte == *quote => return None,
                    [_, tail @ ..] => rest = tail,
                }
            }
        }
        [b'0'..=b'9', tail @ ..] => {
            let mut rest = tail;
            loop {
                match rest {
                    [b'0'..=b'9', tail @ ..] => rest = tail,
                    [b']', tail @ ..] => return Some(tail),
                    _ => return None,
                }
            }
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::is_path;

    #[test]
    fn only_paths_of_the_grammar_compile() {
        for good in [
            "spec",
            "$",
            "$.spec.type",
            "spec.ports[*].port",
            "subsets[*].addresses[*]",
            "a['b.c/d']",
            "a[\"b'c\"][0][*]",
            "$['a']",
        ] {
            assert!(is_path(good.as_bytes()), "{good}");
        }
        for bad in [
            "",
            ".",
            "a.",
            "a..b",
            "a[",
            "a[*",
            "a[]",
            "a['b]",
            "a['b'",
            "a[1",
            "a[-1]",
            "a b",
            "a.[0]",
            "1a",
            "a[*]b",
            "a['b\\n']",
        ] {
            assert!(!is_path(bad.as_bytes()), "{bad}");
        }
    }
}
