//! The API server and who the daemon is there → kube's configuration.

use std::path::{Path, PathBuf};

use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};

use super::flags::ServeFlags;

/// Where the API server is, and the daemon's own identity there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Upstream {
    /// Given flag by flag.
    Server {
        /// Scheme and authority only.
        url: http::Uri,
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

/// The credentials could not be loaded. Retryable: files may be mended or arrive later.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UpstreamError {
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

impl Upstream {
    pub(super) fn from_flags(flags: &ServeFlags, problems: &mut Vec<String>) -> Option<Self> {
        let pair = match (&flags.client_certificate, &flags.client_key) {
            (Some(certificate), Some(key)) => Some((certificate.clone(), key.clone())),
            (None, None) => None,
            _ => {
                problems.push("--client-certificate and --client-key: give both or none".to_owned());
                None
            }
        };
        match (&flags.server, &flags.kubeconfig) {
            (Some(_), Some(_)) => {
                problems.push("--server and --kubeconfig: only one of them".to_owned());
                None
            }
            (None, None) => {
                problems.push("--server or --kubeconfig: one of them is needed".to_owned());
                None
            }
            (Some(url), None) => Some(Self::Server {
                url: server(url, problems)?,
                certificate_authority: flags.certificate_authority.clone(),
                client_certificate: pair,
                token_file: flags.token_file.clone(),
            }),
            (None, Some(path)) => {
                for (flag, given) in [
                    ("--certificate-authority", &flags.certificate_authority),
                    ("--client-certificate", &flags.client_certificate),
                    ("--token-file", &flags.token_file),
                ] {
                    if given.is_some() {
                        problems.push(format!("{flag}: goes with --server; a kubeconfig names its own"));
                    }
                }
                Some(Self::Kubeconfig(path.clone()))
            }
        }
    }

    /// Loads what the files say at this moment.
    ///
    /// # Errors
    /// [`UpstreamError`], naming the file.
    pub async fn load(&self) -> Result<kube::Config, UpstreamError> {
        let mut config = self.read().await?;
        // Kube's own retries go on for minutes inside one call and hide the reason; who asks has a back-off of its own.
        config.default_retry = false;
        Ok(config)
    }

    async fn read(&self) -> Result<kube::Config, UpstreamError> {
        let (url, authority, certificate, token) = match self {
            Self::Kubeconfig(path) => return from_kubeconfig(path).await,
            Self::Server { url, certificate_authority, client_certificate, token_file } => {
                (url, certificate_authority, client_certificate, token_file)
            }
        };
        let mut config = kube::Config::new(url.clone());
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
/// [`UpstreamError::Kubeconfig`].
async fn from_kubeconfig(path: &Path) -> Result<kube::Config, UpstreamError> {
    let failed = |source| UpstreamError::Kubeconfig { path: path.to_owned(), source: Box::new(source) };
    let file = Kubeconfig::read_from(path).map_err(failed)?;
    kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await.map_err(failed)
}

async fn readable(flag: &'static str, path: &Path) -> Result<(), UpstreamError> {
    match tokio::fs::File::open(path).await {
        Ok(_) => Ok(()),
        Err(source) => Err(UpstreamError::File { flag, path: path.to_owned(), source }),
    }
}

/// Scheme and authority, nothing else.
fn server(url: &http::Uri, problems: &mut Vec<String>) -> Option<http::Uri> {
    let text = url.to_string();
    if !matches!(url.scheme_str(), Some("http" | "https")) || url.host().is_none_or(str::is_empty) || text.contains(',')
    {
        problems.push(format!("--server: {text:?} is not a URL like https://10.0.0.1:6443"));
        return None;
    }
    if url.path_and_query().is_some_and(|rest| rest != "/") {
        problems.push(format!("--server: {text:?}: write it without a path"));
        return None;
    }
    Some(url.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(token_file: Option<PathBuf>) -> Upstream {
        let url = "https://10.0.0.1:6443".parse().unwrap();
        Upstream::Server { url, certificate_authority: None, client_certificate: None, token_file }
    }

    #[tokio::test]
    async fn a_failing_server_is_not_asked_again_behind_the_callers_back() {
        assert!(!server(None).load().await.unwrap().default_retry);
    }

    #[tokio::test]
    async fn files_that_can_not_be_read_are_named_with_their_flag() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("token");
        let error = server(Some(path.clone())).load().await.unwrap_err();
        assert_eq!(error.to_string(), format!("--token-file {path:?}").replace('"', ""));
        std::fs::write(&path, "secret").unwrap();
        let config = server(Some(path.clone())).load().await.unwrap();
        assert_eq!(config.auth_info.token_file.as_deref(), path.to_str());
        let error = Upstream::Kubeconfig(directory.path().join("none")).load().await.unwrap_err();
        assert!(error.to_string().starts_with("kubeconfig "), "{error}");
    }

    #[tokio::test]
    async fn a_kubeconfig_gives_server_and_identity() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("config");
        let text = r#"{apiVersion: v1, kind: Config, current-context: c,
            clusters: [{name: a, cluster: {server: "http://127.0.0.1:6443"}}],
            users: [{name: u, user: {token: t}}], contexts: [{name: c, context: {cluster: a, user: u}}]}"#;
        std::fs::write(&path, text).unwrap();
        let config = Upstream::Kubeconfig(path).load().await.unwrap();
        assert_eq!(config.cluster_url.to_string(), "http://127.0.0.1:6443/");
        assert!(config.auth_info.token.is_some() && !config.default_retry);
    }
}
