//! The errors of codecs.

use weir_document::SplitError;
use weir_runtime::Failure;

/// The bytes do not conform to their encoding or content type. Not retryable with the same bytes.
#[derive(Debug, thiserror::Error)]
pub enum CodecError {
    /// The bytes are not a list or a watch event, or an item exceeds the size limit.
    #[error(transparent)]
    Split(#[from] SplitError),
    /// The bytes of one object are malformed.
    #[error(transparent)]
    Document(#[from] weir_document::Error),
    /// The type of an object is unknown: the object and its list name none, and the requested resource is not built in.
    #[error("an object names no apiVersion and kind, and the kind of its resource is not known")]
    UnknownType,
    /// A protobuf body does not name the type of its items.
    #[error("the body is not a list")]
    NotAList,
    /// A Table row lacks the object that filters need.
    #[error("a row of a Table has no object")]
    MissingObject,
}

/// A reason why outcomes cannot be encoded.
#[derive(Debug)]
pub enum EncodeError {
    /// A filter with policy Fail failed on an object.
    Filter(Failure),
    /// The object's bytes are malformed.
    Codec(CodecError),
}

impl<E: Into<CodecError>> From<E> for EncodeError {
    fn from(error: E) -> Self {
        Self::Codec(error.into())
    }
}
