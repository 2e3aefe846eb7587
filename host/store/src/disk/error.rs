//! Why a cache on disk, or one of its stores, cannot be used.

use std::io;

/// A failure of the cache on disk. The daemon runs on without what failed, and fetches it again.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DiskError {
    /// The bytes on disk are not those that were written. Undamaged parts are recovered.
    #[error("damaged: {0}")]
    Damaged(String),
    /// Another release of Weir wrote the file. It is set aside.
    #[error("its format {0} is not the one that this release reads")]
    Format(String),
    /// A daemon with another name of the node wrote the file. It is set aside.
    #[error("it belongs to the node {0:?}")]
    OtherNode(String),
    /// The file is of another cluster. It is set aside.
    #[error("it belongs to the cluster whose namespace kube-system has the uid {0:?}")]
    OtherCluster(String),
    /// The file was deleted or replaced while it was open. A file in its place is set aside.
    #[error("it was deleted or replaced while it was in use")]
    Moved,
    /// The encryption key is missing, unusable or another one. The encrypted stores stay until others are written.
    #[error("the encryption key is not usable: {0}")]
    Key(String),
    /// The disk is full. The cache is opened again after a delay.
    #[error("the disk is full")]
    Full,
    /// The directory cannot be written. The cache is opened again after a delay.
    #[error("the directory is read-only")]
    ReadOnly(#[source] io::Error),
    /// Another process has the file open. The cache is opened again after a delay.
    #[error("another process has it open")]
    Locked,
    /// A system call failed. The cache is opened again after a delay.
    #[error("input or output failed")]
    Io(#[source] io::Error),
    /// The store does not fit the size limit of the cache. It is dropped.
    #[error("it exceeds the size limit of the cache")]
    TooLarge,
}

/// Each reason of [`DiskError::reason`].
pub(super) const REASONS: [&str; 11] =
    ["damaged", "format", "node", "cluster", "moved", "key", "full", "read_only", "locked", "io", "too_large"];

impl DiskError {
    /// The label of metrics: one of [`REASONS`].
    #[must_use]
    pub(crate) fn reason(&self) -> &'static str {
        match self {
            Self::Damaged(_) => "damaged",
            Self::Format(_) => "format",
            Self::OtherNode(_) => "node",
            Self::OtherCluster(_) => "cluster",
            Self::Moved => "moved",
            Self::Key(_) => "key",
            Self::Full => "full",
            Self::ReadOnly(_) => "read_only",
            Self::Locked => "locked",
            Self::Io(_) => "io",
            Self::TooLarge => "too_large",
        }
    }

    /// Whether what is on disk can be trusted once the cause is gone. Otherwise it is replaced.
    pub(super) fn is_temporary(&self) -> bool {
        matches!(self, Self::Full | Self::ReadOnly(_) | Self::Locked | Self::Io(_))
    }

    /// Whether the file is whole, and of something else than this start.
    pub(super) fn is_misfit(&self) -> bool {
        matches!(self, Self::OtherNode(_) | Self::OtherCluster(_) | Self::Format(_))
    }

    /// Whether the file may be read although it cannot be written. A file that another process writes changes while it is read.
    pub(super) fn may_be_read(&self) -> bool {
        matches!(self, Self::Full | Self::ReadOnly(_) | Self::Io(_))
    }
}

impl From<io::Error> for DiskError {
    fn from(error: io::Error) -> Self {
        use io::ErrorKind::{
            InvalidData, PermissionDenied, QuotaExceeded, ReadOnlyFilesystem, StorageFull, UnexpectedEof,
        };
        match error.kind() {
            StorageFull | QuotaExceeded => Self::Full,
            ReadOnlyFilesystem | PermissionDenied => Self::ReadOnly(error),
            InvalidData | UnexpectedEof => Self::Damaged(error.to_string()),
            _ => Self::Io(error),
        }
    }
}

impl From<redb::Error> for DiskError {
    fn from(error: redb::Error) -> Self {
        match error {
            redb::Error::Io(error) => error.into(),
            redb::Error::DatabaseAlreadyOpen | redb::Error::LockProtocolMismatch => Self::Locked,
            redb::Error::UpgradeRequired(version) => Self::Format(format!("of the database, {version},")),
            redb::Error::PreviousIo => Self::Io(io::Error::other("an earlier operation failed")),
            other => Self::Damaged(other.to_string()),
        }
    }
}

macro_rules! from_redb {
    ($($error:ty),*) => {
        $(impl From<$error> for DiskError {
            fn from(error: $error) -> Self {
                redb::Error::from(error).into()
            }
        })*
    };
}

from_redb!(redb::StorageError, redb::TableError, redb::DatabaseError, redb::TransactionError, redb::CommitError);

/// The file of the cache cannot be used at present.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the cache on disk cannot be used at present")]
pub struct DiskUnusable;
