//! The query of a request, decoded as Go's `url.ParseQuery` does and encoded again in a normal form.
//!
//! `url.ParseQuery` drops pairs that contain a `;` or an invalid escape. This parser drops them too, so that Weir and the API
//! server see the same keys.

use std::fmt::Write as _;

use http::uri::PathAndQuery;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

use super::RequestInfoError;
use crate::go_text::equal_fold;

const PLAIN: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Go's `urlmaxqueryparams`. A server that is built with it drops a longer query, selectors and all.
const MAX_PARAMETERS: usize = 10_000;

/// The decoded pairs in their order, with repeated keys (`command=sh&command=-c`).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Query {
    pairs: Vec<(String, String)>,
}

impl Query {
    /// Decodes a raw query.
    ///
    /// # Errors
    /// [`RequestInfoError::NotText`] if a decoded key or value is not UTF-8. [`RequestInfoError::TooManyParameters`] if
    /// `url.ParseQuery` would read none of them.
    pub fn parse(raw: &str) -> Result<Self, RequestInfoError> {
        if raw.split('&').count() > MAX_PARAMETERS {
            return Err(RequestInfoError::TooManyParameters);
        }
        let pairs = raw
            .split('&')
            .filter(|pair| !pair.is_empty() && !pair.contains(';') && escapes_are_valid(pair))
            .map(|pair| {
                let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
                Ok((decode(key)?, decode(value)?))
            })
            .collect::<Result<_, _>>()?;
        Ok(Self { pairs })
    }

    /// The first value of a key.
    #[must_use]
    pub fn first(&self, key: &str) -> Option<&str> {
        self.pairs.iter().find(|(name, _)| name == key).map(|(_, value)| value.as_str())
    }

    /// The keys in their order, repeated ones too.
    pub(super) fn keys(&self) -> impl Iterator<Item = &str> {
        self.pairs.iter().map(|(key, _)| key.as_str())
    }

    /// The first value of a key, converted to a boolean as Kubernetes does.
    ///
    /// A missing key, `false` and `0` are false. Any other value is true, also the empty one.
    #[must_use]
    pub fn flag(&self, key: &str) -> bool {
        self.first(key).is_some_and(|value| !equal_fold(value.as_bytes(), "false") && value != "0")
    }

    /// The same as `RequestInfo` reads it where other options are malformed: U+017F is no `s` there.
    pub(super) fn flag_of_malformed(&self, key: &str) -> bool {
        self.first(key).is_some_and(|value| !value.eq_ignore_ascii_case("false") && value != "0")
    }

    /// The query with all values of a key replaced by this one.
    #[must_use]
    pub fn with(&self, key: &str, value: &str) -> Self {
        let mut pairs: Vec<_> = self.pairs.iter().filter(|(name, _)| name != key).cloned().collect();
        pairs.push((key.to_owned(), value.to_owned()));
        Self { pairs }
    }

    /// The query without these keys.
    #[must_use]
    pub fn without(&self, keys: &[&str]) -> Self {
        Self { pairs: self.pairs.iter().filter(|(name, _)| !keys.contains(&name.as_str())).cloned().collect() }
    }

    /// Appends the query to an encoded path.
    #[must_use]
    pub fn on(&self, path: &str) -> Option<PathAndQuery> {
        let mut path = path.to_owned();
        self.append_to(&mut path);
        path.parse().ok()
    }

    /// Appends `?` and the encoded pairs to a path. An empty query appends nothing.
    pub(super) fn append_to(&self, path: &mut String) {
        for (index, (key, value)) in self.pairs.iter().enumerate() {
            let mark = if index == 0 { '?' } else { '&' };
            let _ = write!(path, "{mark}{}={}", utf8_percent_encode(key, PLAIN), utf8_percent_encode(value, PLAIN));
        }
    }
}

/// Whether two hexadecimal digits follow each `%`. Go rejects other escapes.
pub(crate) fn escapes_are_valid(text: &str) -> bool {
    text.split('%').skip(1).all(|after| after.bytes().take(2).filter(u8::is_ascii_hexdigit).count() == 2)
}

fn decode(text: &str) -> Result<String, RequestInfoError> {
    let spaced = text.replace('+', " ");
    percent_decode_str(&spaced).decode_utf8().map(Into::into).map_err(|_| RequestInfoError::NotText)
}
