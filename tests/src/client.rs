//! A plain HTTP client for tests. It returns complete responses and streams of watch events, and interprets neither.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::StreamExt;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::upgrade::Upgraded;
use hyper_rustls::{FixedServerNameResolver, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client as Pool;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};
use serde_json::Value;
use tower::ServiceExt as _;

use crate::pki::{self, Pair};

/// The hang guard of every wait in the tests. Only a hang reaches it.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A client of one server, with one User-Agent and optionally a token.
#[derive(Clone, Debug)]
pub struct Client {
    pool: Pool<HttpsConnector<HttpConnector>, Full<Bytes>>,
    connector: HttpsConnector<HttpConnector>,
    base: String,
    headers: HeaderMap,
}

/// A connection through the server to another one.
pub type Tunnel = TokioIo<Upgraded>;

/// A complete response.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Status code.
    pub status: StatusCode,
    /// Headers.
    pub headers: HeaderMap,
    /// The complete body.
    pub body: Bytes,
}

/// An open watch.
#[derive(Debug)]
pub struct Events {
    /// Headers of the response.
    pub headers: HeaderMap,
    body: Incoming,
    rest: BytesMut,
}

impl Client {
    /// A client of the server at `base`, with `component` as its User-Agent. It trusts the authority of [`pki::shared`].
    #[must_use]
    pub fn new(base: &str, component: &str) -> Self {
        Self::trusting(base, component, Some(pki::shared().authority.pem()), None)
    }

    /// The same client over TLS. It verifies the server by this CA and may present a certificate.
    #[must_use]
    pub fn trusting(base: &str, component: &str, ca: Option<&str>, shown: Option<&Pair>) -> Self {
        Self::speaking(base, component, ca, shown, None, true)
    }

    /// The same client, which verifies the server's certificate for a name other than that of the URL.
    #[must_use]
    pub fn naming(base: &str, component: &str, ca: &str, name: &str) -> Self {
        Self::speaking(base, component, Some(ca), None, Some(name), true)
    }

    /// The same client over TLS and HTTP/1.1.
    #[must_use]
    pub fn http1(base: &str, component: &str, ca: &str) -> Self {
        Self::speaking(base, component, Some(ca), None, None, false)
    }

    /// The same client with a client certificate over HTTP/1.1, the only version with a `Connection` header.
    #[must_use]
    pub fn http1_showing(base: &str, component: &str, ca: &str, shown: &Pair) -> Self {
        Self::speaking(base, component, Some(ca), Some(shown), None, false)
    }

    fn speaking(
        base: &str,
        component: &str,
        ca: Option<&str>,
        shown: Option<&Pair>,
        name: Option<&str>,
        http2: bool,
    ) -> Self {
        let mut roots = RootCertStore::empty();
        if let Some(ca) = ca {
            roots.add(CertificateDer::from_pem_slice(ca.as_bytes()).unwrap()).unwrap();
        }
        let mut provider = rustls::crypto::ring::default_provider();
        // Go's TLS library prefers the smaller key, and nearly all Kubernetes clients use it.
        let smaller = rustls::crypto::ring::cipher_suite::TLS13_AES_128_GCM_SHA256;
        provider.cipher_suites.sort_by_key(|suite| *suite != smaller);
        let builder = ClientConfig::builder_with_provider(std::sync::Arc::new(provider))
            .with_safe_default_protocol_versions()
            .unwrap();
        let builder = builder.with_root_certificates(roots);
        let tls = match shown {
            None => builder.with_no_client_auth(),
            Some(Pair { certificate, key }) => {
                let certificate = CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap();
                let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
                builder.with_client_auth_cert(vec![certificate], key).unwrap()
            }
        };
        let mut http = HttpConnector::new();
        http.enforce_http(false);
        let mut connector = HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http();
        if let Some(name) = name {
            let name = name.to_owned().try_into().unwrap();
            connector = connector.with_server_name_resolver(FixedServerNameResolver::new(name));
        }
        let connector = match http2 {
            true => connector.enable_all_versions().wrap_connector(http),
            false => connector.enable_http1().wrap_connector(http),
        };
        let mut headers = HeaderMap::new();
        headers.insert("user-agent", format!("{component}/v1.34.0 (linux/amd64) kubernetes/test").parse().unwrap());
        Self {
            pool: Pool::builder(TokioExecutor::new()).build(connector.clone()),
            connector,
            base: base.trim_end_matches('/').to_owned(),
            headers,
        }
    }

