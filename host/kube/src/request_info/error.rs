//! Why a request line cannot be interpreted.

/// An ambiguous or malformed request line. Weir responds with 400 and forwards nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RequestInfoError {
    /// The request target is not a path (`OPTIONS *`).
    #[error("the request has no path")]
    NoPath,
    /// Two consecutive slashes.
    #[error("the path has an empty segment")]
    EmptySegment,
    /// A `.` or `..` segment, plain or percent-encoded.
    #[error("the path has a `.` or `..` segment")]
    DotSegment,
    /// A percent-encoded slash (`%2F`).
    #[error("the path has an encoded slash")]
    EncodedSlash,
    /// The decoded path or query is not UTF-8, or the decoded path contains control characters.
    #[error("the path or the query is not valid UTF-8 or contains control characters")]
    NotText,
    /// A percent sign without two hexadecimal digits (`%zz`).
    #[error("the path has an invalid percent escape")]
    BadEscape,
    /// A deprecated prefix without a resource (`/api/v1/watch`).
    #[error("the path names no resource after its prefix")]
    NoResource,
    /// More query parameters than a server reads.
    #[error("the query has more than 10000 parameters")]
    TooManyParameters,
}
