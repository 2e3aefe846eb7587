//! Loads the API server URLs and a credential from flags or from a kubeconfig.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig, KubeconfigError};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

use crate::exec_plugin::{self, ExecPluginError};

/// The source of the API server URLs and of a credential.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServerSource {
    /// Individual flags.
    Server {
        /// At least one URL of scheme and authority, all with the same scheme. The first one is preferred.
        urls: Vec<http::Uri>,
        /// A PEM bundle. `None` uses the system's.
        certificate_authority: Option<PathBuf>,
        /// The PEM files of certificate and key.
        client_certificate: Option<(PathBuf, PathBuf)>,
        /// A token file, reloaded when it changes.
        token_file: Option<PathBuf>,
    },
    /// The current context of this kubeconfig.
    Kubeconfig(PathBuf),
    /// Another Weir, with the client certificate of a kubeconfig. Its tokens and plugins are never used: a peer must not get a
    /// credential that it could pass on.
    Peer {
        /// The URL of the peer, with the path below which it serves peers.
        url: http::Uri,
        /// The kubeconfig of the node credential.
        kubeconfig: PathBuf,
        /// A PEM bundle for the peer's certificate. `None` uses the kubeconfig's.
        certificate_authority: Option<PathBuf>,
    },
}

/// The loaded configuration.
#[derive(Debug, Clone)]
pub struct ServerConfig {
    /// The configuration of the first server.
    pub config: kube::Config,
    /// The URLs of all servers, the preferred one first.
    pub servers: Vec<http::Uri>,
    /// When the credential of an exec plugin expires, as far as the plugin says.
    pub expires: Option<SystemTime>,
}

/// Loading failed. It is retryable, because files may be fixed or created later.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SourceError {
    /// The kubeconfig is not readable or not valid.
    #[error("kubeconfig {}", path.display())]
    Kubeconfig {
        /// The path of the file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: Box<KubeconfigError>,
    },
    /// The exec plugin of a kubeconfig gives no credential.
    #[error("the exec plugin of the kubeconfig {}", path.display())]
    ExecPlugin {
        /// The path of the file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: ExecPluginError,
    },
    /// The credential of a kubeconfig is no client certificate.
    #[error("kubeconfig {}: a peer accepts a client certificate only", path.display())]
    NoCertificate {
        /// The path of the file.
        path: PathBuf,
    },
    /// The file of a flag is not readable.
    #[error("{flag} {}", path.display())]
    File {
        /// The flag.
        flag: &'static str,
        /// The path of the file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
}

impl ServerSource {
    /// Loads the current contents of all files, and runs the exec plugin, for at most thirty seconds. Cancel safe.
    ///
    /// # Errors
    /// [`SourceError`] with the path of the file.
    pub async fn load(&self) -> Result<ServerConfig, SourceError> {
        let mut config = self.read().await?;
        // kube would retry inside one call for minutes and hide the reason. Callers have their own back-off.
        config.default_retry = false;
        let servers = self.servers_of(&config);
        let expires = match self {
            Self::Kubeconfig(path) => exec_plugin::resolve(&mut config.auth_info)
                .await
                .map_err(|source| SourceError::ExecPlugin { path: path.clone(), source })?,
            Self::Server { .. } | Self::Peer { .. } => None,
        };
        Ok(ServerConfig { config, servers, expires })
    }

    /// Loads the servers and the certificates that verify them, without a credential.
    ///
    /// # Errors
    /// [`SourceError`] with the path of the file.
    pub async fn load_servers(&self) -> Result<ServerConfig, SourceError> {
        let mut config = self.read().await?;
        config.auth_info = AuthInfo::default();
        Ok(ServerConfig { servers: self.servers_of(&config), config, expires: None })
    }

    fn servers_of(&self, config: &kube::Config) -> Vec<http::Uri> {
        match self {
            Self::Server { urls, .. } => urls.clone(),
            Self::Kubeconfig(_) | Self::Peer { .. } => vec![config.cluster_url.clone()],
        }
    }

    /// Returns the files that [`ServerSource::load`] reads. The files of exec plugins are not known.
    #[must_use]
    pub fn files(&self) -> Vec<PathBuf> {
        match self {
            Self::Server { certificate_authority, client_certificate, token_file, .. } => {
                let pair = client_certificate.iter().flat_map(|(certificate, key)| [certificate, key]);
                certificate_authority.iter().chain(pair).chain(token_file).cloned().collect()
            }
            Self::Kubeconfig(path) => files_of_kubeconfig(path),
            Self::Peer { kubeconfig, certificate_authority, .. } => {
                let mut files = files_of_kubeconfig(kubeconfig);
                files.extend(certificate_authority.clone());
                files
            }
        }
    }

