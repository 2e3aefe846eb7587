//! Parses a request line into verb, resource, namespace and name, as `RequestInfo` of kube-apiserver does.
//!
//! The API server authorizes and routes a request by its own parsing. If Weir parsed a spelling differently, that spelling
//! would bypass the filters. Therefore Weir decodes percent escapes once, rejects ambiguous paths, and uses the first value
//! of a repeated query key. It forwards the parsed path and query, encoded again, and never the bytes of the client.
//!
//! Memory: a few copies of the request line, which the listener bounds.

mod error;
mod list_options;
mod path;
mod query;

use std::fmt::Write as _;
use std::sync::Arc;

use http::uri::PathAndQuery;
use http::{HeaderMap, Method, Uri, header};
use percent_encoding::utf8_percent_encode;

pub use self::error::RequestInfoError;
pub use self::list_options::{ListOptions, OptionsError, OptionsErrorKind};
use self::path::SEGMENT;
pub use self::query::Query;
pub(crate) use self::query::escapes_are_valid;
use crate::{FieldSupport, GroupResource, Verb, VerbClass};

/// The field that every kind has.
const NAME: &str = "metadata.name";

/// A parsed request line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestInfo {
    /// Whether the request addresses an API resource, and which one.
    pub kind: RequestKind,
    /// The normalized path and query to send upstream.
    pub forward: PathAndQuery,
    /// The decoded query.
    pub query: Query,
}

/// Whether a request addresses an API resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RequestKind {
    /// Any other path: `/healthz`, `/version`, discovery, OpenAPI. Filters never apply.
    NonResource,
    /// A request for an API resource.
    Resource(Box<ResourceRequest>),
}

/// The resource, verb and object of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResourceRequest {
    /// The API verb.
    pub verb: Verb,
    /// The resource and its API group.
    pub resource: GroupResource,
    /// The API version without its group, for example `v1`.
    pub version: String,
    /// The namespace in the path. For `namespaces/<name>` it is that name.
    pub namespace: Option<String>,
    /// The name of the object in the path.
    pub name: Option<String>,
    /// The subresource, for example `status` or `log`.
    pub subresource: Option<String>,
    /// The path of the collection without the deprecated `watch` prefix. A list and its watch share it.
    pub collection: String,
    /// The options of a list or a watch, with the name in the path as a field selector; the default for other verbs. An error:
    /// only the API server can answer.
    pub options: Result<Arc<ListOptions>, OptionsError>,
    /// What the API server's authorizer sees beside the path.
    authorized: AuthorizedQuery,
}

/// What the API server takes from the query of a request before it authorizes it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct AuthorizedQuery {
    /// The name that the field selector demands.
    name: Option<String>,
    field_selector: Option<String>,
    label_selector: Option<String>,
}

impl RequestInfo {
    /// Parses the method and the URI of a request.
    ///
    /// # Errors
    /// Returns an error for an ambiguous or malformed request line. The caller responds with 400.
    pub fn parse(method: &Method, uri: &Uri) -> Result<Self, RequestInfoError> {
        let inner = uri.path().strip_prefix('/').ok_or(RequestInfoError::NoPath)?;
        let raw_query = uri.query().unwrap_or_default();
        let query = Query::parse(raw_query)?;
        if let Some((head, tail)) = path::split_proxy_tail(inner) {
            let segments = path::decode(head)?;
            let kind = classify(method, &segments, &query)?;
            if matches!(&kind, RequestKind::Resource(found) if found.subresource.as_deref() == Some("proxy")) {
                let mark = if raw_query.is_empty() { "" } else { "?" };
                let forward = format!("{}{tail}{mark}{raw_query}", path::encode(&segments));
                return Ok(Self { kind, forward: forward.parse().map_err(|_| RequestInfoError::NotText)?, query });
            }
        }
        let (inner, trailing) = inner.strip_suffix('/').map_or((inner, ""), |inner| (inner, "/"));
        let segments = path::decode(inner)?;
        let kind = classify(method, &segments, &query)?;
        let mut forward = path::encode(&segments);
        if forward.is_empty() {
            forward.push('/');
        } else if kind == RequestKind::NonResource {
            forward.push_str(trailing);
        }
        query.append_to(&mut forward);
        Ok(Self { kind, forward: forward.parse().map_err(|_| RequestInfoError::NotText)?, query })
    }

    /// The list of all objects of the request's collection, in its namespace; `None` for a subresource or no resource.
    #[must_use]
    pub fn unselected_list(&self) -> Option<Self> {
        let resource = self.resource().filter(|resource| resource.subresource.is_none())?;
        Self::parse(&Method::GET, &resource.collection.parse().ok()?).ok()
    }

