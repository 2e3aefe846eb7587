//! Paths to values in an object: a subset of RFC 9535 with names, quoted names, indexes and any number of `[*]`. A path
//! is parsed once and cheap to clone. It has at most 1,024 bytes and 32 segments.

use std::{
    fmt,
    hash::{Hash, Hasher},
    str::FromStr,
    sync::Arc,
};

/// The maximum length of an expression in bytes.
const MAX_TEXT: usize = 1024;
/// The maximum number of segments. It bounds the recursion of a walk.
const MAX_SEGMENTS: usize = 32;

/// A compiled path. Two paths are equal if their texts are equal.
#[derive(Clone)]
pub struct Path(Arc<Compiled>);

struct Compiled {
    text: String,
    segments: Vec<Segment>,
    wildcards: usize,
}

/// One segment of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Segment {
    /// A member of an object, unescaped.
    Name(String),
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

impl Path {
    /// Parses an expression: an optional leading `$`, names (`spec.type`), quoted names (`metadata.annotations['a/b']`,
    /// with JSON's escapes and `\'`), indexes (`ports[0]`) and `[*]`.
    pub fn parse(expression: &str) -> Result<Path, PathError> {
        let parsed = if expression.len() > MAX_TEXT {
            Err((expression.floor_char_boundary(MAX_TEXT), "longer than 1024 bytes"))
        } else {
            Parser { text: expression, at: 0 }.segments()
        };
        match parsed {
            Ok(segments) => Ok(Path(Arc::new(Compiled {
                text: expression.to_owned(),
                wildcards: segments.iter().filter(|segment| **segment == Segment::Wildcard).count(),
                segments,
            }))),
            Err((position, reason)) => {
                Err(PathError { expression: expression.chars().take(80).collect(), position, reason })
            }
        }
    }

    /// Returns the expression.
    pub fn text(&self) -> &str {
        &self.0.text
    }

    /// Returns the number of `[*]`.
    pub fn wildcards(&self) -> usize {
        self.0.wildcards
    }

    pub(crate) fn segments(&self) -> &[Segment] {
        &self.0.segments
    }

    /// Returns the segments before the last `[*]`. They lead to the arrays whose elements are the rows.
    pub(crate) fn rows_in(&self) -> Option<&[Segment]> {
        let last = self.segments().iter().rposition(|segment| *segment == Segment::Wildcard)?;
        self.segments().get(..last)
    }
}

impl PartialEq for Path {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.text() == other.text()
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

type ParseFailure = (usize, &'static str);

struct Parser<'a> {
    text: &'a str,
    at: usize,
}

impl Parser<'_> {
    fn segments(mut self) -> Result<Vec<Segment>, ParseFailure> {
        let mut segments = Vec::new();
        if self.text.is_empty() {
            return Err((0, "empty path; use $ for the whole object"));
        }
        let rooted = self.eat('$');
        while let Some(next) = self.peek() {
            if segments.len() == MAX_SEGMENTS {
                return Err((self.at, "more than 32 segments"));
            }
            let segment = match next {
                '[' => {
                    self.at += 1;
                    self.bracket()?
                }
                '.' if rooted || !segments.is_empty() => {
                    self.at += 1;
                    self.name()?
                }
                _ if !rooted && segments.is_empty() => self.name()?,
                _ => return Err((self.at, "expected . or [")),
            };
            segments.push(segment);
        }
        Ok(segments)
    }

    fn name(&mut self) -> Result<Segment, ParseFailure> {
        let rest = self.text.get(self.at..).unwrap_or_default();
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-') || !c.is_ascii();
        let length = rest.find(|c| !plain(c)).unwrap_or(rest.len());
        let name = rest.get(..length).unwrap_or_default();
        if name.is_empty() {
            return Err((self.at, "expected a name of letters, digits, - and _; quote others as ['…']"));
        }
        self.at += length;
        Ok(Segment::Name(name.to_owned()))
    }

    fn bracket(&mut self) -> Result<Segment, ParseFailure> {
        let segment = match self.peek() {
            Some('*') => {
                self.at += 1;
                Segment::Wildcard
            }
            Some(quote @ ('\'' | '"')) => {
                self.at += 1;
                self.quoted(quote)?
            }
            Some(digit) if digit.is_ascii_digit() => self.index()?,
            _ => return Err((self.at, "expected an index, *, or a quoted name")),
        };
        if self.eat(']') { Ok(segment) } else { Err((self.at, "expected ]")) }
    }

    fn index(&mut self) -> Result<Segment, ParseFailure> {
        let rest = self.text.get(self.at..).unwrap_or_default();
        let length = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let digits = rest.get(..length).unwrap_or_default();
        if digits.len() > 1 && digits.starts_with('0') {
            return Err((self.at, "an index must not have leading zeros"));
        }
        let index = digits.parse::<u32>().map_err(|_| (self.at, "the index is too large"))?;
        self.at += length;
        Ok(Segment::Index(index as usize))
    }

    fn quoted(&mut self, quote: char) -> Result<Segment, ParseFailure> {
        let start = self.at;
        let mut json = String::new();
        loop {
            let at = self.at;
            let next = self.peek().ok_or((start, "unterminated quoted name"))?;
            self.at += next.len_utf8();
            match next {
                _ if next == quote => break,
                '\\' => {
                    let escaped = self.peek().ok_or((at, "unterminated escape"))?;
                    self.at += escaped.len_utf8();
                    if escaped == '\'' {
                        json.push('\'');
                    } else {
                        json.push('\\');
                        json.push(escaped);
                    }
                }
                '"' => json.push_str("\\\""),
                control if control.is_control() => {
                    return Err((at, "control character in a name"));
                }
                other => json.push(other),
            }
        }
        crate::escape::unescape(&json).map(Segment::Name).map_err(|_| (start, "invalid escape in a name"))
    }

    fn peek(&self) -> Option<char> {
        self.text.get(self.at..)?.chars().next()
    }

    fn eat(&mut self, wanted: char) -> bool {
        let found = self.peek() == Some(wanted);
        if found {
            self.at += wanted.len_utf8();
        }
        found
    }
}

#[cfg(test)]
mod tests;
