//! Values of query parameters.

use std::fmt;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// The characters that a value does not contain unescaped.
const QUERY: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// Percent-encodes the value of a query parameter.
pub(super) fn escaped(value: &str) -> impl fmt::Display {
    utf8_percent_encode(value, QUERY)
}
