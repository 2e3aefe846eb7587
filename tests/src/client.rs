//! A plain HTTP client for tests: whole answers, and streams of watch events, with nothing read into them.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::StreamExt;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_rustls::{FixedServerNameResolver, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client as Pool;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};
use serde_json::Value;

use crate::pki::Pair;

/// Longest wait for anything that must come. Only a hang reaches it.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A client of one server, with one User-Agent and perhaps a token.
#[derive(Clone, Debug)]
pub struct Client {
    pool: Pool<HttpsConnector<HttpConnector>, Full<Bytes>>,
    base: String,
    headers: HeaderMap,
}

/// A whole answer.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Status code.
    pub status: StatusCode,
    /// Headers.
    pub headers: HeaderMap,
    /// The whole body.
    pub body: Bytes,
}

/// An open watch.
#[derive(Debug)]
pub struct Events {
    /// Headers of the answer.
    pub headers: HeaderMap,
    body: Incoming,
    rest: BytesMut,
}

impl Client {
    /// A client of the server at `base`, calling itself `component`.
    #[must_use]
    pub fn new(base: &str, component: &str) -> Self {
        Self::trusting(base, component, None, None)
    }

    /// The same over TLS: the server must prove itself by this CA, and the client may show a certificate.
    #[must_use]
    pub fn trusting(base: &str, component: &str, ca: Option<&str>, shown: Option<&Pair>) -> Self {
        Self::speaking(base, component, ca, shown, None, true)
    }

    /// The same of a server that must prove itself under a name other than that of its URL.
    #[must_use]
    pub fn naming(base: &str, component: &str, ca: &str, name: &str) -> Self {
        Self::speaking(base, component, Some(ca), None, Some(name), true)
    }

    /// Over TLS, but never by HTTP/2.
    #[must_use]
    pub fn http1(base: &str, component: &str, ca: &str) -> Self {
        Self::speaking(base, component, Some(ca), None, None, false)
    }

    /// The same with a client certificate: only HTTP/1.1 has a `Connection` header.
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
        // Go's clients, and so nearly all of Kubernetes', prefer the smaller key.
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
            pool: Pool::builder(TokioExecutor::new()).build(connector),
            base: base.trim_end_matches('/').to_owned(),
            headers,
        }
    }

    /// The same client with another header.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: &str) -> Self {
        self.headers.insert(name, value.parse().unwrap());
        self
    }

    /// Sends a request; the body of the answer is not read yet.
    ///
    /// # Panics
    /// When there is no answer.
    pub async fn send(&self, method: Method, path: &str, body: impl Into<Bytes>) -> Response<Incoming> {
        self.try_send(method, path, body).await.unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    /// Sends a request; the body of the answer is not read yet.
    ///
    /// # Errors
    /// When there is no answer.
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

    /// GETs a path, whole.
    pub async fn get(&self, path: &str) -> Answer {
        self.try_get(path).await.unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    /// GETs a path, whole.
    ///
    /// # Errors
    /// When there is no answer or its body breaks off.
    pub async fn try_get(&self, path: &str) -> Result<Answer, String> {
        whole(self.try_send(Method::GET, path, Bytes::new()).await?).await
    }

    /// GETs JSON, which must be a success.
    pub async fn json(&self, path: &str) -> Value {
        let answer = self.get(path).await;
        assert_eq!(answer.status, StatusCode::OK, "{path}: {}", answer.text());
        answer.json()
    }

    /// The names of a list's items, sorted.
    pub async fn names(&self, path: &str) -> Vec<String> {
        names(&self.json(path).await)
    }

    /// Opens a watch, which must be a success.
    pub async fn watch(&self, path: &str) -> Events {
        self.try_watch(path).await.unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    /// Opens a watch.
    ///
    /// # Errors
    /// When there is no answer, or one that is no success.
    pub async fn try_watch(&self, path: &str) -> Result<Events, String> {
        let (head, body) = self.try_send(Method::GET, path, Bytes::new()).await?.into_parts();
        if head.status != StatusCode::OK {
            return Err(format!("{path}: {}", head.status));
        }
        Ok(Events { headers: head.headers, body, rest: BytesMut::new() })
    }
}

/// Reads an answer whole.
///
/// # Errors
/// When its body breaks off.
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
    /// All bytes up to the end of the stream.
    ///
    /// # Errors
    /// When it breaks off, or does not end.
    pub async fn rest(self) -> Result<Bytes, String> {
        let rest = tokio::time::timeout(PATIENCE, self.body.collect()).await;
        let rest = rest.map_err(|_| "it does not end".to_owned())?.map_err(|error| format!("{error:?}"))?;
        Ok(rest.to_bytes())
    }

    /// The next event, `None` at a clean end.
    ///
    /// # Errors
    /// When the stream breaks off.
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

    /// The next bytes as they come; none at a clean end.
    pub async fn piece(&mut self) -> Option<Bytes> {
        let frame = self.body.frame().await?.expect("the stream does not break off");
        Some(frame.into_data().unwrap_or_default())
    }

    /// The next event.
    pub async fn next(&mut self) -> Value {
        self.try_next().await.expect("the watch goes on").expect("the watch has not ended")
    }

    /// Steps over the next event without reading it.
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

    /// The next event that is no bookmark, as `TYPE name`.
    pub async fn next_named(&mut self) -> String {
        loop {
            let event = self.next().await;
            if event["type"] != "BOOKMARK" {
                let name = event["object"]["metadata"]["name"].as_str().unwrap_or_default();
                return format!("{} {name}", event["type"].as_str().unwrap()).trim_end().to_owned();
            }
        }
    }
}

/// An answer whose body a test feeds part by part.
pub fn streamed(parts: impl futures_util::Stream<Item = Bytes> + Send + 'static) -> weir_apiserver::Action {
    let frames = parts.map(|part| Ok::<_, weir_apiserver::BodyError>(hyper::body::Frame::data(part)));
    let body = BodyExt::boxed_unsync(http_body_util::StreamBody::new(frames));
    weir_apiserver::Action::Stream(Response::builder().header("content-type", "application/json").body(body).unwrap())
}
