//! Paths: checked when the filter is compiled, parsed by the host once per instance, at first use. A path holds its
//! text and one handle.

use std::borrow::Cow;
use std::fmt::{self, Debug, Formatter};
use std::sync::OnceLock;

use crate::{Error, backend};

/// A place in an object: `spec.ports[*].nodePort`, `metadata.annotations['openyurt.io/topologyKeys']`.
///
/// ```
/// use weir_filter::Path;
/// static NODE_PORTS: Path = Path::new("spec.ports[*].nodePort");
/// ```
///
/// Declare it as a `static`: then a mistake does not compile, and the path is parsed once per instance.
///
/// ```compile_fail
/// static BROKEN: weir_filter::Path = weir_filter::Path::new("spec.ports[*");
/// ```
pub struct Path {
    text: Cow<'static, str>,
    compiled: OnceLock<backend::CompiledPath>,
}

impl Path {
    /// A path known when the filter is compiled.
    ///
    /// # Panics
    /// If the text is no path: in a `static` that is a compile error. For a text that comes from settings use
    /// [`Path::parse`].
    pub const fn new(text: &'static str) -> Self {
        assert!(is_path(text.as_bytes()), "not a path: names, ['quoted names'], [index] and [*]");
        Self { text: Cow::Borrowed(text), compiled: OnceLock::new() }
    }

    /// A path whose text is known only when the filter is configured.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let compiled = backend::CompiledPath::parse(text).map_err(Error::new)?;
        Ok(Self { text: Cow::Owned(text.to_owned()), compiled: OnceLock::from(compiled) })
    }

    /// The path's text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The host's handle, made at first use.
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

/// Where a check stands between two bytes of a path.
enum Expect {
    /// At the start: a name may come without its dot.
    Start,
    /// After a dot: a name must come.
    Name,
    /// Inside a name.
    NameRest,
    /// After a step in brackets.
    Step,
}

/// Whether the text is a path. A little stricter than the host, which also takes escapes in quoted names.
const fn is_path(text: &[u8]) -> bool {
    let mut rest = match text {
        [b'$', rest @ ..] => rest,
        rest => rest,
    };
    let mut expect = match text {
        [b'$', ..] => Expect::Step,
        _ => Expect::Start,
    };
    loop {
        match (rest, expect) {
            ([], Expect::NameRest | Expect::Step) => return true,
            ([], Expect::Start | Expect::Name) => return false,
            ([b'a'..=b'z' | b'A'..=b'Z' | b'_', tail @ ..], Expect::Start | Expect::Name | Expect::NameRest) => {
                rest = tail;
                expect = Expect::NameRest;
            }
            ([b'0'..=b'9', tail @ ..], Expect::NameRest) => {
                rest = tail;
                expect = Expect::NameRest;
            }
            ([b'.', tail @ ..], Expect::NameRest | Expect::Step) => {
                rest = tail;
                expect = Expect::Name;
            }
            ([b'[', tail @ ..], Expect::Start | Expect::NameRest | Expect::Step) => match after_bracket(tail) {
                Some(tail) => {
                    rest = tail;
                    expect = Expect::Step;
                }
                None => return false,
            },
            _ => return false,
        }
    }
}

/// What follows the step whose `[` has been read, or none if it is no step.
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
    fn paths_of_the_grammar_compile_and_nothing_else() {
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
