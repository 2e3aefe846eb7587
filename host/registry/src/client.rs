//! One repository at one address of its registry: the requests of the OCI distribution specification
//! (<https://github.com/opencontainers/distribution-spec/blob/main/spec.md>) that Weir needs. What login a
//! registry wants is in its answer to the request at hand, or, where that hides what is private, in that of `/v2/`.

use std::fmt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, LOCATION, RANGE};
use reqwest::redirect::Policy;
use reqwest::{Certificate, Client, ClientBuilder, RequestBuilder, Response, StatusCode, Url};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use tokio::io::AsyncWriteExt as _;
use tokio::sync::Mutex;
use weir_spec::Digest;

use crate::artifact::ArtifactError;
use crate::authorization::{Authenticator, Authorization};
use crate::credentials::{DOCKER, Login};
use crate::error::{Problem, RegistryError, chain, problem_of};
use crate::hosts::Endpoint;
use crate::manifest::{self, Index};

/// How long a connection may take.
const CONNECT: Duration = Duration::from_secs(10);
/// How long a registry may send nothing.
const SILENCE: Duration = Duration::from_secs(30);

/// What is done in a repository.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Access {
    Pull,
    Push,
}

/// One repository at one address.
pub(crate) struct Repository {
    client: Client,
    authenticator: Authenticator,
    /// Answers the last challenge. It is sent with each request until the next one.
    authorization: Mutex<Option<Authorization>>,
    /// Whether what `/v2/` says of logins leads to nothing.
    is_root_fruitless: AtomicBool,
    /// `https://HOST/v2/REPOSITORY/`.
    base: Url,
    /// As messages name it.
    host: String,
}

/// The name of a manifest.
#[derive(Debug, Clone)]
pub(crate) enum ManifestName {
    Digest(Digest),
    Tag(String),
}

impl fmt::Display for ManifestName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Digest(digest) => write!(f, "{digest}"),
            Self::Tag(tag) => write!(f, "{tag}"),
        }
    }
}

impl Repository {
    pub(crate) fn new(endpoint: &Endpoint, name: &str, login: &Login, access: Access) -> Result<Self, RegistryError> {
        // Another provider may be built in for other libraries; this one is the daemon's.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let host = endpoint.to_string();
        let at = |problem: String| Problem::Other(problem).at(&host);
        let build = |redirects: Policy| {
            let client = settings(endpoint).map_err(|reason| at(format!("its certificate authority: {reason}")))?;
            client.redirect(redirects).build().map_err(|error| Problem::Unreachable(chain(&error)).at(&host))
        };
        let repository = endpoint.repository(name);
        let scheme = if endpoint.plain_http { "http" } else { "https" };
        let address = if endpoint.host == "docker.io" { DOCKER } else { &endpoint.host };
        let base =
            Url::parse(&format!("{scheme}://{address}/v2/{repository}/")).map_err(|error| at(error.to_string()))?;
        let authenticator = Authenticator {
            client: build(Policy::none())?,
            login: login.clone(),
            plain_http: endpoint.plain_http,
            repository,
            actions: match access {
                Access::Pull => "pull",
                Access::Push => "pull,push",
            },
        };
        // It drops the authorization where a redirect leads to another scheme, host or port.
        let client = build(Policy::default())?;
        Ok(Self {
            client,
            authenticator,
            authorization: Mutex::default(),
            is_root_fruitless: AtomicBool::new(false),
            base,
            host,
        })
    }

    pub(crate) fn host(&self) -> &str {
        &self.host
    }

    /// Says what of the credential was not used, if the registry asked for it.
    pub(crate) async fn unused(&self) -> Option<String> {
        let authorization = self.authorization.lock().await.clone()?;
        self.authenticator.login.unused(authorization.part)
    }

    fn url(&self, path: &str) -> Result<Url, Problem> {
        Url::parse(&format!("{}{path}", self.base)).map_err(|error| Problem::Other(error.to_string()))
    }

    /// Whether the registry itself is at an address: nobody else gets its credential.
    fn is_own(&self, url: &Url) -> bool {
        url.origin() == self.base.origin()
    }

