//! Paths to values in an object: a subset of RFC 9535 with names, quoted names, indexes and any number of `[*]`. A path
//! is parsed once, by [`path!`](crate::path!) when the program is compiled, and cheap to clone. It has at most 1,024 bytes
//! and 32 segments.

mod grammar;

use std::{
    borrow::Cow,
    fmt,
    hash::{Hash, Hasher},
    str::FromStr,
    sync::Arc,
};

use self::grammar::{Cursor, MAX_TEXT, Spelling};

/// A path to values in an object. Two paths are equal if their texts are equal.
#[derive(Clone)]
pub struct Path(Repr);

#[derive(Clone)]
enum Repr {
    Static(&'static StaticPath),
    Parsed(Arc<(String, Vec<Segment>)>),
}

/// A path that [`path!`](crate::path!) has parsed. Only this macro makes one.
#[doc(hidden)]
#[derive(Debug)]
pub struct StaticPath {
    /// The expression.
    pub text: &'static str,
    /// Its segments.
    pub segments: &'static [Segment],
}

/// One segment of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Segment {
    /// A member of an object, unescaped.
    Name(Cow<'static, str>),
    /// An element of an array.
    Index(usize),
    /// All elements of an array, but never the members of an object.
    Wildcard,
}

/// The reason why an expression is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("path {expression:?}, byte {position}: {reason}")]
pub struct PathError {
    /// The expression, truncated for display.
    pub expression: String,
    /// The offset of the first invalid byte.
    pub position: usize,
    /// The expected syntax.
    pub reason: &'static str,
}

/// A [`Path`] of a text that is known when the program is compiled, in the grammar of [`Path::parse`] without escapes. It costs
/// nothing when the program runs.
///
/// ```
/// use weir_document::{Path, path};
/// static NODE_PORTS: Path = path!("spec.ports[*].nodePort");
/// assert_eq!(NODE_PORTS, Path::parse("spec.ports[*].nodePort")?);
/// # Ok::<_, weir_document::PathError>(())
/// ```
///
/// An invalid text does not compile:
///
/// ```compile_fail
/// let broken = weir_document::path!("spec.ports[*");
/// ```
#[macro_export]
macro_rules! path {
    ($text:expr) => {{
        static PATH: $crate::StaticPath = $crate::StaticPath {
            text: $text,
            segments: &$crate::StaticPath::segments::<{ $crate::StaticPath::count($text) }>($text),
        };
        $crate::StaticPath::path(&PATH)
    }};
}

impl Path {
    /// Parses an expression: an optional leading `$`, names (`spec.type`), quoted names (`metadata.annotations['a/b']`,
    /// with JSON's escapes and `\'`), indexes (`ports[0]`) and `[*]`. For a text that is known when the program is compiled,
    /// use [`path!`](crate::path!).
    pub fn parse(expression: &str) -> Result<Path, PathError> {
        match segments(expression) {
            Ok(segments) => Ok(Path(Repr::Parsed(Arc::new((expression.to_owned(), segments))))),
            Err((position, reason)) => {
                Err(PathError { expression: expression.chars().take(80).collect(), position, reason })
            }
        }
    }

    /// Returns the expression.
    pub fn text(&self) -> &str {
        match &self.0 {
            Repr::Static(path) => path.text,
            Repr::Parsed(path) => &path.0,
        }
    }

    /// Returns the number of `[*]`.
    pub fn wildcards(&self) -> usize {
        self.segments().iter().filter(|segment| **segment == Segment::Wildcard).count()
    }

    pub(crate) fn segments(&self) -> &[Segment] {
        match &self.0 {
            Repr::Static(path) => path.segments,
            Repr::Parsed(path) => &path.1,
        }
    }

    /// Returns the segments before the last `[*]`. They lead to the arrays whose elements are the rows.
    pub(crate) fn rows_in(&self) -> Option<&[Segment]> {
        let last = self.segments().iter().rposition(|segment| *segment == Segment::Wildcard)?;
        self.segments().get(..last)
    }
}

impl StaticPath {
    /// Returns the path. It borrows what the program contains.
    pub const fn path(&'static self) -> Path {
        Path(Repr::Static(self))
    }
}

fn segments(expression: &str) -> Result<Vec<Segment>, grammar::Failure> {
    if expression.len() > MAX_TEXT {
        let at = (0..=MAX_TEXT).rev().find(|at| expression.is_char_boundary(*at));
        return Err((at.unwrap_or_default(), grammar::TOO_LONG));
    }
    let (mut cursor, mut segments) = (Cursor::new(expression)?, Vec::new());
    while let Some(spelling) = cursor.next()? {
        segments.push(match spelling {
            Spelling::Index(index) => Segment::Index(index),
            Spelling::Wildcard => Segment::Wildcard,
            Spelling::Name { name, has_escapes: false, .. } => Segment::Name(Cow::Owned(name.to_owned())),
            Spelling::Name { name, at, .. } => match unescape(name) {
                Some(name) => Segment::Name(Cow::Owned(name)),
                None => return Err((at, "invalid escape in a name")),
            },
        });
    }
    Ok(segments)
}

/// Unescapes a quoted name: the escapes of JSON, and `\'`.
fn unescape(name: &str) -> Option<String> {
    let (mut json, mut is_escaped) = (String::with_capacity(name.len()), false);
    for next in name.chars() {
        match next {
            '\'' if is_escaped => {
                json.pop();
            }
            '"' if !is_escaped => json.push('\\'),
            _ => {}
        }
        json.push(next);
        is_escaped = next == '\\' && !is_escaped;
    }
    crate::escape::unescape(&json).ok()
}

impl PartialEq for Path {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self.text(), other.text()) || self.text() == other.text()
    }
}

impl Eq for Path {}

impl Hash for Path {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.text().hash(state);
    }
}

impl fmt::Debug for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Path({:?})", self.text())
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

impl FromStr for Path {
    type Err = PathError;

    fn from_str(expression: &str) -> Result<Self, Self::Err> {
        Path::parse(expression)
    }
}

#[cfg(test)]
mod tests;
