//! Which node this is.

use std::path::Path;

use weir_kube::node_of_user;
use weir_upstream::client_certificate;

use crate::config::ServeConfig;
use crate::proxy::Subject;

/// Takes the name that the node credential has, where it is that of another node than the flag says: the flag may come from a host
/// name that was not set yet, and the API server goes by the credential. Returns what the flag said.
pub(crate) fn trust_credential(config: &mut ServeConfig) -> Option<String> {
    let name = config.node_kubeconfig.as_deref().and_then(node_of_credential)?;
    (name != config.node_name).then(|| std::mem::replace(&mut config.node_name, name))
}

/// The node that the client certificate of a kubeconfig is of. `None` if there is none, or if it cannot be read now.
fn node_of_credential(kubeconfig: &Path) -> Option<String> {
    let subject = Subject::of(&client_certificate(kubeconfig)?)?;
    node_of_user(&subject.user, &subject.groups).map(str::to_owned)
}
