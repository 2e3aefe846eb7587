//! A kubeconfig as kube reads it, but from memory: its paths are relative to its folder.

use std::path::Path;

use kube::config::{AuthInfo, Cluster, Kubeconfig, KubeconfigError};

use weir_process::files::folder_of;

/// Parses the text of a kubeconfig.
///
/// # Errors
/// It is not valid.
pub(crate) fn parse(path: &Path, text: Vec<u8>) -> Result<Kubeconfig, KubeconfigError> {
    let text = String::from_utf8(text).map_err(std::io::Error::other);
    let text = text.map_err(|error| KubeconfigError::ReadConfig(error, path.to_owned()))?;
    let mut config = Kubeconfig::from_yaml(&text)?;
    let folder = folder_of(path);
    let resolve = |name: &mut Option<String>| {
        if let Some(name) = name {
            *name = folder.join(&*name).to_string_lossy().into_owned();
        }
    };
    for cluster in config.clusters.iter_mut().filter_map(|named| named.cluster.as_mut()) {
        resolve(&mut cluster.certificate_authority);
    }
    for user in config.auth_infos.iter_mut().filter_map(|named| named.auth_info.as_mut()) {
        [&mut user.client_certificate, &mut user.client_key, &mut user.token_file].into_iter().for_each(resolve);
        // A command without a slash is one in PATH, as in client-go.
        if let Some(exec) =
            user.exec.as_mut().filter(|exec| exec.command.as_ref().is_some_and(|name| name.contains('/')))
        {
            resolve(&mut exec.command);
        }
    }
    Ok(config)
}

/// The cluster of the current context.
pub(crate) fn current_cluster(config: &mut Kubeconfig) -> Option<&mut Cluster> {
    let (name, _) = current_context(config)?;
    config.clusters.iter_mut().find(|named| named.name == name)?.cluster.as_mut()
}

/// The user of the current context.
pub(crate) fn current_user(config: &mut Kubeconfig) -> Option<&mut AuthInfo> {
    let (_, name) = current_context(config)?;
    config.auth_infos.iter_mut().find(|named| Some(&named.name) == name.as_ref())?.auth_info.as_mut()
}

/// The names of the cluster and of the user of the current context.
fn current_context(config: &Kubeconfig) -> Option<(String, Option<String>)> {
    let current = config.current_context.as_ref()?;
    let context = config.contexts.iter().find(|named| named.name == *current)?.context.as_ref()?;
    Some((context.cluster.clone(), context.user.clone()))
}
