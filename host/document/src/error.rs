//! Errors of reads and edits. None is retryable: the same bytes give the same error.

use crate::Path;

/// The reason why a read or an edit of an object failed. The object is unchanged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The bytes that were read are not valid JSON or protobuf. The caller applies the filter's failure policy to the
    /// object.
    #[error("malformed at byte {offset}: {reason}")]
    Malformed {
        /// The byte offset in the object.
        offset: usize,
        /// The expected syntax.
        reason: &'static str,
    },
    /// A member on the path is repeated. Parsers disagree about which one counts, so the filter and the client could
    /// see different values.
    #[error("member {key:?} is repeated at byte {offset}")]
    DuplicateKey {
        /// The member's name, unescaped.
        key: String,
        /// The byte offset of the second one.
        offset: usize,
    },
    /// Objects and arrays are nested deeper than [`crate::MAX_DEPTH`].
    #[error("nested deeper than {} levels at byte {offset}", crate::MAX_DEPTH)]
    TooDeep {
        /// The byte offset of the first bracket that is too deep.
        offset: usize,
    },
    /// The object, a column or the result of an edit is too large.
    #[error("larger than {limit} bytes")]
    TooLarge {
        /// The exceeded limit.
        limit: usize,
    },
    /// The path has a `[*]`, but the call needs a single value. This is a bug in the filter.
    #[error("path {path} selects many values, but one is needed")]
    Wildcard {
        /// The path.
        path: Path,
    },
    /// The path has no `[*]`, but the call needs rows. This is a bug in the filter.
    #[error("path {path} has no [*]")]
    NoWildcard {
        /// The path.
        path: Path,
    },
    /// The edit affects a field that the rules or the guards of the document protect.
    #[error("{path} cannot be edited: {field} is protected")]
    Protected {
        /// The path of the edit, `$` for a replacement.
        path: Path,
        /// The protected field.
        field: Path,
    },
    /// The document is read-only, as looked-up objects are.
    #[error("a read-only object, such as a looked-up one, cannot be edited")]
    ReadOnly,
    /// The selection is of another number of rows.
    #[error("the path has {rows} rows, and the selection {selected} (of a bitmap, eight for each byte)")]
    Rows {
        /// The number of rows of the path in this object.
        rows: usize,
        /// The number of rows of the selection: of a bitmap eight for each byte.
        selected: usize,
    },
    /// The edit sets a member in a value that is neither an object nor null.
    #[error("{path}: the value at byte {offset} is not an object")]
    NotAnObject {
        /// The path.
        path: Path,
        /// The byte offset of that value.
        offset: usize,
    },
    /// The edit appends an element to a value that is neither an array nor null.
    #[error("{path}: the value at byte {offset} is not an array")]
    NotAnArray {
        /// The path.
        path: Path,
        /// The byte offset of that value.
        offset: usize,
    },
    /// The path names a field that protobuf objects of this kind do not have.
    #[error("{path}: objects of this kind have no such field in protobuf")]
    NotInSchema {
        /// The path.
        path: Path,
    },
    /// The schema lacks the kind, which is therefore available as JSON only.
    #[error("{kind} of {api_version} has no protobuf schema")]
    NoSchema {
        /// The requested version.
        api_version: String,
        /// The requested kind.
        kind: String,
    },
    /// The value is not of the type that the program reads.
    #[error("{path}: {reason}")]
    Type {
        /// The path.
        path: Path,
        /// The reason, by serde. Its offsets count in the value.
        reason: String,
    },
    /// The value of an edit is invalid: a number that is not a JSON number, or text that is not JSON.
    #[error("the new value is not valid")]
    InvalidValue {
        /// The reason. Its offsets count in the value.
        #[source]
        source: Box<Error>,
    },
}

impl Error {
    pub(crate) fn malformed(offset: usize, reason: &'static str) -> Self {
        Error::Malformed { offset, reason }
    }
}