    /// The requested resource; `None` for a non-resource request.
    #[must_use]
    pub fn resource(&self) -> Option<&ResourceRequest> {
        match &self.kind {
            RequestKind::Resource(resource) => Some(resource),
            RequestKind::NonResource => None,
        }
    }
}

impl ResourceRequest {
    /// The name for which the API server authorizes the request: the one in the path, or that which the field selector of a
    /// list or a watch demands.
    #[must_use]
    pub fn authorized_name(&self) -> Option<&str> {
        self.name.as_deref().or(self.authorized.name.as_deref())
    }

    /// The field selector that the API server's authorizer considers, as the client has written it. There is none for other
    /// verbs than list, watch and deletecollection, and for the old paths of watches.
    #[must_use]
    pub fn field_selector(&self) -> Option<&str> {
        self.authorized.field_selector.as_deref()
    }

    /// The label selector that the API server's authorizer considers; as [`Self::field_selector`].
    #[must_use]
    pub fn label_selector(&self) -> Option<&str> {
        self.authorized.label_selector.as_deref()
    }

    /// Whether the path names a namespace of the resource. `namespaces/<name>` names a namespace, which is in none.
    #[must_use]
    pub fn is_namespaced(&self) -> bool {
        self.collection.contains("/namespaces/")
    }

    /// The verb class by which match rules select the request.
    ///
    /// `None`: filters never apply, because the subresource does not return the object (`log`, `exec`, `scale`). The
    /// subresources `status`, `approval`, `finalize`, `ephemeralcontainers` and `resize` return the whole object and match
    /// as the object does.
    #[must_use]
    pub fn verb_class(&self) -> Option<VerbClass> {
        if !matches!(
            self.subresource.as_deref(),
            None | Some("status" | "approval" | "finalize" | "ephemeralcontainers" | "resize")
        ) {
            return None;
        }
        match self.verb {
            Verb::Get | Verb::List | Verb::Watch => Some(VerbClass::Read),
            Verb::Create => Some(VerbClass::Create),
            Verb::Update => Some(VerbClass::Update),
            Verb::Patch => Some(VerbClass::Patch),
            Verb::Delete | Verb::DeleteCollection => Some(VerbClass::Delete),
            Verb::Proxy | Verb::Other => None,
        }
    }

    /// Whether the cluster treats the request as a heartbeat: an access to a Lease, or to the status of a Node or Pod.
    #[must_use]
    pub fn is_heartbeat(&self) -> bool {
        let GroupResource { resource, group } = &self.resource;
        let core = group.is_empty() && matches!(resource.as_str(), "nodes" | "pods");
        (group == "coordination.k8s.io" && resource == "leases" && self.name.is_some())
            || (core && self.subresource.as_deref() == Some("status"))
    }

    /// Whether the response may be without an end, and is no watch: a log, or what a pod, service or node behind `proxy` sends.
    #[must_use]
    pub fn is_stream(&self) -> bool {
        self.verb == Verb::Proxy || matches!(self.subresource.as_deref(), Some("log" | "proxy"))
    }

    /// Whether the server may upgrade the connection to a byte stream.
    #[must_use]
    pub fn may_upgrade(&self) -> bool {
        matches!(self.subresource.as_deref(), Some("exec" | "attach" | "portforward" | "proxy" | "log"))
    }

    /// The path of one object of the collection.
    #[must_use]
    pub fn object_path(&self, namespace: Option<&str>, name: &str) -> Option<PathAndQuery> {
        let name = utf8_percent_encode(name, SEGMENT);
        let path = match namespace {
            Some(namespace) if self.namespace.is_none() => {
                let (prefix, resource) = self.collection.rsplit_once('/')?;
                let namespace = utf8_percent_encode(namespace, SEGMENT);
                format!("{prefix}/namespaces/{namespace}/{resource}/{name}")
            }
            _ => format!("{}/{name}", self.collection),
        };
        path.parse().ok()
    }

    /// The `apiVersion` of the objects: `v1`, `discovery.k8s.io/v1`.
    #[must_use]
    pub fn api_version(&self) -> String {
        if self.resource.group.is_empty() {
            self.version.clone()
        } else {
            format!("{}/{}", self.resource.group, self.version)
        }
    }
}

/// The longest name of a client component in bytes. Longer ones are none: what is kept by component stays small.
const MAX_COMPONENT: usize = 128;

