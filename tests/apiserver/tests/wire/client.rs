//! A plain HTTP client: it adds nothing to requests and hides nothing of responses. Every wait ends after ten seconds.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client as Pool;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::Value;
use weir_apiserver::ApiServer;

pub(crate) struct Client {
    pool: Pool<HttpConnector, Full<Bytes>>,
    url: String,
    headers: Vec<(&'static str, String)>,
}

pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) bytes: Bytes,
}

/// A streamed body, line by line.
pub(crate) struct Lines {
    body: Incoming,
    rest: BytesMut,
    pub(crate) headers: HeaderMap,
}

pub(crate) async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(10), what).await.expect("not within ten seconds")
}

impl Client {
    pub(crate) fn of(server: &ApiServer) -> Self {
        Self::with(server, false)
    }

    pub(crate) fn http2(server: &ApiServer) -> Self {
        Self::with(server, true)
    }

    fn with(server: &ApiServer, http2: bool) -> Self {
        Self {
            pool: Pool::builder(TokioExecutor::new()).http2_only(http2).build_http(),
            url: server.url().to_owned(),
            headers: Vec::new(),
        }
    }

    pub(crate) fn header(mut self, name: &'static str, value: &str) -> Self {
        self.headers.retain(|(known, _)| *known != name);
        self.headers.push((name, value.to_owned()));
        self
    }

    pub(crate) async fn try_send(
        &self,
        method: Method,
        path: &str,
        media: &str,
        body: impl Into<Bytes>,
    ) -> Result<http::Response<Incoming>, hyper_util::client::legacy::Error> {
        let mut request = Request::builder().method(method).uri(format!("{}{path}", self.url));
        if !media.is_empty() {
            request = request.header("content-type", media);
        }
        for (name, value) in &self.headers {
            request = request.header(*name, value);
        }
        let request = request.body(Full::new(body.into())).unwrap();
        soon(self.pool.request(request)).await
    }

    pub(crate) async fn send(&self, method: Method, path: &str, media: &str, body: impl Into<Bytes>) -> Answer {
        let response = self.try_send(method, path, media, body).await.unwrap();
        let (parts, body) = response.into_parts();
        let bytes = soon(body.collect()).await.unwrap().to_bytes();
        Answer { status: parts.status, headers: parts.headers, bytes }
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.send(Method::GET, path, "", Bytes::new()).await
    }

    pub(crate) async fn post(&self, path: &str, object: &Value) -> Answer {
        self.send(Method::POST, path, "application/json", object.to_string()).await
    }

    pub(crate) async fn put(&self, path: &str, object: &Value) -> Answer {
        self.send(Method::PUT, path, "application/json", object.to_string()).await
    }

    pub(crate) async fn patch(&self, path: &str, media: &str, patch: &Value) -> Answer {
        self.send(Method::PATCH, path, media, patch.to_string()).await
    }

    pub(crate) async fn delete(&self, path: &str) -> Answer {
        self.send(Method::DELETE, path, "", Bytes::new()).await
    }

    pub(crate) async fn stream(&self, path: &str) -> Lines {
        let response = self.try_send(Method::GET, path, "", Bytes::new()).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        let headers = response.headers().clone();
        Lines { body: response.into_body(), rest: BytesMut::new(), headers }
    }
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.bytes)
            .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&self.bytes)))
    }

    /// A header; empty if it is absent.
    pub(crate) fn text(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    pub(crate) fn reason(&self) -> String {
        self.json()["reason"].as_str().unwrap_or("").to_owned()
    }

    pub(crate) fn names(&self) -> Vec<String> {
        names(&self.json())
    }
}

pub(crate) fn names(list: &Value) -> Vec<String> {
    let items = list["items"].as_array().expect("a list");
    items.iter().map(|item| item["metadata"]["name"].as_str().unwrap().to_owned()).collect()
}

impl Lines {
    /// The next line; `None` at a clean end.
    pub(crate) async fn line(&mut self) -> Option<Result<Bytes, hyper::Error>> {
        loop {
            if let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
                let line = self.rest.split_to(end + 1).freeze();
                return Some(Ok(line.slice(..end)));
            }
            match soon(self.body.frame()).await {
                None => return None,
                Some(Err(error)) => return Some(Err(error)),
                Some(Ok(frame)) => self.rest.extend_from_slice(&frame.into_data().unwrap()),
            }
        }
    }

    pub(crate) async fn event(&mut self) -> Value {
        let line = self.line().await.expect("one more event").unwrap();
        serde_json::from_slice(&line).unwrap()
    }

    /// Type, name and version of the next event.
    pub(crate) async fn brief(&mut self) -> (String, String, u64) {
        let event = self.event().await;
        let metadata = &event["object"]["metadata"];
        (
            event["type"].as_str().unwrap().to_owned(),
            metadata["name"].as_str().unwrap_or("").to_owned(),
            metadata["resourceVersion"].as_str().unwrap_or("0").parse().unwrap(),
        )
    }

    pub(crate) async fn frame(&mut self) -> Option<Bytes> {
        let frame = soon(self.body.frame()).await?;
        Some(frame.unwrap().into_data().unwrap())
    }

    pub(crate) async fn ends(&mut self) -> bool {
        self.line().await.is_none()
    }
}

pub(crate) async fn start() -> (ApiServer, Client) {
    let server = ApiServer::builder().start().await.unwrap();
    let client = Client::of(&server);
    (server, client)
}

pub(crate) fn service(name: &str, labels: Value) -> Value {
    serde_json::json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": "default", "labels": labels},
        "spec": {"type": "ClusterIP", "clusterIP": "10.0.0.1", "ports": [{"port": 80}]},
    })
}

pub(crate) fn pool(name: &str, nodes: &[&str]) -> Value {
    serde_json::json!({
        "apiVersion": "apps.openyurt.io/v1beta2",
        "kind": "NodePool",
        "metadata": {"name": name},
        "spec": {"type": "Edge"},
        "status": {"nodes": nodes},
    })
}

pub(crate) fn services(server: &ApiServer, count: usize) {
    for index in 0..count {
        let name = format!("s{index:04}");
        server.store().put(service(&name, serde_json::json!({}))).unwrap();
    }
}