    /// The same client with another request header.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: &str) -> Self {
        self.headers.insert(name, value.parse().unwrap());
        self
    }

    /// Sends a request. The response body is not read yet.
    ///
    /// # Panics
    /// If no response arrives.
    pub async fn send(&self, method: Method, path: &str, body: impl Into<Bytes>) -> Response<Incoming> {
        self.try_send(method, path, body).await.unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    /// Sends a request. The response body is not read yet.
    ///
    /// # Errors
    /// If no response arrives.
    pub async fn try_send(
        &self,
        method: Method,
        path: &str,
        body: impl Into<Bytes>,
    ) -> Result<Response<Incoming>, String> {
        let mut request = Request::new(Full::new(body.into()));
        *request.method_mut() = method;
        *request.uri_mut() = format!("{}{path}", self.base).parse().unwrap();
        *request.headers_mut() = self.headers.clone();
        let answer = tokio::time::timeout(PATIENCE, self.pool.request(request)).await;
        answer.map_err(|_| "no answer in time".to_owned())?.map_err(|error| format!("{error:?}"))
    }

    /// Asks the server, over HTTP/1.1, for a connection to another one. Returns the status of a refusal.
    ///
    /// # Errors
    /// The server refuses.
    ///
    /// # Panics
    /// If no response arrives.
    pub async fn connect(&self, target: &str) -> Result<Tunnel, StatusCode> {
        let request = Request::builder().method(Method::CONNECT).uri(target).header("host", target);
        let answer = self.on_new_connection(request.body(Full::new(Bytes::new())).unwrap()).await;
        match answer.status() {
            StatusCode::OK => Ok(TokioIo::new(hyper::upgrade::on(answer).await.unwrap())),
            status => Err(status),
        }
    }

    /// Sends a GET request that asks, over HTTP/1.1, for a WebSocket. Returns the response, and the connection if the server
    /// switches to it.
    ///
    /// # Panics
    /// If no response arrives.
    pub async fn open_websocket(&self, path: &str) -> (Answer, Option<Tunnel>) {
        let mut request = Request::get(path).body(Full::new(Bytes::new())).unwrap();
        let headers = request.headers_mut();
        for (name, value) in [
            ("host", "localhost"),
            ("connection", "Upgrade"),
            ("upgrade", "websocket"),
            ("sec-websocket-version", "13"),
            ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
        ] {
            headers.insert(name, value.parse().unwrap());
        }
        headers.extend(self.headers.clone());
        let mut answer = tokio::time::timeout(PATIENCE, self.on_new_connection(request)).await.expect("an answer");
        match answer.status() {
            StatusCode::SWITCHING_PROTOCOLS => {
                let connection = TokioIo::new(hyper::upgrade::on(&mut answer).await.unwrap());
                let (head, _) = answer.into_parts();
                let answer = Answer { status: head.status, headers: head.headers, body: Bytes::new() };
                (answer, Some(connection))
            }
            _ => (whole(answer).await.unwrap(), None),
        }
    }

    async fn on_new_connection(&self, request: Request<Full<Bytes>>) -> Response<Incoming> {
        let stream = self.connector.clone().oneshot(self.base.parse().unwrap()).await.unwrap();
        let (mut sender, connection) = http1::handshake(stream).await.unwrap();
        tokio::spawn(connection.with_upgrades());
        sender.send_request(request).await.unwrap()
    }

    /// Sends a GET request and reads the complete response.
    pub async fn get(&self, path: &str) -> Answer {
        self.try_get(path).await.unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    /// Sends a GET request and reads the complete response.
    ///
    /// # Errors
    /// If no response arrives or its body ends early.
    pub async fn try_get(&self, path: &str) -> Result<Answer, String> {
        whole(self.try_send(Method::GET, path, Bytes::new()).await?).await
    }

    /// Sends a GET request for JSON and asserts success.
    pub async fn json(&self, path: &str) -> Value {
        let answer = self.get(path).await;
        assert_eq!(answer.status, StatusCode::OK, "{path}: {}", answer.text());
        answer.json()
    }

    /// The names of a list's items, sorted.
    pub async fn names(&self, path: &str) -> Vec<String> {
        names(&self.json(path).await)
    }

    /// Opens a watch and asserts success.
    pub async fn watch(&self, path: &str) -> Events {
        self.try_watch(path).await.unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    /// Opens a watch.
    ///
    /// # Errors
    /// If no response arrives, or if its status is not a success.
    pub async fn try_watch(&self, path: &str) -> Result<Events, String> {
        Events::of(path, self.try_send(Method::GET, path, Bytes::new()).await?)
    }
}

/// Reads a complete response.
///
/// # Errors
/// If its body ends early.
pub async fn whole(answer: Response<Incoming>) -> Result<Answer, String> {
    let (head, body) = answer.into_parts();
    let body = tokio::time::timeout(PATIENCE, body.collect()).await;
    let body = body.map_err(|_| "the body did not end in time".to_owned())?.map_err(|error| format!("{error:?}"))?;
    Ok(Answer { status: head.status, headers: head.headers, body: body.to_bytes() })
}

/// The names of a list's items, sorted.
#[must_use]
pub fn names(list: &Value) -> Vec<String> {
    let items = list["items"].as_array().expect("a list has items");
    let mut names: Vec<_> = items.iter().map(|item| item["metadata"]["name"].as_str().unwrap().to_owned()).collect();
    names.sort();
    names
}

impl Answer {
    /// The body as text.
    #[must_use]
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The body as JSON.
    #[must_use]
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.text()))
    }
}

