//! Remembers discovery, `/version` and OpenAPI, so that kubectl and informers start while no API server can be reached.
//!
//! Every authenticated client may read them (`system:discovery`), so that one client's response serves all. Whether a client is
//! authenticated is known of its certificate, of the node credential, and of a token that the API server has accepted or
//! issued. Clients without a credential get what such clients got before. Responses are kept as they came, by path and media
//! type, of a fixed set that no client can add to; [`prefetch`] fetches what kubectl asks for first.

mod document;
pub(crate) mod prefetch;

use http::{HeaderMap, Method, Response, header};
use weir_kube::{Identity, RequestInfo, RequestKind};
use weir_upstream::clock;

use self::document::known_form;
use super::answer_memory::{Answer, AnswerKey, AnswerMemory, KEEP, WRITE_INTERVAL};
use super::object_memory::decoded;
use crate::serve::body::ResponseBody;
use weir_access::{Caller, has_credential};
use weir_process::ledger::Owner;
use weir_wire::headers::accepts_gzip;

/// All resources in one document, as kubectl asks for them first.
const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
const JSON: &str = "application/json";

/// A request for discovery, the version or OpenAPI.
#[derive(Debug, Clone)]
pub(crate) struct DiscoveryRead {
    path: String,
    /// The hash of the content that an OpenAPI document is asked for with.
    hash: Option<String>,
    accept: String,
    accepts_gzip: bool,
    client: DiscoveryClient,
}

/// Whether a client is authenticated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum DiscoveryClient {
    /// By its certificate, or as a component of the node.
    Verified,
    /// If the API server has accepted its credential.
    Credential,
    /// It has no credential.
    Anonymous,
}

impl DiscoveryRead {
    /// Returns the request; `None` if it is not for discovery, the version or OpenAPI.
    pub(crate) fn of(method: &Method, headers: &HeaderMap, caller: &Caller, parsed: &RequestInfo) -> Option<Self> {
        let path = document::path(parsed)?;
        if *method != Method::GET || parsed.kind != RequestKind::NonResource {
            return None;
        }
        let client = match caller.identity() {
            Identity::Node | Identity::Impersonated | Identity::Daemon => DiscoveryClient::Verified,
            Identity::Client if has_credential(headers) => DiscoveryClient::Credential,
            Identity::Client => DiscoveryClient::Anonymous,
        };
        let hash = parsed.query.first("hash").filter(|_| path.starts_with("/openapi/v3/")).map(str::to_owned);
        let accept: Vec<_> = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok()).collect();
        Some(Self {
            path: path.to_owned(),
            hash,
            accept: accept.join(","),
            accepts_gzip: accepts_gzip(headers),
            client,
        })
    }

    pub(crate) fn client(&self) -> &DiscoveryClient {
        &self.client
    }

    /// The key under which a response is kept; `None` if it is not. Responses of a known media type serve all requests that
    /// accept it.
    pub(crate) fn key_of(&self, response: &Response<ResponseBody>) -> Option<AnswerKey> {
        let text = |name| response.headers().get(name).map(|value| value.to_str().unwrap_or_default());
        let is_kept = matches!(text(header::CONTENT_ENCODING), None | Some("identity" | "gzip"));
        let form = text(header::CONTENT_TYPE).and_then(known_form)?;
        (is_kept && document::has_hash(self.hash.as_deref(), response)).then(|| self.key(form))
    }

    /// Returns what is remembered for the request.
    pub(crate) async fn replay(&self, memory: &AnswerMemory) -> Option<Response<ResponseBody>> {
        let mut forms: Vec<_> = self.accept.split(',').filter_map(known_form).collect();
        if self.accept.trim().is_empty() {
            forms.push(JSON);
        }
        for form in forms {
            let Some(answer) = memory.get(&self.key(form)).await else { continue };
            return match self.accepts_gzip {
                true => Some(answer.response()),
                false => decoded(Answer::clone(&answer)).map(|answer| answer.response()),
            };
        }
        None
    }

    fn key(&self, form: &str) -> AnswerKey {
        key(&self.path, form, self.client == DiscoveryClient::Anonymous)
    }
}

fn key(path: &str, form: &str, is_anonymous: bool) -> AnswerKey {
    let scope = if is_anonymous { "anonymous" } else { "" };
    let name = format!("discovery/{scope}{path}\n{form}");
    // Its number and its size are the server's, and so the daemon keeps it for all.
    AnswerKey {
        name,
        owner: Owner::Daemon,
        confidential: false,
        expires: clock::now() + KEEP,
        interval: WRITE_INTERVAL,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(path: &str) -> Option<String> {
        let node = Caller::of(Identity::Node, &HeaderMap::new());
        let parsed = RequestInfo::parse(&Method::GET, &path.parse().unwrap()).unwrap();
        DiscoveryRead::of(&Method::GET, &HeaderMap::new(), &node, &parsed).map(|read| read.path)
    }

    #[test]
    fn discovery_the_version_and_openapi_are_remembered_and_nothing_else() {
        for path in ["/api", "/apis", "/apis/apps/v1", "/api/v1", "/version", "/openapi/v3/apis/apps/v1"] {
            assert_eq!(target(path).as_deref(), Some(path));
        }
        for path in ["/api/v1/pods", "/healthz", "/apiserver", "/metrics", "/apis/apps/v1/deployments"] {
            assert_eq!(target(path), None, "{path}");
        }
        assert_eq!(target("/apis?timeout=32s").as_deref(), Some("/apis"));
    }
}
