//! The names of the files that together are a kubeconfig.

use std::ffi::OsStr;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The files that together are a kubeconfig: at least one. The first file that sets a value decides it. Clones share them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KubeconfigFiles(Arc<[PathBuf]>);

impl From<PathBuf> for KubeconfigFiles {
    fn from(file: PathBuf) -> Self {
        Self(Arc::new([file]))
    }
}

impl KubeconfigFiles {
    /// Splits the value of `KUBECONFIG`, `FILE[:FILE…]`. Empty names are ignored. `None` if there is no other.
    #[must_use]
    pub fn of_list(value: &OsStr) -> Option<Self> {
        let files: Arc<[_]> = std::env::split_paths(value).filter(|file| !file.as_os_str().is_empty()).collect();
        (!files.is_empty()).then_some(Self(files))
    }

    /// The files, in the order of the list.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        self.0.iter().map(PathBuf::as_path)
    }

    /// Whether there are several files.
    pub(crate) fn is_list(&self) -> bool {
        self.0.len() > 1
    }

    /// What to do about a missing context.
    pub(crate) fn select_a_context(&self) -> String {
        match &*self.0 {
            [file] => format!("select one with `kubectl config use-context NAME --kubeconfig {}`", file.display()),
            _ => "select one with `kubectl config use-context NAME`".to_owned(),
        }
    }
}

/// `kubeconfig FILE`, or `kubeconfigs FILE, FILE`: the beginning of an error.
impl fmt::Display for KubeconfigFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = if self.is_list() { "s" } else { "" };
        let paths: Vec<_> = self.paths().map(|path| path.display().to_string()).collect();
        write!(f, "kubeconfig{plural} {}", paths.join(", "))
    }
}
