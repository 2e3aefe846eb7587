//! An OCI registry in memory, over plain HTTP, which misbehaves on demand. It keeps what is pushed, under any repository.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use http::request::Parts;
use http::{HeaderMap, Method, Request, Response, StatusCode, header};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use tokio::net::TcpListener;
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use weir_spec::Digest;

/// What a registry does wrong.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Misbehaviour {
    /// Nothing.
    #[default]
    None,
    /// All answers have this code, and this text.
    Code(u16, String),
    /// Manifests are other ones.
    OtherManifest(String),
    /// Blobs end after so many bytes, and the connection with them. What is asked for by range comes.
    Truncated(usize),
    /// Blobs have another byte.
    Altered,
    /// Answers never end.
    Endless,
    /// Each answer redirects to the same place.
    Redirect,
    /// Blobs end after so many bytes, until [`FakeRegistry::resume`].
    Held(usize),
    /// All answers are 429, also those of the token service, with this `Retry-After`.
    Busy(String),
    /// All answers lead to the same path of another registry.
    LeadsTo(String),
}

/// How a registry with a login asks for it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Habits {
    /// `/v2/` needs no login.
    pub open_root: bool,
    /// Neither does what reads.
    pub open_pull: bool,
    /// What others get instead of 401, without a challenge. That is beside the 200 of `/v2/` then.
    pub silent: Option<u16>,
    /// The lines of `WWW-Authenticate`, in which `{host}` is host and port. Without any: Basic.
    pub challenges: Vec<String>,
    /// What the token service at `/token` answers, if the login is right. The registry takes the token `issued`.
    pub token: Option<String>,
    /// The token service takes this identitytoken, and no password.
    pub identity_token: Option<String>,
}

/// A registry. It stops when it is dropped.
pub struct FakeRegistry {
    host: String,
    shared: Arc<Shared>,
    _server: JoinSet<()>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    /// Whether connections are refused.
    down: watch::Sender<bool>,
    resume: Notify,
}

#[derive(Default)]
struct State {
    /// Type and bytes by repository and tag or digest.
    manifests: BTreeMap<(String, String), (String, Bytes)>,
    blobs: BTreeMap<String, Bytes>,
    upload: Vec<u8>,
    misbehaviour: Misbehaviour,
    /// User and password, if they are needed.
    login: Option<(String, String)>,
    habits: Habits,
    /// Method and path of each request, with `bytes=` if it has a range.
    requests: Vec<String>,
    /// Path and scheme of each request with a credential.
    credentials: Vec<String>,
}

type Body = UnsyncBoxBody<Bytes, std::io::Error>;

