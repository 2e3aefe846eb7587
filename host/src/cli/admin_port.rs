//! The admin port of the daemon of this node, as commands ask it: one request on one connection, one deadline, no retry.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Request, StatusCode, header};
use http_body_util::{BodyExt as _, Empty, LengthLimitError, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use kube::config::AuthInfo;
use secrecy::{ExposeSecret as _, SecretString};
use tokio::net::TcpStream;

use super::CommandError;
use super::table::MAX_LINE;
use crate::config::operator::AdminFlags;
use weir_kubeconfig::KubeconfigFiles;
use weir_process::{WatchedFiles, one_line};
use weir_upstream::ServerSource;

/// How long the daemon may take to answer.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The largest answer, in bytes.
const MAX_ANSWER: usize = 16 << 20;
/// Where a pod has the token of its service account.
const POD_TOKEN: &str = "/var/run/secrets/kubernetes.io/serviceaccount/token";

/// The admin port of a daemon.
pub(super) struct AdminPort {
    address: SocketAddr,
    credential: Credential,
}

/// With which right a command asks. Without a token the daemon decides by the uid.
pub(super) struct Credential {
    /// For messages: "the token in FILE".
    pub(super) source: String,
    token: Option<SecretString>,
}

/// A response of the admin port.
pub(super) struct AdminResponse {
    pub(super) status: StatusCode,
    /// The body: JSON, or an error of the daemon as plain text.
    pub(super) text: String,
}

impl Credential {
    /// The uid of this process.
    pub(super) fn uid() -> Self {
        Self { source: "no credential but the uid".to_owned(), token: None }
    }

    /// The token of a file, else that of a kubeconfig, else that of the pod, else none.
    ///
    /// # Errors
    /// The file cannot be read, or its credential cannot be sent to the admin port.
    pub(super) async fn find(
        token_file: Option<&Path>,
        kubeconfig: Option<KubeconfigFiles>,
    ) -> Result<Self, CommandError> {
        match (token_file, kubeconfig) {
            (None, Some(files)) => Self::of_kubeconfig(files).await,
            (Some(file), _) => Self::of_file(file),
            (None, None) if Path::new(POD_TOKEN).exists() => Self::of_file(Path::new(POD_TOKEN)),
            (None, None) => Ok(Self::uid()),
        }
    }

    fn of_file(file: &Path) -> Result<Self, CommandError> {
        let text = std::fs::read_to_string(file).map_err(CommandError::of_file(file))?;
        let token = match text.trim() {
            "" => return Err(CommandError::invalid(file.display(), "it has no token")),
            token => SecretString::from(token),
        };
        Ok(Self { source: format!("the token in {}", file.display()), token: Some(token) })
    }

    async fn of_kubeconfig(files: KubeconfigFiles) -> Result<Self, CommandError> {
        let source = format!("the credential of the {files}");
        let invalid = |reason: String| CommandError::invalid(&files, reason);
        let loaded = ServerSource::Kubeconfig(files.clone()).load(&WatchedFiles::default()).await;
        let AuthInfo { token, impersonate, .. } = loaded?.config.auth_info;
        let unusable = match (&token, impersonate) {
            (Some(_), None) => return Ok(Self { source, token }),
            (_, Some(user)) => format!("its user acts as {user:?}, which the admin port does not know"),
            (None, None) => "its user has no token, and the admin port takes nothing else".to_owned(),
        };
        Err(invalid(format!("{unusable}: give --token-file, or --node to explain without the daemon")))
    }

    /// The value of the header that carries the token.
    fn header(&self) -> Result<Option<HeaderValue>, CommandError> {
        let Some(token) = &self.token else { return Ok(None) };
        let mut value = HeaderValue::try_from(format!("Bearer {}", token.expose_secret()))
            .map_err(|_| CommandError::invalid(&self.source, "it has characters that no token has"))?;
        value.set_sensitive(true);
        Ok(Some(value))
    }
}

impl AdminPort {
    pub(super) fn new(flags: AdminFlags, credential: Credential) -> Self {
        Self { address: flags.address(), credential }
    }

    /// Whose right a refused request had.
    pub(super) fn asked_with(&self) -> &str {
        &self.credential.source
    }

    /// Reads a path. Cancel-safe: it only reads.
    ///
    /// # Errors
    /// [`CommandError::AdminPort`] if no whole answer comes within ten seconds, [`CommandError::AdminAnswer`] if it is not that of a
    /// daemon. An answer with an error status is an answer.
    pub(super) async fn get(&self, path: &str) -> Result<AdminResponse, CommandError> {
        let mut request = Request::get(path).header(header::HOST, self.address.to_string());
        if let Some(token) = self.credential.header()? {
            request = request.header(header::AUTHORIZATION, token);
        }
        let request = request.body(Empty::<Bytes>::new()).map_err(|error| self.failed(error))?;
        match tokio::time::timeout(TIMEOUT, self.send(request)).await {
            Ok(answer) => answer,
            Err(_) => Err(self.failed(format!("no answer within {TIMEOUT:?}"))),
        }
    }

    async fn send(&self, request: Request<Empty<Bytes>>) -> Result<AdminResponse, CommandError> {
        let stream = TcpStream::connect(self.address).await.map_err(|error| self.failed(error))?;
        let (mut sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(|error| self.failed(error))?;
        let answer = async {
            let response = sender.send_request(request).await.map_err(|error| match error.is_parse() {
                true => self.unexpected(error),
                false => self.failed(error),
            })?;
            let status = response.status();
            // All that a daemon answers here is for no HTTP cache.
            let is_of_daemon = response.headers().get(header::CACHE_CONTROL).is_some_and(|value| value == "no-store");
            let body = Limited::new(response.into_body(), MAX_ANSWER).collect().await;
            let body = body.map_err(|error| match error.is::<LengthLimitError>() {
                true => self.unexpected(error),
                false => self.failed(error),
            })?;
            let text = String::from_utf8(body.to_bytes().into()).map_err(|error| self.unexpected(error))?;
            // Its own messages are plain text, with names from the cluster.
            let text = if status.is_success() { text } else { one_line(text.trim(), MAX_LINE) };
            match is_of_daemon {
                true => Ok(AdminResponse { status, text }),
                false => Err(self.unexpected(format!("{status}, from another program"))),
            }
        };
        tokio::pin!(answer, connection);
        tokio::select! {
            biased;
            answer = &mut answer => answer,
            // The content that has arrived by then is read, and nothing more comes.
            ended = &mut connection => match (ended, answer.await) {
                (_, Ok(answer)) => Ok(answer),
                (Ok(()), Err(error)) => Err(error),
                (Err(_), Err(error @ CommandError::AdminAnswer { .. })) => Err(error),
                (Err(error), Err(_)) => Err(self.failed(error)),
            },
        }
    }

    fn failed(&self, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> CommandError {
        CommandError::AdminPort { address: self.address, source: source.into() }
    }

    /// The error of a port that does not answer as a daemon does.
    pub(super) fn unexpected(&self, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> CommandError {
        CommandError::AdminAnswer { address: self.address, source: source.into() }
    }
}
