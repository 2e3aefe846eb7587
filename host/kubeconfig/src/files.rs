//! The names of the files that together are a kubeconfig.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The files that together are a kubeconfig. The first file that sets a value decides it. Clones share them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KubeconfigFiles(Arc<[PathBuf]>);

impl From<PathBuf> for KubeconfigFiles {
    fn from(file: PathBuf) -> Self {
        Self(Arc::new([file]))
    }
}

impl KubeconfigFiles {
    /// Returns the file of `--kubeconfig`, or else the files of `KUBECONFIG`, as kubectl: the flag is one path, the variable is
    /// a list, `FILE[:FILE…]`, whose empty names are ignored. `None` if both are unset or empty.
    #[must_use]
    pub fn given(flag: Option<&OsStr>, variable: Option<OsString>) -> Option<Self> {
        if let Some(file) = flag.filter(|file| !file.is_empty()) {
            return Some(PathBuf::from(file).into());
        }
        let list = variable.filter(|list| !list.is_empty())?;
        Some(Self(std::env::split_paths(&list).filter(|file| !file.as_os_str().is_empty()).collect()))
    }

    /// Returns the default, which counts if no file is [given](Self::given): `~/.kube/config`. `None` if `HOME` is unset or
    /// empty.
    #[must_use]
    pub fn of_user(home: Option<OsString>) -> Option<Self> {
        let home = home.filter(|home| !home.is_empty())?;
        Some(PathBuf::from(home).join(".kube/config").into())
    }

    /// The files, in the order of the list.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        self.0.iter().map(PathBuf::as_path)
    }

    /// What a command says if the API server of these files does not answer, and what to do.
    #[must_use]
    pub fn no_answer(&self, server: &impl fmt::Display) -> String {
        let server = server.to_string();
        format!(
            "no answer from the API server {} of the {self}, does it run there, and can this machine reach it? --kubeconfig or KUBECONFIG names another cluster",
            server.trim_end_matches('/')
        )
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