impl FakeRegistry {
    /// Starts an empty registry on a free loopback port.
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let host = listener.local_addr().unwrap().to_string();
        let shared = Arc::<Shared>::default();
        let mut server = JoinSet::new();
        server.spawn(accept(listener, shared.clone()));
        Self { host, shared, _server: server }
    }

    /// Host and port.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The file for `--registries` that says how it is reached.
    #[must_use]
    pub fn file(&self) -> String {
        format!("registries:\n- host: {}\n  plainHTTP: true\n", self.host)
    }

    /// Makes it do something wrong.
    pub fn misbehave(&self, misbehaviour: Misbehaviour) {
        self.shared.state.lock().unwrap().misbehaviour = misbehaviour;
    }

    /// Goes on with blobs that are held.
    pub fn resume(&self) {
        self.shared.resume.notify_waiters();
    }

    /// Refuses connections, or accepts them again.
    pub fn down(&self, down: bool) {
        self.shared.down.send_replace(down);
    }

    /// Wants a credential from now on.
    pub fn login(&self, user: &str, password: &str) {
        self.shared.state.lock().unwrap().login = Some((user.to_owned(), password.to_owned()));
    }

    /// Asks for the credential in this way.
    pub fn habits(&self, habits: Habits) {
        self.shared.state.lock().unwrap().habits = habits;
    }

    /// Path and scheme of each request that had a credential.
    #[must_use]
    pub fn credentials(&self) -> Vec<String> {
        self.shared.state.lock().unwrap().credentials.clone()
    }

    /// How many requests of this method were for a path with this in it.
    #[must_use]
    pub fn count(&self, method: &str, part: &str) -> usize {
        let state = self.shared.state.lock().unwrap();
        state.requests.iter().filter(|request| request.starts_with(method) && request.contains(part)).count()
    }

    /// Keeps a manifest under its digest and a tag, as if it had been pushed. Returns its digest.
    pub fn put_manifest(&self, repository: &str, tag: &str, kind: &str, manifest: &str) -> Digest {
        let digest = Digest::of(manifest.as_bytes());
        let mut state = self.shared.state.lock().unwrap();
        for name in [tag.to_owned(), digest.to_string()] {
            let content = (kind.to_owned(), Bytes::from(manifest.to_owned()));
            state.manifests.insert((repository.to_owned(), name), content);
        }
        digest
    }

    /// Keeps a blob. Returns its digest.
    pub fn put_blob(&self, blob: &[u8]) -> Digest {
        let digest = Digest::of(blob);
        self.shared.state.lock().unwrap().blobs.insert(digest.to_string(), Bytes::copy_from_slice(blob));
        digest
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        let mut down = shared.down.subscribe();
        if *down.borrow_and_update() {
            continue;
        }
        let shared = shared.clone();
        connections.spawn(async move {
            let service = service_fn(move |request| answer(shared.clone(), request));
            let builder = auto::Builder::new(TokioExecutor::new());
            let serve = builder.serve_connection(TokioIo::new(stream), service);
            tokio::select! {
                _ = serve => {}
                _ = down.changed() => {}
            }
        });
    }
}

async fn answer(shared: Arc<Shared>, request: Request<Incoming>) -> Result<Response<Body>, Infallible> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    let range = head.headers.get(header::RANGE).and_then(|range| range.to_str().ok()).unwrap_or_default().to_owned();
    let path = head.uri.path().to_owned();
    let state = &mut *shared.state.lock().unwrap();
    state.requests.push(format!("{} {path} {range}", head.method));
    if let Some(given) = head.headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok()) {
        state.credentials.push(format!("{path} {}", given.split(' ').next().unwrap_or_default()));
    }
    match &state.misbehaviour {
        Misbehaviour::Busy(after) => {
            let mut response = status(429, r#"{"errors":[{"code":"TOOMANYREQUESTS","message":"slow down"}]}"#);
            response.headers_mut().insert(header::RETRY_AFTER, after.parse().unwrap());
            return Ok(response);
        }
        Misbehaviour::LeadsTo(host) => {
            let mut response = status(307, "");
            response.headers_mut().insert(header::LOCATION, format!("http://{host}{path}").parse().unwrap());
            return Ok(response);
        }
        _ => {}
    }
    if path == "/token" {
        return Ok(state.token(&head, &body));
    }
    if let Some(refused) = state.refuse(&head) {
        return Ok(refused);
    }
    match state.misbehaviour.clone() {
        Misbehaviour::Code(code, text) => return Ok(status(code, text)),
        Misbehaviour::Redirect => {
            let mut response = status(307, "");
            response.headers_mut().insert(header::LOCATION, path.parse().unwrap());
            return Ok(response);
        }
        Misbehaviour::Endless => {
            let chunk = Bytes::from(vec![b' '; 1 << 20]);
            let frames = stream::repeat_with(move || Ok(Frame::data(chunk.clone())));
            return Ok(Response::new(StreamBody::new(frames).boxed_unsync()));
        }
        _ => {}
    }
    let parts: Vec<_> = path.trim_start_matches("/v2/").rsplitn(3, '/').collect();
    Ok(match (&head.method, parts.as_slice()) {
        (_, [] | [_]) => status(200, "{}"),
        (&Method::GET | &Method::HEAD, [name, "manifests", repository]) => state.manifest(repository, name),
        (&Method::PUT, [name, "manifests", repository]) => {
            let kind = head.headers[header::CONTENT_TYPE].to_str().unwrap();
            let digest = Digest::of(&body);
            for name in [(*name).to_owned(), digest.to_string()] {
                state.manifests.insert(((*repository).to_owned(), name), (kind.to_owned(), body.clone()));
            }
            located(201, &path)
        }
        (&Method::GET | &Method::HEAD, [name, "blobs", _]) => state.blob(name, &range, &shared),
        (_, [digest, "referrers", repository]) => state.referrers(repository, digest),
        (&Method::POST, ["", "uploads", _]) => {
            state.upload.clear();
            located(202, &format!("{path}1"))
        }
        (&Method::PATCH, ["1", "uploads", _]) => {
            state.upload.extend_from_slice(&body);
            let mut response = located(202, &path);
            let range = format!("0-{}", state.upload.len().saturating_sub(1));
            response.headers_mut().insert(header::RANGE, range.parse().unwrap());
            response
        }
        (&Method::PUT, ["1", "uploads", _]) => {
            let mut blob = std::mem::take(&mut state.upload);
            blob.extend_from_slice(&body);
            let digest = Digest::of(&blob).to_string();
            state.blobs.insert(digest.clone(), blob.into());
            located(201, &path.replace("uploads/1", &digest))
        }
        _ => status(405, "{}"),
    })
}