    async fn read(&self) -> Result<kube::Config, SourceError> {
        let (urls, authority, certificate, token) = match self {
            Self::Kubeconfig(path) => return from_kubeconfig(path).await,
            Self::Peer { url, kubeconfig, certificate_authority } => {
                return peer(url, kubeconfig, certificate_authority.as_deref()).await;
            }
            Self::Server { urls, certificate_authority, client_certificate, token_file } => {
                (urls, certificate_authority, client_certificate, token_file)
            }
        };
        let mut config = kube::Config::new(urls.first().cloned().unwrap_or_default());
        if let Some(path) = authority {
            check_readable("--certificate-authority", path).await?;
            config.root_cert_file = Some(path.clone());
        }
        if let Some((certificate, key)) = certificate {
            check_readable("--client-certificate", certificate).await?;
            check_readable("--client-key", key).await?;
            config.auth_info.client_certificate = Some(certificate.to_string_lossy().into_owned());
            config.auth_info.client_key = Some(key.to_string_lossy().into_owned());
        }
        if let Some(path) = token {
            check_readable("--token-file", path).await?;
            config.auth_info.token_file = Some(path.to_string_lossy().into_owned());
        }
        Ok(config)
    }
}

impl ServerConfig {
    /// The servers with these URLs, without a credential and without anything that verifies them: no connection to one with
    /// HTTPS succeeds. `None` without a URL.
    #[must_use]
    pub fn unverified(servers: Vec<http::Uri>) -> Option<Self> {
        let mut config = kube::Config::new(servers.first()?.clone());
        config.root_cert = Some(Vec::new());
        config.default_retry = false;
        Some(Self { config, servers, expires: None })
    }
}

/// Loads the current context of a kubeconfig.
///
/// # Errors
/// [`SourceError::Kubeconfig`].
async fn from_kubeconfig(path: &Path) -> Result<kube::Config, SourceError> {
    let failed = |source| SourceError::Kubeconfig { path: path.to_owned(), source: Box::new(source) };
    let file = Kubeconfig::read_from(path).map_err(failed)?;
    kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await.map_err(failed)
}

/// Returns the configuration of a peer: the kubeconfig's client certificate, and no other credential.
async fn peer(url: &http::Uri, path: &Path, certificate_authority: Option<&Path>) -> Result<kube::Config, SourceError> {
    let mut config = from_kubeconfig(path).await?;
    config.cluster_url = url.clone();
    config.tls_server_name = None;
    config.proxy_url = None;
    config.accept_invalid_certs = false;
    if let Some(path) = certificate_authority {
        check_readable("--peer-ca-file", path).await?;
        config.root_cert = None;
        config.root_cert_file = Some(path.to_owned());
    }
    let own = std::mem::take(&mut config.auth_info);
    config.auth_info.client_certificate = own.client_certificate;
    config.auth_info.client_certificate_data = own.client_certificate_data;
    config.auth_info.client_key = own.client_key;
    config.auth_info.client_key_data = own.client_key_data;
    let auth = &config.auth_info;
    if auth.client_certificate.is_none() && auth.client_certificate_data.is_none() {
        return Err(SourceError::NoCertificate { path: path.to_owned() });
    }
    Ok(config)
}

fn files_of_kubeconfig(path: &Path) -> Vec<PathBuf> {
    let mut files = vec![path.to_owned()];
    if let Ok(config) = Kubeconfig::read_from(path) {
        let clusters = config.clusters.into_iter().filter_map(|named| named.cluster);
        files.extend(clusters.filter_map(|cluster| cluster.certificate_authority).map(PathBuf::from));
        let users = config.auth_infos.into_iter().filter_map(|named| named.auth_info);
        let named = users.flat_map(|user| [user.client_certificate, user.client_key, user.token_file]);
        files.extend(named.flatten().map(PathBuf::from));
    }
    files
}

/// The client certificate of a kubeconfig's current context, without running a plugin. `None` if it has none, or if a file is not
/// readable.
#[must_use]
pub fn client_certificate(kubeconfig: &Path) -> Option<CertificateDer<'static>> {
    let config = Kubeconfig::read_from(kubeconfig).ok()?;
    let current = config.current_context?;
    let context = config.contexts.into_iter().find(|named| named.name == current)?.context?;
    let user = config.auth_infos.into_iter().find(|named| Some(&named.name) == context.user.as_ref())?.auth_info?;
    let pem = match user.client_certificate_data {
        Some(data) => STANDARD.decode(data).ok()?,
        None => std::fs::read(user.client_certificate?).ok()?,
    };
    CertificateDer::from_pem_slice(&pem).ok()
}

/// Checks that a file is readable, so that the error names its flag.
async fn check_readable(flag: &'static str, path: &Path) -> Result<(), SourceError> {
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
    async fn kube_does_not_retry_requests_by_itself() {
        assert!(!server(None).load().await.unwrap().config.default_retry);
    }

    #[tokio::test]
    async fn unreadable_files_are_reported_with_their_flag() {
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
    fn files_includes_those_that_a_kubeconfig_names() {
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
    async fn a_kubeconfig_provides_server_and_credential() {
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
