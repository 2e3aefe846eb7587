//! Kubeconfigs as kubectl reads them: the file of `--kubeconfig`, or the list of `KUBECONFIG`, whose files are merged, or
//! `~/.kube/config`.
//!
//! Callers read the environment and the files: the daemon with deadlines, commands at once. kube parses and merges, and this crate
//! checks the current context, because kube's errors name neither the file nor a remedy. No I/O.

mod error;
mod files;

use std::io;
use std::path::Path;

use kube::config::{AuthInfo, Cluster, KubeConfigOptions, Kubeconfig, KubeconfigError};

pub use error::ConfigError;
pub use files::KubeconfigFiles;

/// Parses the text of a kubeconfig. Its paths are relative to its folder.
///
/// # Errors
/// It is not valid.
pub fn parse(path: &Path, text: Vec<u8>) -> Result<Kubeconfig, KubeconfigError> {
    let text = String::from_utf8(text).map_err(std::io::Error::other);
    let text = text.map_err(|error| KubeconfigError::ReadConfig(error, path.to_owned()))?;
    let mut config = Kubeconfig::from_yaml(&text)?;
    let folder = path.parent().unwrap_or(Path::new(""));
    let resolve = |name: &mut Option<String>| {
        // An empty path is no path, as in client-go.
        let path = name.take().filter(|name| !name.is_empty()).map(|name| folder.join(name));
        *name = path.map(|path| path.to_string_lossy().into_owned());
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
    // An empty name is no name, as in client-go: the next file of a list may have one.
    config.current_context = config.current_context.filter(|name| !name.is_empty());
    Ok(config)
}

/// Merges the contents of files, in the order of the list, as kubectl does: missing files of a list are skipped.
///
/// # Errors
/// A file cannot be read or is not valid, or the current context is not usable.
pub fn merge(
    files: &KubeconfigFiles,
    contents: impl IntoIterator<Item = io::Result<Vec<u8>>>,
) -> Result<Kubeconfig, ConfigError> {
    if files.paths().next().is_none() {
        return Err(ConfigError::NoName);
    }
    let mut merged: Option<Kubeconfig> = None;
    for (path, content) in files.paths().zip(contents) {
        let content = match content {
            Err(error) if error.kind() == io::ErrorKind::NotFound && files.is_list() => continue,
            content => content.map_err(|source| ConfigError::Unreadable { path: path.to_owned(), source })?,
        };
        let parsed = parse(path, content).and_then(|file| merged.unwrap_or_default().merge(file));
        let invalid = |reason| ConfigError::Invalid { path: path.to_owned(), reason: Box::new(reason) };
        merged = Some(parsed.map_err(invalid)?);
    }
    let merged = merged.ok_or_else(|| ConfigError::NoFile { files: files.clone() })?;
    check(files, &merged)?;
    Ok(merged)
}

/// Checks that the current context and what it names exist.
fn check(files: &KubeconfigFiles, config: &Kubeconfig) -> Result<(), ConfigError> {
    let files = files.clone();
    let contexts = || config.contexts.iter().map(|named| named.name.clone()).collect();
    let Some(context) = config.current_context.clone() else {
        return Err(ConfigError::NoCurrentContext { files, contexts: contexts() });
    };
    let Some((cluster, user)) = current_context(config) else {
        return Err(ConfigError::NoSuchContext { files, name: context, contexts: contexts() });
    };
    let named = config.clusters.iter().filter(|named| named.cluster.is_some());
    let clusters: Vec<_> = named.map(|named| named.name.clone()).collect();
    if !clusters.contains(&cluster) {
        return Err(ConfigError::Dangling { files, context, kind: "cluster", name: cluster, known: clusters });
    }
    let users: Vec<_> = config.auth_infos.iter().map(|named| named.name.clone()).collect();
    match user {
        // client-go sends such requests without a credential, which then looks like a missing permission.
        Some(name) if !users.contains(&name) => {
            Err(ConfigError::Dangling { files, context, kind: "user", name, known: users })
        }
        _ => Ok(()),
    }
}

/// The configuration of a client, of the current context.
///
/// # Errors
/// The cluster or the user of the current context is not valid.
pub async fn client_config(files: &KubeconfigFiles, merged: Kubeconfig) -> Result<kube::Config, ConfigError> {
    let config = kube::Config::from_custom_kubeconfig(merged, &KubeConfigOptions::default()).await;
    config.map_err(|reason| ConfigError::Unusable { files: files.clone(), reason: Box::new(reason) })
}

/// The cluster of the current context.
pub fn current_cluster(config: &mut Kubeconfig) -> Option<&mut Cluster> {
    let (name, _) = current_context(config)?;
    config.clusters.iter_mut().find(|named| named.name == name)?.cluster.as_mut()
}

/// The user of the current context.
pub fn current_user(config: &mut Kubeconfig) -> Option<&mut AuthInfo> {
    let (_, name) = current_context(config)?;
    config.auth_infos.iter_mut().find(|named| Some(&named.name) == name.as_ref())?.auth_info.as_mut()
}

/// The names of the cluster and of the user of the current context.
fn current_context(config: &Kubeconfig) -> Option<(String, Option<String>)> {
    let current = config.current_context.as_ref()?;
    let context = config.contexts.iter().find(|named| named.name == *current)?.context.as_ref()?;
    // A context without a user is one without a credential.
    Some((context.cluster.clone(), context.user.clone().filter(|name| !name.is_empty())))
}

#[cfg(test)]
mod tests;
