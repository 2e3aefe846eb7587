//! Where the API servers are and who a credential is: flags or a kubeconfig → kube's configuration.

use std::path::{Path, PathBuf};

use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};

/// Where the API server is, and the daemon's own identity there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServerSource {
    /// Given flag by flag.
    Server {
        /// Scheme and authority only, at least one; all of one scheme. The preferred one first.
        urls: Vec<http::Uri>,
        /// PEM bundle; none: the system's.
        certificate_authority: Option<PathBuf>,
        /// PEM files of certificate and key.
        client_certificate: Option<(PathBuf, PathBuf)>,
        /// Re-read when it changes.
        token_file: Option<PathBuf>,
    },
    /// Its current context.
    Kubeconfig(PathBuf),
}

/// What was loaded.
#[derive(Debug, Clone)]
pub struct Loaded {
    /// For the first server.
    pub config: kube::Config,
    /// Every server, the preferred one first.
    pub servers: Vec<http::Uri>,
}

/// The credentials could not be loaded. Retryable: files may be mended or arrive later.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SourceError {
    /// A kubeconfig that can not be read or used.
    #[error("kubeconfig {}", path.display())]
    Kubeconfig {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: Box<KubeconfigError>,
    },
    /// A file that can not be read.
    #[error("{flag} {}", path.display())]
    File {
        /// The flag that named it.
        flag: &'static str,
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
}

impl ServerSource {
    /// Every server, the preferred one first, and who the daemon is there, as the files say at this moment.
    ///
    /// # Errors
    /// [`SourceError`], naming the file.
    pub async fn load(&self) -> Result<Loaded, SourceError> {
        let mut config = self.read().await?;
        // Kube's own retries go on for minutes inside one call and hide the reason; who asks has a back-off of its own.
        config.default_retry = false;
        let servers = match self {
            Self::Server { urls, .. } => urls.clone(),
            Self::Kubeconfig(_) => vec![config.cluster_url.clone()],
        };
        Ok(Loaded { config, servers })
    }

    /// The files that [`ServerSource::load`] reads: when one changes it is time to load again. What an exec plug-in reads is
    /// its own affair.
    #[must_use]
    pub fn files(&self) -> Vec<PathBuf> {
        match self {
            Self::Server { certificate_authority, client_certificate, token_file, .. } => {
                let pair = client_certificate.iter().flat_map(|(certificate, key)| [certificate, key]);
                certificate_authority.iter().chain(pair).chain(token_file).cloned().collect()
            }
            Self::Kubeconfig(path) => {
                let mut files = vec![path.clone()];
                if let Ok(config) = Kubeconfig::read_from(path) {
                    let clusters = config.clusters.into_iter().filter_map(|named| named.cluster);
                    files.extend(clusters.filter_map(|cluster| cluster.certificate_authority).map(PathBuf::from));
                    let users = config.auth_infos.into_iter().filter_map(|named| named.auth_info);
                    let named = users.flat_map(|user| [user.client_certificate, user.client_key, user.token_file]);
                    files.extend(named.flatten().map(PathBuf::from));
                }
                files
            }
        }
    }

    async fn read(&self) -> Result<kube::Config, SourceError> {
        let (urls, authority, certificate, token) = match self {
            Self::Kubeconfig(path) => return from_kubeconfig(path).await,
            Self::Server { urls, certificate_authority, client_certificate, token_file } => {
                (urls, certificate_authority, client_certificate, token_file)
            }
        };
        let mut config = kube::Config::new(urls.first().cloned().unwrap_or_default());
        if let Some(path) = authority {
            readable("--certificate-authority", path).await?;
            config.root_cert_file = Some(path.clone());
        }
        if let Some((certificate, key)) = certificate {
            readable("--client-certificate", certificate).await?;
            readable("--client-key", key).await?;
            config.auth_info.client_certificate = Some(certificate.to_string_lossy().into_owned());
            config.auth_info.client_key = Some(key.to_string_lossy().into_owned());
        }
        if let Some(path) = token {
            readable("--token-file", path).await?;
            config.auth_info.token_file = Some(path.to_string_lossy().into_owned());
        }
        Ok(config)
    }
}

/// The current context of a kubeconfig file.
///
/// # Errors
/// [`SourceError::Kubeconfig`].
async fn from_kubeconfig(path: &Path) -> Result<kube::Config, SourceError> {
    let failed = |source| SourceError::Kubeconfig { path: path.to_owned(), source: Box::new(source) };
    let file = Kubeconfig::read_from(path).map_err(failed)?;
    kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await.map_err(failed)
}

async fn readable(flag: &'static str, path: &Path) -> Result<(), SourceError> {
    match tokio::fs::File::open(path).await {
        Ok(_) => Ok(()),
        Err(source) => Err(SourceError::File { flag, path: path.to_owned(), source }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(token_file: Option<PathBuf>) -> ServerSource {
        let url = "https://10.0.0.1:6443".parse().unwrap();
        ServerSource::Server { urls: vec![url], certificate_authority: None, client_certificate: None, token_file }
    }

    #[tokio::test]
    async fn a_failing_server_is_not_asked_again_behind_the_callers_back() {
        assert!(!server(None).load().await.unwrap().config.default_retry);
    }

    #[tokio::test]
    async fn files_that_can_not_be_read_are_named_with_their_flag() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("token");
        let error = server(Some(path.clone())).load().await.unwrap_err();
        assert_eq!(error.to_string(), format!("--token-file {path:?}").replace('"', ""));
        std::fs::write(&path, "secret").unwrap();
        let config = server(Some(path.clone())).load().await.unwrap().config;
        assert_eq!(config.auth_info.token_file.as_deref(), path.to_str());
        let error = ServerSource::Kubeconfig(directory.path().join("none")).load().await.unwrap_err();
        assert!(error.to_string().starts_with("kubeconfig "), "{error}");
    }

    #[test]
    fn the_files_that_a_kubeconfig_names_are_watched_with_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("config");
        let text = r#"{apiVersion: v1, kind: Config, current-context: c,
            clusters: [{name: a, cluster: {server: "https://a", certificate-authority: ca.crt}}],
            users: [{name: u, user: {client-certificate: pki/a.crt, client-key: pki/a.key}}],
            contexts: [{name: c, context: {cluster: a, user: u}}]}"#;
        std::fs::write(&path, text).unwrap();
        let files = ServerSource::Kubeconfig(path.clone()).files();
        let named = ["ca.crt", "pki/a.crt", "pki/a.key"].map(|name| directory.path().join(name));
        assert_eq!(files, [vec![path], named.to_vec()].concat());
    }

    #[tokio::test]
    async fn a_kubeconfig_gives_server_and_identity() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("config");
        let text = r#"{apiVersion: v1, kind: Config, current-context: c,
            clusters: [{name: a, cluster: {server: "http://127.0.0.1:6443"}}],
            users: [{name: u, user: {token: t}}], contexts: [{name: c, context: {cluster: a, user: u}}]}"#;
        std::fs::write(&path, text).unwrap();
        let config = ServerSource::Kubeconfig(path).load().await.unwrap().config;
        assert_eq!(config.cluster_url.to_string(), "http://127.0.0.1:6443/");
        assert!(config.auth_info.token.is_some() && !config.default_retry);
    }
}