    /// Sends a request, and answers its challenge, if there is one. The response is a success.
    async fn send(&self, request: RequestBuilder, what: &str) -> Result<Response, Problem> {
        let request = request.build().map_err(|error| Problem::Other(chain(&error)))?;
        let mut is_answered = false;
        // The answer to the request without a credential, where the root has asked for one.
        let mut hidden: Option<Problem> = None;
        loop {
            let mut attempt =
                request.try_clone().ok_or_else(|| Problem::Other("the request cannot be repeated".to_owned()))?;
            let authorization = self.authorization.lock().await.clone().filter(|_| self.is_own(attempt.url()));
            if let Some(authorization) = &authorization {
                attempt.headers_mut().insert(AUTHORIZATION, authorization.value.clone());
            }
            let response = self.client.execute(attempt).await;
            let response = response.map_err(|error| Problem::Unreachable(chain(&error)))?;
            match response.status() {
                StatusCode::UNAUTHORIZED if !self.is_own(response.url()) => {
                    let place = response.url().origin().ascii_serialization();
                    return Err(Problem::Unauthorized(format!("it leads to {place}, which gets no credential of it")));
                }
                StatusCode::UNAUTHORIZED if let Some(problem) = hidden.take() => {
                    // The login is not accepted, and without one the answer was this.
                    *self.authorization.lock().await = None;
                    self.is_root_fruitless.store(true, Ordering::Relaxed);
                    return Err(problem);
                }
                StatusCode::UNAUTHORIZED if is_answered => {
                    let part = authorization.and_then(|authorization| authorization.part);
                    return Err(self.authenticator.refused(part, "it"));
                }
                StatusCode::UNAUTHORIZED => {
                    let answer = self.authenticator.answer(response.headers()).await?;
                    *self.authorization.lock().await = Some(answer);
                    is_answered = true;
                }
                status if status.is_success() => return Ok(response),
                _ => {
                    let is_withheld = authorization.is_none() && !is_answered && self.is_own(response.url());
                    let problem = problem_of(response, what).await;
                    // Of what is private, some say no more to whom they do not know.
                    if !(is_withheld && problem.may_hide()) || self.authenticator.login.is_empty() {
                        return Err(problem);
                    }
                    let Some(answer) = self.answer_to_root().await else { return Err(problem.without_login()) };
                    *self.authorization.lock().await = Some(answer);
                    (is_answered, hidden) = (true, Some(problem));
                }
            }
        }
    }

    /// Answers what `/v2/` says of logins, also beside another status than 401. `None` if it says nothing that can be answered.
    async fn answer_to_root(&self) -> Option<Authorization> {
        if self.is_root_fruitless.load(Ordering::Relaxed) {
            return None;
        }
        let root = self.client.get(self.base.join("/v2/").ok()?).send().await.ok()?;
        let answer = match self.is_own(root.url()) {
            true => self.authenticator.answer(root.headers()).await.ok(),
            false => None,
        };
        self.is_root_fruitless.store(answer.is_none(), Ordering::Relaxed);
        answer
    }

    /// Reads a manifest. One that is named by its digest has it.
    pub(crate) async fn manifest(&self, name: &ManifestName) -> Result<Bytes, Problem> {
        let what = match name {
            ManifestName::Digest(digest) => digest.to_string(),
            ManifestName::Tag(tag) => format!("{}:{tag}", self.authenticator.repository),
        };
        let kinds = [manifest::MANIFEST, manifest::INDEX, manifest::DOCKER_MANIFEST, manifest::DOCKER_LIST].join(", ");
        let request = self.client.get(self.url(&format!("manifests/{name}"))?).header(ACCEPT, kinds);
        let bytes = self.send(request, &what).await?.bytes().await;
        let bytes = bytes.map_err(|error| Problem::Unreachable(chain(&error)))?;
        match name {
            ManifestName::Digest(digest) if Digest::of(&bytes) != *digest => Err(Problem::digest(*digest)),
            _ => Ok(bytes),
        }
    }

    /// Reads what refers to an artifact: signatures, if their tools use the referrers of OCI 1.1. Registries that do not know
    /// them have an index under a tag.
    pub(crate) async fn referrers(&self, artifact: Digest) -> Result<Index, Problem> {
        let request = self.client.get(self.url(&format!("referrers/{artifact}"))?).header(ACCEPT, manifest::INDEX);
        let bytes = match self.send(request, &format!("referrers of {artifact}")).await {
            Ok(response) => response.bytes().await.map_err(|error| Problem::Unreachable(chain(&error)))?,
            Err(problem) if problem.is_not_found() => {
                match self.manifest(&ManifestName::Tag(format!("sha256-{}", artifact.hex()))).await {
                    Err(problem) if problem.is_not_found() => return Ok(Index::default()),
                    manifest => manifest?,
                }
            }
            Err(problem) => return Err(problem),
        };
        let index = serde_json::from_slice(&bytes);
        Ok(index
            .map_err(|error| ArtifactError::Manifest(format!("line {} column {}", error.line(), error.column())))?)
    }