impl State {
    /// Whether a request has the user name and the password.
    fn has_password(&self, headers: &HeaderMap) -> bool {
        use base64::Engine as _;
        let Some((user, password)) = &self.login else { return true };
        let wanted = base64::engine::general_purpose::STANDARD.encode(format!("{user}:{password}"));
        headers.get(header::AUTHORIZATION).is_some_and(|given| given.as_bytes() == format!("Basic {wanted}").as_bytes())
    }

    /// Asks for the login, if there is one, and the request has neither it nor a token.
    fn refuse(&self, head: &Parts) -> Option<Response<Body>> {
        let Habits { open_root, open_pull, silent, challenges, .. } = &self.habits;
        let reads = matches!(head.method, Method::GET | Method::HEAD);
        let is_open = (*open_root && head.uri.path() == "/v2/") || (*open_pull && reads);
        let given = head.headers.get(header::AUTHORIZATION);
        let has_token = given.is_some_and(|given| given == "Bearer issued");
        let takes_basic = challenges.is_empty() || challenges.iter().any(|line| line.contains("Basic"));
        if self.login.is_none() || is_open || has_token || (takes_basic && self.has_password(&head.headers)) {
            return None;
        }
        let mut response = match silent {
            Some(_) if head.uri.path() == "/v2/" => status(200, "{}"),
            Some(code) => return Some(status(*code, r#"{"errors":[{"code":"DENIED","message":"denied"}]}"#)),
            None => status(401, r#"{"errors":[{"code":"UNAUTHORIZED","message":"authentication required"}]}"#),
        };
        let host = head.headers[header::HOST].to_str().unwrap();
        for line in challenges {
            response.headers_mut().append(header::WWW_AUTHENTICATE, line.replace("{host}", host).parse().unwrap());
        }
        if challenges.is_empty() {
            response.headers_mut().insert(header::WWW_AUTHENTICATE, "Basic realm=\"test\"".parse().unwrap());
        }
        Some(response)
    }

    /// The token service: by password, or by an identitytoken (OAuth 2.0, RFC 6749).
    fn token(&self, head: &Parts, body: &Bytes) -> Response<Body> {
        let body = String::from_utf8_lossy(body);
        let is_right = match &self.habits.identity_token {
            Some(token) => {
                let wanted = ["grant_type=refresh_token", "service=fake", &format!("refresh_token={token}")];
                head.method == Method::POST && wanted.iter().all(|pair| body.split('&').any(|given| given == *pair))
            }
            None => head.method == Method::GET && self.has_password(&head.headers),
        };
        match &self.habits.token {
            Some(token) if is_right => status(200, token.clone()),
            _ => status(401, r#"{"details":"incorrect username or password"}"#),
        }
    }

    fn manifest(&self, repository: &str, name: &str) -> Response<Body> {
        let found = self.manifests.get(&(repository.to_owned(), name.to_owned()));
        let Some((kind, bytes)) = found else {
            return status(404, r#"{"errors":[{"code":"MANIFEST_UNKNOWN","message":"manifest unknown"}]}"#);
        };
        let bytes = match &self.misbehaviour {
            Misbehaviour::OtherManifest(other) => Bytes::from(other.clone()),
            _ => bytes.clone(),
        };
        let mut response = status(200, bytes);
        response.headers_mut().insert(header::CONTENT_TYPE, kind.parse().unwrap());
        response
    }

    fn blob(&self, digest: &str, range: &str, shared: &Arc<Shared>) -> Response<Body> {
        let Some(blob) = self.blobs.get(digest) else {
            return status(404, r#"{"errors":[{"code":"BLOB_UNKNOWN","message":"blob unknown"}]}"#);
        };
        let start = range.strip_prefix("bytes=").and_then(|range| range.trim_end_matches('-').parse::<usize>().ok());
        let rest = blob.slice(start.unwrap_or(0)..);
        let code = if start.unwrap_or(0) > 0 { 206 } else { 200 };
        match &self.misbehaviour {
            Misbehaviour::Truncated(bytes) if code == 200 && rest.len() > *bytes => {
                let error = Err(std::io::Error::other("cut"));
                let frames = stream::iter([Ok(Frame::data(rest.slice(..*bytes)))]).chain(stream::iter([error]));
                // The first part leaves before the connection ends.
                let frames = frames.then(|frame| async {
                    if frame.is_err() {
                        tokio::task::yield_now().await;
                    }
                    frame
                });
                Response::new(StreamBody::new(frames).boxed_unsync())
            }
            Misbehaviour::Held(bytes) if rest.len() > *bytes => {
                let (shared, first, last) = (shared.clone(), rest.slice(..*bytes), rest.slice(*bytes..));
                let frames = stream::iter([Ok(Frame::data(first))]).chain(stream::once(async move {
                    shared.resume.notified().await;
                    Ok(Frame::data(last))
                }));
                Response::new(StreamBody::new(frames).boxed_unsync())
            }
            Misbehaviour::Altered => {
                let mut bytes = rest.to_vec();
                if let Some(byte) = bytes.last_mut() {
                    *byte ^= 1;
                }
                status(code, bytes)
            }
            _ => status(code, rest),
        }
    }

    /// The manifests whose subject this is.
    fn referrers(&self, repository: &str, digest: &str) -> Response<Body> {
        let all = self.manifests.iter().filter(|((of, name), _)| of == repository && name.starts_with("sha256:"));
        let entries = all.filter_map(|((_, name), (kind, bytes))| {
            let manifest: serde_json::Value = serde_json::from_slice(bytes).ok()?;
            (manifest["subject"]["digest"] == digest).then(|| {
                serde_json::json!({"mediaType": kind, "digest": name, "size": bytes.len(), "artifactType": manifest["artifactType"]})
            })
        });
        let index = serde_json::json!({
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.index.v1+json",
            "manifests": entries.collect::<Vec<_>>(),
        });
        status(200, index.to_string())
    }
}

fn status(code: u16, body: impl Into<Bytes>) -> Response<Body> {
    let mut response = Response::new(Full::new(body.into()).map_err(|never| match never {}).boxed_unsync());
    *response.status_mut() = StatusCode::from_u16(code).unwrap();
    response
}

fn located(code: u16, place: &str) -> Response<Body> {
    let mut response = status(code, "");
    response.headers_mut().insert(header::LOCATION, place.parse().unwrap());
    response
}
