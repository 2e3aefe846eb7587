//! Remembers discovery, `/version` and OpenAPI, so that kubectl and informers start while no API server can be reached.
//!
//! Every authenticated client may read them (`system:discovery`), so that one client's response serves all. Responses are
//! kept as they came, by path, `Accept` and `Accept-Encoding`. Bounds: [`MAX_RESPONSE`] each, [`MAX_BYTES`] in all.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode, header};
use http_body::{Body, Frame};
use http_body_util::BodyExt as _;
use moka::sync::Cache;
use weir_kube::{RequestInfo, RequestKind};

use super::cached::OFFLINE;
use crate::proxy::body::{AbortError, ResponseBody, full};

/// The largest response that is remembered. The OpenAPI document of all built-in groups has about 5 MiB.
const MAX_RESPONSE: usize = 16 << 20;
/// The most bytes of all responses.
const MAX_BYTES: u64 = 48 << 20;

/// The remembered responses. Clones share them.
#[derive(Debug, Clone)]
pub(in crate::proxy) struct DiscoveryCache(Cache<String, Arc<Remembered>>);

#[derive(Debug)]
struct Remembered {
    headers: HeaderMap,
    body: Bytes,
}

/// The name of a response: what it depends on.
#[derive(Debug, Clone)]
pub(in crate::proxy) struct DiscoveryKey(String);

impl Default for DiscoveryCache {
    fn default() -> Self {
        let weigh = |key: &String, value: &Arc<Remembered>| {
            u32::try_from(key.len() + value.body.len() + 1024).unwrap_or(u32::MAX)
        };
        Self(Cache::builder().max_capacity(MAX_BYTES).weigher(weigh).build())
    }
}

impl DiscoveryKey {
    /// Returns the key of a request; `None` if it is not for discovery, the version or OpenAPI.
    pub(in crate::proxy) fn of(method: &Method, headers: &HeaderMap, parsed: &RequestInfo) -> Option<Self> {
        let path = parsed.forward.path();
        let remembered = ["/api", "/apis", "/version", "/openapi"]
            .into_iter()
            .any(|root| path.strip_prefix(root).is_some_and(|rest| rest.is_empty() || rest.starts_with('/')));
        if *method != Method::GET || !remembered || parsed.kind != RequestKind::NonResource {
            return None;
        }
        let text = |name| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
        Some(Self(format!("{}\n{}\n{}", parsed.forward, text(header::ACCEPT), text(header::ACCEPT_ENCODING))))
    }
}

impl DiscoveryCache {
    /// Returns a remembered response, with a warning that it may be stale.
    pub(in crate::proxy) fn get(&self, key: &DiscoveryKey) -> Option<Response<ResponseBody>> {
        let remembered = self.0.get(&key.0)?;
        let mut response = Response::new(full(remembered.body.clone()));
        *response.headers_mut() = remembered.headers.clone();
        response.headers_mut().insert(header::WARNING, OFFLINE);
        Some(response)
    }

    /// Remembers a response once the client has received it completely.
    pub(in crate::proxy) fn record(
        &self,
        key: DiscoveryKey,
        response: Response<ResponseBody>,
    ) -> Response<ResponseBody> {
        if response.status() != StatusCode::OK {
            return response;
        }
        let (parts, inner) = response.into_parts();
        let mut headers = parts.headers.clone();
        // A remembered response has another length header, and no date.
        for name in [header::CONTENT_LENGTH, header::DATE, header::TRANSFER_ENCODING] {
            headers.remove(name);
        }
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
        let recorder = Recorder { inner, cache: self.clone(), copy: Some((key, headers, BytesMut::new())) };
        Response::from_parts(parts, recorder.boxed_unsync())
    }
}

/// Copies a body while it passes.
struct Recorder {
    inner: ResponseBody,
    cache: DiscoveryCache,
    /// `None` once the copy is complete or has grown too large.
    copy: Option<(DiscoveryKey, HeaderMap, BytesMut)>,
}

impl Recorder {
    fn finish(&mut self) {
        if let Some((key, headers, body)) = self.copy.take() {
            self.cache.0.insert(key.0, Arc::new(Remembered { headers, body: body.freeze() }));
        }
    }
}

impl Body for Recorder {
    type Data = Bytes;
    type Error = AbortError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, AbortError>>> {
        let frame = ready!(Pin::new(&mut self.inner).poll_frame(cx));
        match &frame {
            Some(Ok(frame)) => {
                if let (Some(data), Some((.., body))) = (frame.data_ref(), &mut self.copy) {
                    body.extend_from_slice(data);
                    if body.len() > MAX_RESPONSE {
                        self.copy = None;
                    }
                }
                // hyper does not poll a body again that is known to have ended.
                if self.inner.is_end_stream() {
                    self.finish();
                }
            }
            Some(Err(_)) => self.copy = None,
            None => self.finish(),
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> http_body::SizeHint {
        self.inner.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(path: &str) -> Option<DiscoveryKey> {
        let parsed = RequestInfo::parse(&Method::GET, &path.parse().unwrap()).unwrap();
        DiscoveryKey::of(&Method::GET, &HeaderMap::new(), &parsed)
    }

    #[test]
    fn discovery_the_version_and_openapi_are_remembered_and_nothing_else() {
        for path in ["/api", "/apis", "/apis/apps/v1", "/api/v1", "/version", "/openapi/v3/apis/apps/v1?hash=1"] {
            assert!(key(path).is_some(), "{path}");
        }
        for path in ["/api/v1/pods", "/healthz", "/apiserver", "/metrics", "/apis/apps/v1/deployments"] {
            assert!(key(path).is_none(), "{path}");
        }
    }

    #[tokio::test]
    async fn a_response_is_remembered_when_it_was_received_completely() {
        let cache = DiscoveryCache::default();
        let key = key("/version").unwrap();
        let response = cache.record(key.clone(), Response::new(full(Bytes::from_static(b"{}"))));
        assert!(cache.get(&key).is_none());
        assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "{}");
        let remembered = cache.get(&key).unwrap();
        assert!(remembered.headers().contains_key(header::WARNING));
        assert_eq!(remembered.into_body().collect().await.unwrap().to_bytes(), "{}");
        let mut failed = Response::new(full(Bytes::from_static(b"no")));
        *failed.status_mut() = StatusCode::FORBIDDEN;
        cache.record(key.clone(), failed).into_body().collect().await.unwrap();
        assert_eq!(cache.get(&key).unwrap().into_body().collect().await.unwrap().to_bytes(), "{}");
    }
}
