//! Why a codec cannot read or write an answer.

use weir_document::Document;
use weir_document::json::SplitError;
use weir_runtime::Failure;

/// The bytes are not what their encoding or content type promises. Retrying the same bytes fails again.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CodecError {
    /// The bytes are no list or no watch event, or an item exceeds the size limit.
    #[error(transparent)]
    Split(#[from] SplitError),
    /// The bytes of one object are malformed.
    #[error(transparent)]
    Document(#[from] weir_document::Error),
    /// Neither the object, its list nor the requested resource names its type.
    #[error("an object names no apiVersion and kind, and the kind of its resource is not known")]
    UnknownType,
    /// A protobuf body names no type of its items.
    #[error("it is not a list")]
    NotAList,
    /// A Table row lacks the object that filters need.
    #[error("a Table without its object")]
    MissingObject,
}

/// Why a batch of outcomes cannot be written.
#[derive(Debug)]
pub(crate) enum EncodeError {
    /// A filter with policy Fail failed on this object.
    Filter(Failure, Box<Document>),
    /// The object's bytes are malformed.
    Codec(CodecError),
}

impl<E: Into<CodecError>> From<E> for EncodeError {
    fn from(error: E) -> Self {
        Self::Codec(error.into())
    }
}
