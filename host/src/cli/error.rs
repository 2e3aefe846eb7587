//! Why a command ended without a result.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use crate::config::ConfigurationError;
use weir_filter::cases::CaseError;
use weir_kubeconfig::KubeconfigFiles;
use weir_runtime::{EngineError, LoadError};
use weir_store::FileObjectsError;

/// A reason why a command ended without a result.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CommandError {
    /// A file or directory cannot be read or written.
    #[error("{}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// A file does not contain Kubernetes objects.
    #[error("{what}")]
    Objects {
        /// The name of the file or flag.
        what: String,
        /// The cause.
        #[source]
        source: FileObjectsError,
    },
    /// A file or argument is not what the command needs.
    #[error("{what}: {reason}")]
    Invalid {
        /// The name of the file or argument.
        what: String,
        /// What is wrong.
        reason: String,
    },
    /// A kubeconfig cannot be used.
    #[error(transparent)]
    Kubeconfig(#[from] weir_upstream::SourceError),
    /// No API server answers.
    #[error("{}", files.no_answer(server))]
    Unreachable {
        /// The URL of the API server.
        server: http::Uri,
        /// The kubeconfig that names it.
        files: KubeconfigFiles,
        /// The cause.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The configuration is invalid.
    #[error(transparent)]
    Configuration(#[from] ConfigurationError),
    /// The case files are invalid.
    #[error(transparent)]
    Cases(#[from] CaseError),
    /// The module cannot be loaded.
    #[error("module {}", path.display())]
    Load {
        /// The module.
        path: PathBuf,
        /// The cause.
        #[source]
        source: Box<LoadError>,
    },
    /// Filters of a configuration cannot be loaded: one line for each.
    #[error("{0}")]
    Filters(String),
    /// Nothing answers on the admin port of a daemon.
    #[error("no answer from the admin port {address}, is the daemon running there?")]
    AdminPort {
        /// The address of the port.
        address: SocketAddr,
        /// The cause.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// What answers on the admin port is no daemon, or refuses.
    #[error("unexpected answer from the admin port {address}, is Weir running there?")]
    AdminAnswer {
        /// The address of the port.
        address: SocketAddr,
        /// What is wrong with the answer.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A registry refuses.
    #[error(transparent)]
    Registry(#[from] weir_registry::RegistryError),
    /// This machine cannot run compiled modules.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The tokio runtime cannot be created, or standard output is closed.
    #[error("cannot start the tokio runtime or write to standard output")]
    System(#[source] std::io::Error),
}

impl CommandError {
    /// Names the file of an error.
    pub(super) fn of_file(path: &Path) -> impl Fn(std::io::Error) -> Self {
        move |source| Self::File { path: path.to_owned(), source }
    }

    /// Names the directory that a command cannot create.
    pub(super) fn of_directory(path: &Path) -> impl Fn(std::io::Error) -> Self {
        move |source| match source.kind() {
            ErrorKind::AlreadyExists => {
                Self::invalid(path.display(), "it is not a directory: give another path, or remove it")
            }
            _ => Self::of_file(path)(source),
        }
    }

    /// Names the module of an error.
    pub(super) fn of_module(path: &Path) -> impl Fn(LoadError) -> Self {
        move |source| Self::Load { path: path.to_owned(), source: Box::new(source) }
    }

    pub(super) fn invalid(what: impl ToString, reason: impl Into<String>) -> Self {
        Self::Invalid { what: what.to_string(), reason: reason.into() }
    }
}
