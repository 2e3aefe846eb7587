//! What can be wrong with an object or an edit. Nothing here is retryable: the same bytes give the same error.

use crate::Path;

/// Why a read or an edit of one object failed. The object is unchanged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The bytes are not JSON, or not protobuf, where they were looked at. The object falls under the filter's failure policy.
    #[error("malformed at byte {offset}: {reason}")]
    Malformed {
        /// Position in the object's bytes.
        offset: usize,
        /// What was expected there.
        reason: &'static str,
    },
    /// A member on the walked path is there twice. Parsers disagree about which one counts, so that filter and client
    /// would read different things.
    #[error("member {key:?} is repeated at byte {offset}")]
    DuplicateKey {
        /// The member's name, unescaped.
        key: String,
        /// Position of the second one.
        offset: usize,
    },
    /// Objects and arrays nest deeper than [`crate::MAX_DEPTH`].
    #[error("nested deeper than {} levels at byte {offset}", crate::MAX_DEPTH)]
    TooDeep {
        /// Position of the bracket that is one too many.
        offset: usize,
    },
    /// The object, a column or the outcome of an edit is larger than what is allowed.
    #[error("larger than {limit} bytes")]
    TooLarge {
        /// The limit that would have been exceeded.
        limit: usize,
    },
    /// The path has a `[*]` where one value is asked for. A mistake of the filter's author.
    #[error("path {path} stands for many values, one is needed")]
    Wildcard {
        /// The path that was given.
        path: Path,
    },
    /// The path has no `[*]` where rows are asked for. A mistake of the filter's author.
    #[error("path {path} has no [*]")]
    NoWildcard {
        /// The path that was given.
        path: Path,
    },
    /// The edit touches a field that must stay: the object's identity, its labels and owners, or a guarded path.
    #[error("{path} cannot be edited: {field} is protected")]
    Protected {
        /// The path that was given; `$` for a replacement.
        path: Path,
        /// The protected field.
        field: Path,
    },
    /// The object is a looked-up one: those refuse every edit.
    #[error("a looked-up object cannot be edited")]
    ReadOnly,
    /// A row bitmap has the wrong length.
    #[error("a bitmap for {rows} rows takes {expected} bytes, not {found}")]
    Bitmap {
        /// Rows of the path in this object.
        rows: usize,
        /// `ceil(rows / 8)`.
        expected: usize,
        /// The length that was given.
        found: usize,
    },
    /// A member is to be set in something that is neither an object nor null.
    #[error("{path}: the value at byte {offset} is not an object")]
    NotAnObject {
        /// The path that was given.
        path: Path,
        /// Position of the value in the way.
        offset: usize,
    },
    /// An element is to be added to something that is neither an array nor null.
    #[error("{path}: the value at byte {offset} is not an array")]
    NotAnArray {
        /// The path that was given.
        path: Path,
        /// Position of the value in the way.
        offset: usize,
    },
    /// The path leads to no field that a protobuf object of this kind can have.
    #[error("{path}: objects of this kind have no such field in protobuf")]
    NotInSchema {
        /// The path that was given.
        path: Path,
    },
    /// The schema lacks the kind: it is to be had as JSON only.
    #[error("{kind} of {api_version} has no protobuf schema")]
    NoSchema {
        /// The version that was given.
        api_version: String,
        /// The kind that was given.
        kind: String,
    },
    /// The value of an edit is not what it says: a number that is none, text that is no JSON.
    #[error("the new value is not valid")]
    InvalidValue {
        /// What is wrong with it; positions count in the value.
        #[source]
        source: Box<Error>,
    },
}

impl Error {
    pub(crate) fn malformed(offset: usize, reason: &'static str) -> Self {
        Error::Malformed { offset, reason }
    }
}