    /// Reads a blob into a file, which may have the beginning of it. Returns the blob, which has its digest.
    pub(crate) async fn blob(
        &self,
        digest: Digest,
        size: u64,
        part: &Path,
        mut progress: impl FnMut(u64, u64),
    ) -> Result<Bytes, Problem> {
        let mut file = tokio::fs::File::options().create(true).append(true).open(part).await?;
        let mut got = file.metadata().await?.len();
        if got > size {
            file.set_len(0).await?;
            got = 0;
        }
        if got < size {
            let mut request = self.client.get(self.url(&format!("blobs/{digest}"))?);
            if got > 0 {
                request = request.header(RANGE, format!("bytes={got}-"));
            }
            let mut response = self.send(request, &digest.to_string()).await?;
            if response.status() != StatusCode::PARTIAL_CONTENT {
                file.set_len(0).await?;
                got = 0;
            }
            let mut ended = "the connection was closed".to_owned();
            loop {
                let chunk = match response.chunk().await {
                    Ok(Some(chunk)) => chunk,
                    Ok(None) => break,
                    Err(error) => {
                        ended = chain(&error);
                        break;
                    }
                };
                got += chunk.len() as u64;
                if got > size {
                    tokio::fs::remove_file(part).await?;
                    return Err(Problem::TooLong(size));
                }
                file.write_all(&chunk).await?;
                progress(got, size);
            }
            file.flush().await?;
            if got < size {
                return Err(Problem::Truncated(got, size, ended));
            }
        }
        let blob = Bytes::from(tokio::fs::read(part).await?);
        tokio::fs::remove_file(part).await?;
        if Digest::of(&blob) == digest { Ok(blob) } else { Err(Problem::digest(digest)) }
    }

    /// Sends a blob, unless the registry has it.
    pub(crate) async fn push_blob(&self, digest: &Digest, blob: Bytes) -> Result<(), Problem> {
        let what = digest.to_string();
        // Some registries answer 403 where there is none. A registry that wants a credential says so when the blob is sent.
        if self.send(self.client.head(self.url(&format!("blobs/{digest}"))?), &what).await.is_ok() {
            return Ok(());
        }
        let begin = self.client.post(self.url("blobs/uploads/")?).header(CONTENT_LENGTH, 0);
        let response = self.send(begin, "the repository").await?;
        let place = response.headers().get(LOCATION).and_then(|place| place.to_str().ok());
        let place = place.and_then(|place| response.url().join(place).ok());
        let mut place =
            place.ok_or_else(|| Problem::Other("it does not say where to send a blob (Location)".to_owned()))?;
        place.query_pairs_mut().append_pair("digest", &what);
        let send = self.client.put(place).header(CONTENT_TYPE, "application/octet-stream").body(blob);
        self.send(send, "the upload that it has begun").await.map(drop)
    }

    pub(crate) async fn push_manifest(
        &self,
        name: &ManifestName,
        media_type: &str,
        manifest: Bytes,
    ) -> Result<(), Problem> {
        let request = self.client.put(self.url(&format!("manifests/{name}"))?);
        let request = request.header(CONTENT_TYPE, media_type).body(manifest);
        self.send(request, "the repository").await.map(drop)
    }
}

/// How a registry is reached.
fn settings(endpoint: &Endpoint) -> Result<ClientBuilder, String> {
    let mut client = Client::builder().connect_timeout(CONNECT).read_timeout(SILENCE);
    client = client.user_agent(concat!("weir/", env!("CARGO_PKG_VERSION")));
    let Some(pem) = &endpoint.certificate_authority else { return Ok(client) };
    let mut authorities = Vec::new();
    for der in CertificateDer::pem_slice_iter(pem.as_bytes()) {
        let der = der.map_err(|error| error.to_string())?;
        authorities.push(Certificate::from_der(&der).map_err(|error| chain(&error))?);
    }
    if authorities.is_empty() {
        return Err("no certificate".to_owned());
    }
    Ok(client.tls_certs_only(authorities))
}
