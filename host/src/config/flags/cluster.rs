//! The flag that names a cluster, as kubectl has it.

use std::ffi::OsString;

use clap::Args;
use weir_kubeconfig::KubeconfigFiles;

/// Flags that say where a cluster is.
#[derive(Debug, Clone, Args)]
pub struct ClusterFlags {
    /// Kubeconfig of the cluster, one file [default: the files of KUBECONFIG, or else ~/.kube/config]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<OsString>,
}

impl ClusterFlags {
    /// Returns the file of the flag, or else the files of `KUBECONFIG`.
    #[must_use]
    pub fn given(&self) -> Option<KubeconfigFiles> {
        KubeconfigFiles::given(self.kubeconfig.as_deref(), std::env::var_os("KUBECONFIG"))
    }
}
