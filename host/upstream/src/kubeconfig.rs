//! A kubeconfig as kube reads it, but from memory: its paths are relative to its folder.

use std::path::Path;

use kube::config::{AuthInfo, Cluster, Kubeconfig, KubeconfigError};

use weir_process::files::folder_of;

use crate::error_report;

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

/// What is wrong with a kubeconfig, and what would be right. kube's own words say what it failed to do.
pub(crate) fn in_words(error: &KubeconfigError) -> String {
    match error {
        KubeconfigError::CurrentContextNotSet => "it has no current-context: name one of its contexts".to_owned(),
        KubeconfigError::LoadContext(name) => format!("its current-context {name:?} is none of its contexts"),
        KubeconfigError::LoadClusterOfContext(name) => {
            format!("the current context names the cluster {name:?}, which is none of its clusters")
        }
        KubeconfigError::MissingClusterUrl => "the cluster of the current context has no server".to_owned(),
        KubeconfigError::ParseClusterUrl(reason) => format!("the server of the current context is no URL: {reason}"),
        KubeconfigError::Parse(reason) => {
            // The lines after the first one show the text, which may have a token in it.
            let text = reason.to_string();
            let text = text.lines().next().unwrap_or_default().trim_start_matches("error: ");
            let text = text.replace("sequence start", "a list").replace("mapping start", "keys and values");
            format!("it is not valid: {text}")
        }
        other => error_report(other),
    }
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

#[cfg(test)]
mod tests {
    use kube::config::KubeConfigOptions;

    use super::*;

    /// What is wrong with a kubeconfig; `None` if nothing is.
    async fn fault(text: &str) -> Option<String> {
        let loaded = match parse(Path::new("/etc/kubeconfig"), text.as_bytes().to_vec()) {
            Ok(file) => kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await.map(drop),
            Err(error) => Err(error),
        };
        loaded.err().map(|error| in_words(&error))
    }

    #[tokio::test]
    async fn what_is_wrong_is_said_with_what_would_be_right() {
        let contexts = "contexts: [{name: c, context: {cluster: a, user: u}}]";
        let user = "users: [{name: u, user: {}}]";
        let clusters = "clusters: [{name: a, cluster: {server: \"https://x:1\"}}]";
        for (text, reason) in [
            (format!("{contexts}\n{user}\n{clusters}\ncurrent-context: c"), None),
            (format!("{contexts}\n{user}\n{clusters}"), Some("it has no current-context: name one of its contexts")),
            ("current-context: x".to_owned(), Some("its current-context \"x\" is none of its contexts")),
            (
                format!("{contexts}\n{user}\ncurrent-context: c"),
                Some("the current context names the cluster \"a\", which is none of its clusters"),
            ),
            (
                format!("{contexts}\n{user}\nclusters: [{{name: a, cluster: {{}}}}]\ncurrent-context: c"),
                Some("the cluster of the current context has no server"),
            ),
            ("clusters: {a: b}".to_owned(), Some("it is not valid: line 1 column 11: expected a list")),
        ] {
            assert_eq!(fault(&text).await.as_deref(), reason, "{text}");
        }
    }
}