/// The client component: the first token of the User-Agent up to its first `/`, for example `kube-proxy`.
///
/// Empty if the request has no User-Agent, or one whose name is longer than 128 bytes.
#[must_use]
pub fn client_component(headers: &HeaderMap) -> &str {
    let agent = headers.get(header::USER_AGENT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let token = agent.split_ascii_whitespace().next().unwrap_or_default();
    token.split('/').next().filter(|component| component.len() <= MAX_COMPONENT).unwrap_or_default()
}

fn classify(method: &Method, segments: &[String], query: &Query) -> Result<RequestKind, RequestInfoError> {
    let words: Vec<&str> = segments.iter().map(String::as_str).collect();
    let (group, version, rest) = match words.as_slice() {
        ["api", version, rest @ ..] if !rest.is_empty() => ("", *version, rest),
        ["apis", group, version, rest @ ..] if !rest.is_empty() => (*group, *version, rest),
        _ => return Ok(RequestKind::NonResource),
    };
    let by_method = match *method {
        Method::GET | Method::HEAD => Verb::Get,
        Method::POST => Verb::Create,
        Method::PUT => Verb::Update,
        Method::PATCH => Verb::Patch,
        Method::DELETE => Verb::Delete,
        _ => Verb::Other,
    };
    let (mut verb, rest, by_prefix) = match rest {
        ["watch" | "proxy"] => return Err(RequestInfoError::NoResource),
        ["watch", rest @ ..] => (Verb::Watch, rest, true),
        ["proxy", rest @ ..] => (Verb::Proxy, rest, true),
        rest => (by_method, rest, false),
    };
    let mut collection = if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{group}/{version}") };
    let (namespace, parts) = match rest {
        // `namespaces/<name>/status` is a subresource of the namespace, `namespaces/<name>/pods` a collection in it.
        ["namespaces", name, parts @ ..] if !matches!(parts, [] | ["status" | "finalize", ..]) => {
            let _ = write!(collection, "/namespaces/{name}");
            (Some(*name), parts)
        }
        ["namespaces", name, ..] => (Some(*name), rest),
        _ => (None, rest),
    };
    let mut parts = parts.iter().copied();
    let resource = parts.next().ok_or(RequestInfoError::NoResource)?;
    let name = parts.next();
    let subresource = if verb == Verb::Proxy { None } else { parts.next() };
    let _ = write!(collection, "/{resource}");
    let decoded = ListOptions::decode(query);
    if name.is_none() {
        let is_watch = decoded.as_ref().map_or_else(|_| query.flag_of_malformed("watch"), |options| options.watch);
        verb = match verb {
            Verb::Get if is_watch => Verb::Watch,
            Verb::Get => Verb::List,
            Verb::Delete => Verb::DeleteCollection,
            other => other,
        };
    }
    let authorized = authorized(query, decoded.as_ref().ok(), verb, by_prefix);
    let request = ResourceRequest {
        verb,
        resource: GroupResource::new(resource, group),
        version: version.to_owned(),
        namespace: namespace.map(str::to_owned),
        name: name.map(str::to_owned),
        subresource: subresource.map(str::to_owned),
        collection,
        options: Ok(Arc::default()),
        authorized,
    };
    let options = options(&request, query, decoded).map(Arc::new);
    Ok(RequestKind::Resource(Box::new(ResourceRequest { options, ..request })))
}

/// What the authorizer gets from the query. A watch by an old path has none: such a path may name one object, and the server
/// does not select there consistently.
fn authorized(query: &Query, decoded: Option<&ListOptions>, verb: Verb, by_prefix: bool) -> AuthorizedQuery {
    if by_prefix || !matches!(verb, Verb::List | Verb::Watch | Verb::DeleteCollection) {
        return AuthorizedQuery::default();
    }
    let selector = |key| query.first(key).filter(|selector| !selector.is_empty()).map(str::to_owned);
    let name = decoded.filter(|_| verb != Verb::DeleteCollection).and_then(|options| options.fields.exact(NAME));
    // `IsValidPathSegmentName`
    let is_name = |name: &&str| !matches!(*name, "" | "." | "..") && !name.contains(['/', '%']);
    AuthorizedQuery {
        name: name.filter(is_name).map(str::to_owned),
        field_selector: selector("fieldSelector"),
        label_selector: selector("labelSelector"),
    }
}

/// The options of a request, checked in the order of the API server.
fn options(
    request: &ResourceRequest,
    query: &Query,
    decoded: Result<ListOptions, OptionsError>,
) -> Result<ListOptions, OptionsError> {
    match request.verb {
        Verb::List | Verb::Watch => {}
        Verb::Get if query.flag("export") => {
            return Err(OptionsError::malformed("export", "it is no longer supported"));
        }
        _ => return Ok(ListOptions::default()),
    }
    let mut options = decoded?;
    options.validate()?;
    if let FieldSupport::Refused(field) = options.fields.support(&request.resource, request.is_namespaced()) {
        return Err(OptionsError::malformed("fieldSelector", format!("field label not supported: {field}")));
    }
    if let Some(name) = request.authorized_name() {
        options.restrict_to(name)?;
    }
    options.check_meaning(request.verb == Verb::Watch)?;
    ListOptions::check_known(query)?;
    Ok(options)
}

#[cfg(test)]
mod tests;
