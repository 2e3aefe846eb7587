//! The flag that names a cluster, as kubectl has it.

use std::ffi::OsString;

use clap::Args;
use weir_kubeconfig::KubeconfigFiles;

use super::author::folder;

/// Flags that say where a cluster is.
#[derive(Debug, Clone, Args)]
pub struct ClusterFlags {
    /// Kubeconfig of the cluster, or several, which are merged as kubectl merges them [default: ~/.kube/config]
    #[arg(long, env = "KUBECONFIG", value_name = "FILE[:FILE…]")]
    kubeconfig: Option<OsString>,
}

impl ClusterFlags {
    /// Returns the files that the flag or the environment names. An empty variable names none, as for kubectl.
    #[must_use]
    pub fn given(&self) -> Option<KubeconfigFiles> {
        KubeconfigFiles::of_list(self.kubeconfig.as_ref()?)
    }

    /// Returns the kubeconfig of this user.
    #[must_use]
    pub fn of_user() -> KubeconfigFiles {
        folder("HOME").unwrap_or_default().join(".kube/config").into()
    }
}