impl Events {
    /// The events of a response to a watch of this path.
    ///
    /// # Errors
    /// If its status is not a success.
    pub fn of(path: &str, answer: Response<Incoming>) -> Result<Self, String> {
        let (head, body) = answer.into_parts();
        match head.status {
            StatusCode::OK => Ok(Self { headers: head.headers, body, rest: BytesMut::new() }),
            status => Err(format!("{path}: {status}")),
        }
    }

    /// All bytes up to the end of the stream.
    ///
    /// # Errors
    /// If it ends early, or does not end.
    pub async fn rest(self) -> Result<Bytes, String> {
        let rest = tokio::time::timeout(PATIENCE, self.body.collect()).await;
        let rest = rest.map_err(|_| "it does not end".to_owned())?.map_err(|error| format!("{error:?}"))?;
        Ok(rest.to_bytes())
    }

    /// The next event; `None` at a clean end.
    ///
    /// # Errors
    /// If the stream ends early.
    pub async fn try_next(&mut self) -> Result<Option<Value>, String> {
        loop {
            if let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
                let line = self.rest.split_to(end + 1);
                if line.iter().all(u8::is_ascii_whitespace) {
                    continue;
                }
                return serde_json::from_slice(&line).map(Some).map_err(|error| error.to_string());
            }
            let frame = tokio::time::timeout(PATIENCE, self.body.frame()).await;
            match frame.map_err(|_| "no event in time".to_owned())? {
                None => return Ok(None),
                Some(Err(error)) => return Err(format!("{error:?}")),
                Some(Ok(frame)) => self.rest.extend_from_slice(frame.data_ref().unwrap_or(&Bytes::new())),
            }
        }
    }

    /// The next bytes as they arrive; none at a clean end.
    pub async fn piece(&mut self) -> Option<Bytes> {
        self.try_piece().await.expect("the stream does not break off")
    }

    /// The next bytes as they arrive; `None` at a clean end.
    ///
    /// # Errors
    /// If the stream ends early.
    pub async fn try_piece(&mut self) -> Result<Option<Bytes>, String> {
        match self.body.frame().await {
            None => Ok(None),
            Some(Err(error)) => Err(format!("{error:?}")),
            Some(Ok(frame)) => Ok(Some(frame.into_data().unwrap_or_default())),
        }
    }

    /// Waits for the next bytes. Returns whether there are any: none at a clean end, nor where the stream breaks off.
    pub async fn has_piece(&mut self) -> bool {
        self.body.frame().await.is_some_and(|frame| frame.is_ok())
    }

    /// The next event.
    pub async fn next(&mut self) -> Value {
        self.try_next().await.expect("the watch goes on").expect("the watch has not ended")
    }

    /// Skips the next event without parsing it.
    pub async fn skip_line(&mut self) {
        loop {
            if let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
                drop(self.rest.split_to(end + 1));
                return;
            }
            let frame = self.body.frame().await.expect("the watch goes on").expect("the watch does not break");
            self.rest.extend_from_slice(frame.data_ref().unwrap_or(&Bytes::new()));
        }
    }

    /// The next event that is not a bookmark.
    pub async fn next_change(&mut self) -> Value {
        loop {
            let event = self.next().await;
            if event["type"] != "BOOKMARK" {
                return event;
            }
        }
    }

    /// The next event that is not a bookmark, as `TYPE name`.
    pub async fn next_named(&mut self) -> String {
        let event = self.next_change().await;
        let name = event["object"]["metadata"]["name"].as_str().unwrap_or_default();
        format!("{} {name}", event["type"].as_str().unwrap()).trim_end().to_owned()
    }
}

/// A response whose body a test sends part by part.
pub fn streamed(parts: impl futures_util::Stream<Item = Bytes> + Send + 'static) -> weir_apiserver::Action {
    let frames = parts.map(|part| Ok::<_, weir_apiserver::ResponseBodyError>(hyper::body::Frame::data(part)));
    let body = BodyExt::boxed_unsync(http_body_util::StreamBody::new(frames));
    weir_apiserver::Action::Stream(Response::builder().header("content-type", "application/json").body(body).unwrap())
}
