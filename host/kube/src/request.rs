//! What a request asks for, read as Kubernetes' own `RequestInfo` reads it, and the one spelling in which it is sent on.
//!
//! The API server decides by its reading of path and query; if ours differed anywhere, that spelling would be a way
//! past the filters. So: percent-decoding happens once, ambiguous paths are refused instead of interpreted, the first
//! value of a repeated key counts, and what is forwarded is the parsed form encoded again, never the client's bytes.
//! Memory: a few copies of the request line, which the listener bounds.

mod query;
#[cfg(test)]
mod tests;

use std::fmt::Write as _;

use http::uri::PathAndQuery;
use http::{HeaderMap, Method, Uri, header};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

pub use self::query::Query;
use crate::{Class, GroupResource};

/// What RFC 3986 allows in a path segment as it is, so that `https:dashboard:` stays readable upstream.
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~')
    .remove(b'!')
    .remove(b'$')
    .remove(b'&')
    .remove(b'\'')
    .remove(b'(')
    .remove(b')')
    .remove(b'*')
    .remove(b'+')
    .remove(b',')
    .remove(b';')
    .remove(b'=')
    .remove(b':')
    .remove(b'@');

/// What is done to a resource. The names are those of RBAC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Verb {
    /// GET or HEAD of one object or of a sub-resource.
    Get,
    /// GET or HEAD of a collection.
    List,
    /// GET of a collection with `watch`, or the deprecated `/watch/` prefix.
    Watch,
    /// POST.
    Create,
    /// PUT.
    Update,
    /// PATCH.
    Patch,
    /// DELETE of one object.
    Delete,
    /// DELETE of a collection.
    DeleteCollection,
    /// The long gone `/proxy/` prefix; the server answers 404.
    Proxy,
    /// A method that the API does not know.
    Other,
}

/// A request as far as routing cares.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// Whom it is about.
    pub target: Target,
    /// Path and query as they are sent upstream.
    pub forward: PathAndQuery,
    /// The query, decoded.
    pub query: Query,
}

/// Whom a request is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// `/healthz`, `/version`, discovery, OpenAPI: always forwarded.
    NonResource,
    /// An API resource.
    Resource(ResourceRequest),
}

/// A request for a resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResourceRequest {
    /// What is done.
    pub verb: Verb,
    /// To which resource.
    pub resource: GroupResource,
    /// `v1`.
    pub version: String,
    /// The namespace in the path; for `namespaces/<name>` the name.
    pub namespace: Option<String>,
    /// The object's name in the path.
    pub name: Option<String>,
    /// `status`, `log`, ….
    pub subresource: Option<String>,
    /// Path of the collection, without the deprecated `watch` prefix: list and watch of one collection share it.
    pub collection: String,
}

/// Why a request is answered with 400 instead of being interpreted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Malformed {
    /// The request has no path (`OPTIONS *`).
    #[error("the request has no path")]
    NoPath,
    /// `//`.
    #[error("the path has an empty segment")]
    EmptySegment,
    /// `.` or `..`, also percent-encoded.
    #[error("the path has a `.` or `..` segment")]
    DotSegment,
    /// `%2F`.
    #[error("the path has an encoded slash")]
    EncodedSlash,
    /// Bytes that are not UTF-8 once decoded, or control characters.
    #[error("the path or the query is not readable text")]
    NotText,
    /// `%zz`.
    #[error("the path has a broken percent escape")]
    BadEscape,
    /// `/api/v1/watch` without a resource.
    #[error("the path names no resource after its prefix")]
    NoResource,
}

