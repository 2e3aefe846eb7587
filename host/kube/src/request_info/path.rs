//! Decodes, checks and re-encodes the segments of a path.
//!
//! Each segment is percent-decoded exactly once. Segments that a server might read in two ways are errors.

use std::fmt::Write as _;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

use super::RequestInfoError;
use super::query;

/// Encodes everything except what RFC 3986 allows in a path segment, so that names such as `https:dashboard:` keep their
/// spelling.
pub(super) const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~')
    .remove(b'!')
    .remove(b'$')
    .remove(b'&')
    .remove(b'\'')
    .remove(b'(')
    .remove(b')')
    .remove(b'*')
    .remove(b'+')
    .remove(b',')
    .remove(b';')
    .remove(b'=')
    .remove(b':')
    .remove(b'@');

/// Splits a path after its `proxy` subresource.
///
/// The tail is a path of another program, so it is forwarded without normalization. Only a tail with dot segments is
/// rejected, because it could leave the subresource again. The split is a guess by position: the caller checks that the
/// head really parses as a `proxy` subresource.
pub(super) fn split_proxy_tail(path: &str) -> Option<(&str, &str)> {
    let segments: Vec<&str> = path.split('/').collect();
    let fixed = match segments.first() {
        Some(&"api") => 2,
        Some(&"apis") => 3,
        _ => return None,
    };
    let resource = if segments.get(fixed) == Some(&"namespaces") { fixed + 2 } else { fixed };
    if segments.get(resource + 2) != Some(&"proxy") {
        return None;
    }
    let head = segments.iter().take(resource + 3).map(|part| part.len() + 1).sum::<usize>() - 1;
    path.split_at_checked(head).filter(|(_, tail)| !has_dot_segment(tail))
}

/// Decodes the segments of a path without its leading slash.
pub(super) fn decode(path: &str) -> Result<Vec<String>, RequestInfoError> {
    if path.is_empty() { Ok(Vec::new()) } else { path.split('/').map(decode_segment).collect() }
}

/// Encodes segments into an absolute path; no segments give an empty string.
pub(super) fn encode(segments: &[String]) -> String {
    segments.iter().fold(String::new(), |mut path, part| {
        let _ = write!(path, "/{}", utf8_percent_encode(part, SEGMENT));
        path
    })
}

/// Whether a path contains a dot segment after any number of decodings, which a backend may repeat. A path that is still
/// encoded after four rounds counts as one that does.
fn has_dot_segment(tail: &str) -> bool {
    let mut text = tail.to_owned();
    for _ in 0..4 {
        if text.split(['/', '\\']).any(|part| part == "." || part == "..") {
            return true;
        }
        match percent_decode_str(&text).decode_utf8_lossy() {
            std::borrow::Cow::Owned(decoded) if decoded != text => text = decoded,
            _ => return false,
        }
    }
    true
}

fn decode_segment(raw: &str) -> Result<String, RequestInfoError> {
    if raw.is_empty() {
        return Err(RequestInfoError::EmptySegment);
    }
    if !query::escapes_are_valid(raw) {
        return Err(RequestInfoError::BadEscape);
    }
    let text = percent_decode_str(raw).decode_utf8().map_err(|_| RequestInfoError::NotText)?;
    match text.as_ref() {
        "." | ".." => Err(RequestInfoError::DotSegment),
        text if text.contains('/') => Err(RequestInfoError::EncodedSlash),
        text if text.contains(|c: char| c.is_control()) => Err(RequestInfoError::NotText),
        text => Ok(text.to_owned()),
    }
}
