//! Loads the API server URLs and a credential from flags or from a kubeconfig.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kube::config::AuthInfo;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::{self, PemObject as _};
use weir_kubeconfig::{self as kubeconfig, ConfigError, KubeconfigFiles};
use weir_process::WatchedFiles;
use weir_process::files::read_now;

use crate::exec_plugin::{self, ExecPluginError};

/// The largest kubeconfig, certificate bundle, key or token, in bytes.
const MAX_FILE: usize = 4 << 20;

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
    /// The current context of a kubeconfig. The daemon has one file, and commands may merge several.
    Kubeconfig(KubeconfigFiles),
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
    #[error(transparent)]
    Kubeconfig(#[from] ConfigError),
    /// The exec plugin of a kubeconfig gives no credential.
    #[error("the exec plugin of the {files}")]
    ExecPlugin {
        /// The files.
        files: KubeconfigFiles,
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
    /// A CA bundle holds no certificate.
    #[error("the CA bundle {} is not usable", path.display())]
    CertificateAuthority {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: pem::Error,
    },
    /// The file of a flag, or of a key of the kubeconfig, is not readable.
    #[error("{flag} {}", path.display())]
    File {
        /// The flag or the key.
        flag: &'static str,
        /// The path of the file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
}

impl ServerSource {
    /// Loads the current contents of all files, which are followed from now on, and runs the exec plugin, for at most thirty
    /// seconds. Cancel safe.
    ///
    /// # Errors
    /// [`SourceError`] with the path of the file.
    pub async fn load(&self, files: &WatchedFiles) -> Result<ServerConfig, SourceError> {
        let mut config = self.read(files).await?;
        // kube would retry inside one call for minutes and hide the reason. Callers have their own back-off.
        config.default_retry = false;
        let servers = self.servers_of(&config);
        let expires = match self {
            Self::Kubeconfig(used) => exec_plugin::resolve(&mut config.auth_info)
                .await
                .map_err(|source| SourceError::ExecPlugin { files: used.clone(), source })?,
            Self::Server { .. } | Self::Peer { .. } => None,
        };
        Ok(ServerConfig { config, servers, expires })
    }

    /// Loads the servers and the certificates that verify them, without a credential.
    ///
    /// # Errors
    /// [`SourceError`] with the path of the file.
    pub async fn load_servers(&self, files: &WatchedFiles) -> Result<ServerConfig, SourceError> {
        let mut config = self.read(files).await?;
        config.auth_info = AuthInfo::default();
        Ok(ServerConfig { servers: self.servers_of(&config), config, expires: None })
    }

    fn servers_of(&self, config: &kube::Config) -> Vec<http::Uri> {
        match self {
            Self::Server { urls, .. } => urls.clone(),
            Self::Kubeconfig(_) | Self::Peer { .. } => vec![config.cluster_url.clone()],
        }
    }

    /// Reads everything into memory: kube would read files later, on threads that serve.
    async fn read(&self, files: &WatchedFiles) -> Result<kube::Config, SourceError> {
        let (urls, authority, certificate, token) = match self {
            Self::Kubeconfig(used) => return from_kubeconfig(used, files).await,
            Self::Peer { url, kubeconfig, certificate_authority } => {
                return peer(url, kubeconfig, certificate_authority.as_deref(), files).await;
            }
            Self::Server { urls, certificate_authority, client_certificate, token_file } => {
                (urls, certificate_authority, client_certificate, token_file)
            }
        };
        let mut config = kube::Config::new(urls.first().cloned().unwrap_or_default());
        if let Some(path) = authority {
            trust(&mut config, "--certificate-authority", path, files).await?;
        }
        if let Some((certificate, key)) = certificate {
            let certificate = read("--client-certificate", certificate, files).await?;
            let key = read("--client-key", key, files).await?;
            config.auth_info.client_certificate_data = Some(STANDARD.encode(certificate));
            config.auth_info.client_key_data = Some(STANDARD.encode(key).into());
        }
        if let Some(path) = token {
            config.auth_info.token = Some(read_token("--token-file", path, files).await?.into());
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
async fn from_kubeconfig(used: &KubeconfigFiles, files: &WatchedFiles) -> Result<kube::Config, SourceError> {
    let mut contents = Vec::new();
    for path in used.paths() {
        contents.push(files.read_soon(path, MAX_FILE).await);
    }
    let mut file = kubeconfig::merge(used, contents)?;
    if let Some(cluster) = kubeconfig::current_cluster(&mut file)
        && let (Some(path), None) = (cluster.certificate_authority.take(), &cluster.certificate_authority_data)
    {
        let pem = read("certificate-authority", Path::new(&path), files).await?;
        cluster.certificate_authority_data = Some(STANDARD.encode(pem));
    }
    if let Some(user) = kubeconfig::current_user(&mut file) {
        if let (Some(path), None) = (user.client_certificate.take(), &user.client_certificate_data) {
            let pem = read("client-certificate", Path::new(&path), files).await?;
            user.client_certificate_data = Some(STANDARD.encode(pem));
        }
        if let (Some(path), None) = (user.client_key.take(), &user.client_key_data) {
            let pem = read("client-key", Path::new(&path), files).await?;
            user.client_key_data = Some(STANDARD.encode(pem).into());
        }
        // The file counts more than the token beside it, as in client-go.
        if let Some(path) = user.token_file.take() {
            user.token = Some(read_token("tokenFile", Path::new(&path), files).await?.into());
        }
    }
    Ok(kubeconfig::client_config(used, file).await?)
}

/// Returns the configuration of a peer: the kubeconfig's client certificate, and no other credential.
async fn peer(
    url: &http::Uri,
    path: &Path,
    certificate_authority: Option<&Path>,
    files: &WatchedFiles,
) -> Result<kube::Config, SourceError> {
    let mut config = from_kubeconfig(&path.to_owned().into(), files).await?;
    config.cluster_url = url.clone();
    config.tls_server_name = None;
    config.proxy_url = None;
    config.accept_invalid_certs = false;
    if let Some(path) = certificate_authority {
        trust(&mut config, "--peer-ca-file", path, files).await?;
    }
    let own = std::mem::take(&mut config.auth_info);
    config.auth_info.client_certificate_data = own.client_certificate_data;
    config.auth_info.client_key_data = own.client_key_data;
    if config.auth_info.client_certificate_data.is_none() {
        return Err(SourceError::NoCertificate { path: path.to_owned() });
    }
    Ok(config)
}

/// Lets a CA bundle verify the servers. The configuration keeps its path for error messages.
async fn trust(
    config: &mut kube::Config,
    flag: &'static str,
    path: &Path,
    files: &WatchedFiles,
) -> Result<(), SourceError> {
    let unusable = |source| SourceError::CertificateAuthority { path: path.to_owned(), source };
    let pem = read(flag, path, files).await?;
    let certificates = CertificateDer::pem_slice_iter(&pem).map(|certificate| certificate.map(|der| der.to_vec()));
    let certificates: Vec<_> = certificates.collect::<Result<_, _>>().map_err(unusable)?;
    if certificates.is_empty() {
        return Err(unusable(pem::Error::NoItemsFound));
    }
    config.root_cert = Some(certificates);
    config.root_cert_file = Some(path.to_owned());
    Ok(())
}

/// The client certificate of a kubeconfig's current context, without running a plugin. `None` if it has none, or if a file is not
/// readable. It reads on this thread.
#[must_use]
pub fn client_certificate(kubeconfig: &Path) -> Option<CertificateDer<'static>> {
    let bytes = read_now(kubeconfig, MAX_FILE).ok()?;
    let mut config = kubeconfig::parse(kubeconfig, bytes).ok()?;
    let user = kubeconfig::current_user(&mut config)?;
    let pem = match &user.client_certificate_data {
        Some(data) => STANDARD.decode(data).ok()?,
        None => read_now(Path::new(user.client_certificate.as_ref()?), MAX_FILE).ok()?,
    };
    CertificateDer::from_pem_slice(&pem).ok()
}

/// Reads a file, so that the error names its flag, and follows it.
async fn read(flag: &'static str, path: &Path, files: &WatchedFiles) -> Result<Vec<u8>, SourceError> {
    let read = files.read_soon(path, MAX_FILE).await;
    read.map_err(|source| SourceError::File { flag, path: path.to_owned(), source })
}

async fn read_token(flag: &'static str, path: &Path, files: &WatchedFiles) -> Result<String, SourceError> {
    let unusable = |reason: &str| {
        let source = std::io::Error::new(std::io::ErrorKind::InvalidData, reason);
        SourceError::File { flag, path: path.to_owned(), source }
    };
    let token = String::from_utf8(read(flag, path, files).await?).map_err(|_| unusable("it is not text"))?;
    // A writer in place empties it first.
    match token.trim() {
        "" => Err(unusable("it is empty")),
        token => Ok(token.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(token_file: Option<PathBuf>) -> ServerSource {
        let url = "https://10.0.0.1:6443".parse().unwrap();
        ServerSource::Server { urls: vec![url], certificate_authority: None, client_certificate: None, token_file }
    }

    async fn load(source: &ServerSource) -> Result<kube::Config, SourceError> {
        source.load(&WatchedFiles::default()).await.map(|loaded| loaded.config)
    }

    fn token_of(config: &kube::Config) -> serde_json::Value {
        serde_json::to_value(&config.auth_info).unwrap()["token"].clone()
    }

    #[tokio::test]
    async fn kube_does_not_retry_requests_by_itself() {
        assert!(!load(&server(None)).await.unwrap().default_retry);
    }

    #[tokio::test]
    async fn unreadable_files_are_reported_with_their_flag() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("token");
        let error = load(&server(Some(path.clone()))).await.unwrap_err();
        assert_eq!(error.to_string(), format!("--token-file {path:?}").replace('"', ""));
        std::fs::write(&path, "").unwrap();
        let error = load(&server(Some(path.clone()))).await.unwrap_err();
        assert!(crate::error_report(&error).ends_with("token: it is empty"), "{}", crate::error_report(&error));
        std::fs::write(&path, "secret\n").unwrap();
        let config = load(&server(Some(path.clone()))).await.unwrap();
        assert!(config.auth_info.token_file.is_none(), "kube would read it on threads that serve");
        assert_eq!(token_of(&config), "secret");
        let error = load(&ServerSource::Kubeconfig(directory.path().join("none").into())).await.unwrap_err();
        assert!(error.to_string().starts_with("kubeconfig "), "{error}");
    }

    #[tokio::test]
    async fn what_a_kubeconfig_names_is_in_memory_and_followed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("config");
        let text = r#"{apiVersion: v1, kind: Config, current-context: c,
            clusters: [{name: a, cluster: {server: "http://127.0.0.1:6443"}}],
            users: [{name: u, user: {tokenFile: pki/token, token: other}}],
            contexts: [{name: c, context: {cluster: a, user: u}}]}"#;
        std::fs::write(&path, text).unwrap();
        std::fs::create_dir(directory.path().join("pki")).unwrap();
        let token = directory.path().join("pki/token");
        std::fs::write(&token, "one").unwrap();
        let (source, files) = (ServerSource::Kubeconfig(path.clone().into()), WatchedFiles::default());
        let loaded = source.load(&files).await.unwrap().config;
        assert_eq!(loaded.cluster_url.to_string(), "http://127.0.0.1:6443/");
        assert!(loaded.auth_info.token_file.is_none());
        assert_eq!(token_of(&loaded), "one");
        std::fs::write(&token, "two").unwrap();
        tokio::time::timeout(std::time::Duration::from_secs(30), files.changed()).await.expect("it is followed");
        assert_eq!(token_of(&source.load(&files).await.unwrap().config), "two");
    }
}