impl Request {
    /// Reads method and URI.
    ///
    /// # Errors
    /// [`Malformed`]: the client is to be answered 400.
    pub fn parse(method: &Method, uri: &Uri) -> Result<Self, Malformed> {
        let inner = uri.path().strip_prefix('/').ok_or(Malformed::NoPath)?;
        let raw_query = uri.query().unwrap_or_default();
        let query = Query::parse(raw_query)?;
        if let Some((head, tail)) = proxy_tail(inner) {
            let segments = decode(head)?;
            let target = classify(method, &segments, &query)?;
            if matches!(&target, Target::Resource(found) if found.subresource.as_deref() == Some("proxy")) {
                let mark = if raw_query.is_empty() { "" } else { "?" };
                let forward = format!("{}{tail}{mark}{raw_query}", encode(&segments));
                return Ok(Self { target, forward: forward.parse().map_err(|_| Malformed::NotText)?, query });
            }
        }
        let (inner, trailing) = inner.strip_suffix('/').map_or((inner, ""), |inner| (inner, "/"));
        let segments = decode(inner)?;
        let target = classify(method, &segments, &query)?;
        let mut forward = encode(&segments);
        if forward.is_empty() {
            forward.push('/');
        } else if target == Target::NonResource {
            forward.push_str(trailing);
        }
        query.append_to(&mut forward);
        Ok(Self { target, forward: forward.parse().map_err(|_| Malformed::NotText)?, query })
    }

    /// The resource asked for, if any.
    #[must_use]
    pub fn resource(&self) -> Option<&ResourceRequest> {
        match &self.target {
            Target::Resource(resource) => Some(resource),
            Target::NonResource => None,
        }
    }
}

impl ResourceRequest {
    /// The class under which filters match the request; none: filters never see it (`log`, `exec`, `scale`, …).
    /// `status`, `ephemeralcontainers` and `resize` carry the whole parent object and are matched with it.
    #[must_use]
    pub fn class(&self) -> Option<Class> {
        if !matches!(self.subresource.as_deref(), None | Some("status" | "ephemeralcontainers" | "resize")) {
            return None;
        }
        match self.verb {
            Verb::Get | Verb::List | Verb::Watch => Some(Class::Read),
            Verb::Create => Some(Class::Create),
            Verb::Update => Some(Class::Update),
            Verb::Patch => Some(Class::Patch),
            Verb::Delete | Verb::DeleteCollection => Some(Class::Delete),
            Verb::Proxy | Verb::Other => None,
        }
    }

    /// Whether the cluster takes it for a sign of life: what happens to a lease, or to the status of a node or pod.
    #[must_use]
    pub fn is_heartbeat(&self) -> bool {
        let GroupResource { resource, group } = &self.resource;
        let core = group.is_empty() && matches!(resource.as_str(), "nodes" | "pods");
        (group == "coordination.k8s.io" && resource == "leases" && self.name.is_some())
            || (core && self.subresource.as_deref() == Some("status"))
    }

    /// Whether the request may leave HTTP for a byte stream.
    #[must_use]
    pub fn may_upgrade(&self) -> bool {
        matches!(self.subresource.as_deref(), Some("exec" | "attach" | "portforward" | "proxy" | "log"))
    }

    /// Where an object of the collection is.
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

    /// `group/version` as objects spell it: `v1`, `discovery.k8s.io/v1`.
    #[must_use]
    pub fn api_version(&self) -> String {
        if self.resource.group.is_empty() {
            self.version.clone()
        } else {
            format!("{}/{}", self.resource.group, self.version)
        }
    }
}

