//! Which node this is.

use std::path::Path;

use weir_kube::node_of_user;
use weir_process::files::before_the_start;
use weir_upstream::{ServerSource, client_certificate};

use crate::config::ServeConfig;
use weir_front::Subject;

/// What the node credential says of `--node-name`.
pub(crate) enum NameInFlag {
    /// Nothing else.
    Holds,
    /// It names another node, whose name is used. What the flag said.
    Replaced(String),
    /// The file system of the credential does not answer.
    Unchecked,
}

impl NameInFlag {
    /// Logs it, once there is a log. `node` is the name that is used.
    pub(crate) fn log(self, node: &str) {
        match self {
            Self::Holds => {}
            Self::Replaced(flag) => {
                tracing::error!(
                    flag,
                    node,
                    "--node-name names another node than the node credential, whose name is used"
                );
            }
            Self::Unchecked => {
                tracing::error!(
                    node,
                    "the file of the credential cannot be read in time, --node-name is used unchecked"
                );
            }
        }
    }
}

/// Takes the name that the node credential has, where it is that of another node than the flag says: the flag may come from a host
/// name that was not set yet, and the API server goes by the credential.
pub(crate) fn trust_credential(config: &mut ServeConfig) -> NameInFlag {
    let own: Vec<_> = match &config.upstream {
        ServerSource::Kubeconfig(files) => files.paths().map(Path::to_owned).collect(),
        _ => Vec::new(),
    };
    // The daemon's own may be that of the node, too.
    let kubeconfigs: Vec<_> = config.node_kubeconfig.iter().cloned().chain(own).collect();
    if kubeconfigs.is_empty() {
        return NameInFlag::Holds;
    }
    match before_the_start(move || kubeconfigs.iter().find_map(|path| node_of_credential(path))) {
        Some(Some(name)) if name != config.node_name => {
            NameInFlag::Replaced(std::mem::replace(&mut config.node_name, name))
        }
        Some(_) => NameInFlag::Holds,
        None => NameInFlag::Unchecked,
    }
}

/// The node that the client certificate of a kubeconfig is of. `None` if there is none, or if it cannot be read now.
fn node_of_credential(kubeconfig: &Path) -> Option<String> {
    let subject = Subject::of(&client_certificate(kubeconfig)?)?;
    node_of_user(&subject.user, &subject.groups).map(str::to_owned)
}