/// The calling component: the first token of User-Agent up to its first `/`; empty when there is none.
#[must_use]
pub fn component(headers: &HeaderMap) -> &str {
    let agent = headers.get(header::USER_AGENT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let token = agent.split_ascii_whitespace().next().unwrap_or_default();
    token.split('/').next().unwrap_or_default()
}

/// Splits off what follows a `proxy` sub-resource: another program's path, which is not ours to normalise. It is only
/// looked at for dot segments, with which it could climb out again. Only a guess by position: the caller checks that
/// what is left is read as that sub-resource.
fn proxy_tail(path: &str) -> Option<(&str, &str)> {
    let segments: Vec<&str> = path.split('/').collect();
    let fixed = match segments.first() {
        Some(&"api") => 2,
        Some(&"apis") => 3,
        _ => return None,
    };
    let resource = if segments.get(fixed) == Some(&"namespaces") { fixed + 2 } else { fixed };
    if segments.get(resource + 2) != Some(&"proxy") {
        return None;
    }
    let head = segments.iter().take(resource + 3).map(|part| part.len() + 1).sum::<usize>() - 1;
    path.split_at_checked(head).filter(|(_, tail)| !climbs(tail))
}

fn decode(path: &str) -> Result<Vec<String>, Malformed> {
    if path.is_empty() { Ok(Vec::new()) } else { path.split('/').map(segment).collect() }
}

fn encode(segments: &[String]) -> String {
    segments.iter().fold(String::new(), |mut path, part| {
        let _ = write!(path, "/{}", utf8_percent_encode(part, SEGMENT));
        path
    })
}

/// Whether a path holds a dot segment under any number of decodings that a server behind might do.
fn climbs(tail: &str) -> bool {
    let mut text = tail.to_owned();
    for _ in 0..4 {
        if text.split(['/', '\\']).any(|part| part == "." || part == "..") {
            return true;
        }
        match percent_decode_str(&text).decode_utf8_lossy() {
            std::borrow::Cow::Owned(decoded) if decoded != text => text = decoded,
            _ => return false,
        }
    }
    true
}

fn segment(raw: &str) -> Result<String, Malformed> {
    if raw.is_empty() {
        return Err(Malformed::EmptySegment);
    }
    if !query::escapes_are_whole(raw) {
        return Err(Malformed::BadEscape);
    }
    let text = percent_decode_str(raw).decode_utf8().map_err(|_| Malformed::NotText)?;
    match text.as_ref() {
        "." | ".." => Err(Malformed::DotSegment),
        text if text.contains('/') => Err(Malformed::EncodedSlash),
        text if text.contains(|c: char| c.is_control()) => Err(Malformed::NotText),
        text => Ok(text.to_owned()),
    }
}

fn classify(method: &Method, segments: &[String], query: &Query) -> Result<Target, Malformed> {
    let words: Vec<&str> = segments.iter().map(String::as_str).collect();
    let (group, version, rest) = match words.as_slice() {
        ["api", version, rest @ ..] if !rest.is_empty() => ("", *version, rest),
        ["apis", group, version, rest @ ..] if !rest.is_empty() => (*group, *version, rest),
        _ => return Ok(Target::NonResource),
    };
    let by_method = match *method {
        Method::GET | Method::HEAD => Verb::Get,
        Method::POST => Verb::Create,
        Method::PUT => Verb::Update,
        Method::PATCH => Verb::Patch,
        Method::DELETE => Verb::Delete,
        _ => Verb::Other,
    };
    let (mut verb, rest) = match rest {
        ["watch" | "proxy"] => return Err(Malformed::NoResource),
        ["watch", rest @ ..] => (Verb::Watch, rest),
        ["proxy", rest @ ..] => (Verb::Proxy, rest),
        rest => (by_method, rest),
    };
    let mut collection = if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{group}/{version}") };
    let (namespace, parts) = match rest {
        // `namespaces/<name>/status` is a sub-resource of the namespace, `namespaces/<name>/pods` a collection in it.
        ["namespaces", name, parts @ ..] if !matches!(parts, [] | ["status" | "finalize", ..]) => {
            let _ = write!(collection, "/namespaces/{name}");
            (Some(*name), parts)
        }
        ["namespaces", name, ..] => (Some(*name), rest),
        _ => (None, rest),
    };
    let mut parts = parts.iter().copied();
    let resource = parts.next().ok_or(Malformed::NoResource)?;
    let name = parts.next();
    let subresource = if verb == Verb::Proxy { None } else { parts.next() };
    let _ = write!(collection, "/{resource}");
    if name.is_none() {
        verb = match verb {
            Verb::Get if query.flag("watch") => Verb::Watch,
            Verb::Get => Verb::List,
            Verb::Delete => Verb::DeleteCollection,
            other => other,
        };
    }
    Ok(Target::Resource(ResourceRequest {
        verb,
        resource: GroupResource::new(resource, group),
        version: version.to_owned(),
        namespace: namespace.map(str::to_owned),
        name: name.map(str::to_owned),
        subresource: subresource.map(str::to_owned),
        collection,
    }))
}
