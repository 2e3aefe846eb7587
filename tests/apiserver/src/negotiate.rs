//! Content negotiation by `Accept`, as in kube-apiserver: it serves the first acceptable clause, in goautoneg's order.
//! A quality of 0 only moves a clause to the end, as there.
//!
//! It holds no state.

use http::{HeaderMap, header};
use weir_document::TypeMeta;

use crate::catalog::Resource;
use crate::status::Status;

/// The encoding of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Media {
    /// For all kinds.
    Json,
    /// For built-in kinds of the schema, metadata of all kinds, and Status.
    Protobuf,
}

/// The shape of a get, list or watch response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// Complete objects.
    Objects,
    /// `as=Table`: rows for a printer. JSON only.
    Table,
    /// `as=PartialObjectMetadata` or its list.
    Metadata,
}

/// The negotiated response format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Accepted {
    pub(crate) media: Media,
    pub(crate) shape: Shape,
    /// `pretty=1`: the JSON of gets and lists is indented.
    pub(crate) pretty: bool,
}

/// One clause of the header.
struct Clause<'a> {
    kind: &'a str,
    subtype: &'a str,
    quality: f32,
    parameters: Vec<(&'a str, &'a str)>,
}

const META: &str = "meta.k8s.io";

/// Negotiates the format of a resource's objects.
pub(crate) fn objects(headers: &HeaderMap, resource: &Resource) -> Result<Accepted, Status> {
    negotiate(headers, Some(resource)).ok_or_else(Status::not_acceptable)
}

/// Negotiates the format of a Status. It falls back to JSON, as there must be a response.
pub(crate) fn status(headers: &HeaderMap) -> Media {
    negotiate(headers, None).map_or(Media::Json, |accepted| accepted.media)
}

/// Whether the client accepts gzip.
pub(crate) fn accepts_gzip(headers: &HeaderMap) -> bool {
    headers
        .get_all(header::ACCEPT_ENCODING)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .any(|coding| coding.split(';').next().is_some_and(|name| name.trim() == "gzip"))
}

/// Like the API server, it reads only the first `Accept` header.
fn negotiate(headers: &HeaderMap, resource: Option<&Resource>) -> Option<Accepted> {
    let accept = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or("");
    if accept.is_empty() {
        return Some(Accepted { media: Media::Json, shape: Shape::Objects, pretty: false });
    }
    let mut clauses: Vec<Clause<'_>> = accept.split(',').filter_map(Clause::parse).collect();
    clauses.sort_by(|one, other| other.quality.total_cmp(&one.quality).then(one.wildcards().cmp(&other.wildcards())));
    clauses
        .iter()
        .find_map(|clause| [Media::Json, Media::Protobuf].into_iter().find_map(|media| clause.accept(media, resource)))
}

// === impl Media ===

impl Media {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Protobuf => "application/vnd.kubernetes.protobuf",
        }
    }

    /// The media type of an event stream.
    pub(crate) fn watch(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Protobuf => "application/vnd.kubernetes.protobuf;stream=watch",
        }
    }
}

// === impl Clause ===

impl<'a> Clause<'a> {
    fn parse(text: &'a str) -> Option<Self> {
        let mut parts = text.split(';').map(str::trim);
        let (kind, subtype) = match parts.next()? {
            "*" => ("*", "*"),
            range => range.split_once('/')?,
        };
        let mut clause = Self { kind: kind.trim(), subtype: subtype.trim(), quality: 1.0, parameters: Vec::new() };
        for (name, value) in parts.filter_map(|part| part.split_once('=')) {
            match (name.trim(), value.trim()) {
                ("q", quality) => clause.quality = quality.parse().unwrap_or(0.0),
                parameter => clause.parameters.push(parameter),
            }
        }
        Some(clause)
    }

    fn wildcards(&self) -> (bool, bool) {
        (self.kind == "*", self.subtype == "*")
    }

    fn parameter(&self, name: &str) -> Option<&'a str> {
        let mut latest_first = self.parameters.iter().rev();
        latest_first.find_map(|(known, value)| (*known == name).then_some(*value))
    }

    /// The format of this clause in an encoding; `None` if the server does not support it. Without a resource it is
    /// for a Status.
    fn accept(&self, media: Media, resource: Option<&Resource>) -> Option<Accepted> {
        let matches = match (self.kind, self.subtype) {
            ("*", "*") => true,
            (kind, subtype) => media.name().split_once('/') == Some((kind, subtype)),
        };
        if !matches || self.parameter("stream").is_some_and(|stream| stream != "watch") {
            return None;
        }
        let shape = [self.parameter("as"), self.parameter("g"), self.parameter("v")];
        let shape = match (shape, resource) {
            ([None, None, None], _) => Shape::Objects,
            ([Some("Table"), Some(META), Some("v1" | "v1beta1")], Some(_)) if media == Media::Json => Shape::Table,
            (
                [Some("PartialObjectMetadata" | "PartialObjectMetadataList"), Some(META), Some("v1" | "v1beta1")],
                Some(_),
            ) => Shape::Metadata,
            _ => return None,
        };
        let served = media == Media::Json || shape == Shape::Metadata || resource.is_none_or(in_protobuf);
        served.then(|| Accepted { media, shape, pretty: self.parameter("pretty") == Some("1") })
    }
}

/// Whether complete objects of this resource exist in protobuf.
fn in_protobuf(resource: &Resource) -> bool {
    let type_meta = TypeMeta { api_version: resource.api_version(), kind: resource.kind.clone() };
    !resource.custom && weir_document::protobuf::has(&type_meta)
}

#[cfg(test)]
mod tests {
    use super::*;

    const JSON: Option<(Media, Shape)> = Some((Media::Json, Shape::Objects));
    const PROTOBUF: Option<(Media, Shape)> = Some((Media::Protobuf, Shape::Objects));
    const TABLE: Option<(Media, Shape)> = Some((Media::Json, Shape::Table));
    const METADATA: Option<(Media, Shape)> = Some((Media::Protobuf, Shape::Metadata));

    fn accepted(accept: &str, resource: &Resource) -> Option<(Media, Shape)> {
        let mut headers = HeaderMap::new();
        headers.insert(header::ACCEPT, accept.parse().unwrap());
        objects(&headers, resource).ok().map(|accepted| (accepted.media, accepted.shape))
    }

    #[test]
    fn the_first_clause_that_is_served_wins() {
        let service = Resource::new("", "v1", "services", "Service").built_in();
        let pool = Resource::new("apps.openyurt.io", "v1beta2", "nodepools", "NodePool");
        for (accept, of_service, of_pool) in [
            ("", JSON, JSON),
            ("*", JSON, JSON),
            ("*/*", JSON, JSON),
            ("application/*", None, None),
            ("application/vnd.kubernetes.protobuf,application/json", PROTOBUF, JSON),
            ("application/vnd.kubernetes.protobuf, */*", PROTOBUF, JSON),
            ("application/vnd.kubernetes.protobuf", PROTOBUF, None),
            ("application/vnd.kubernetes.protobuf;stream=watch", PROTOBUF, None),
            ("application/vnd.kubernetes.protobuf;stream=other", None, None),
            ("application/json;stream=watch", JSON, JSON),
            ("application/yaml", None, None),
            ("application/cbor,application/vnd.kubernetes.protobuf", PROTOBUF, None),
            ("text/html", None, None),
            ("nonsense", None, None),
            ("application/json;as=Table;v=v1;g=meta.k8s.io,application/json", TABLE, TABLE),
            ("application/vnd.kubernetes.protobuf;as=Table;v=v1;g=meta.k8s.io", None, None),
            ("application/vnd.kubernetes.protobuf;as=Table;v=v1;g=meta.k8s.io,application/json", JSON, JSON),
            ("application/*;as=Table;v=v1;g=meta.k8s.io", None, None),
            ("application/json;as=Table;v=v2;g=meta.k8s.io", None, None),
            ("application/json;as=Table", None, None),
            ("application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json", JSON, JSON),
            ("application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1", METADATA, METADATA),
            ("application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1", METADATA, METADATA),
        ] {
            assert_eq!(accepted(accept, &service), of_service, "{accept:?} of Services");
            assert_eq!(accepted(accept, &pool), of_pool, "{accept:?} of NodePools");
        }
    }

    #[test]
    fn quality_decides_then_wildcards_come_last_then_the_order_written() {
        let service = Resource::new("", "v1", "services", "Service").built_in();
        for (accept, expected) in [
            ("application/json,application/vnd.kubernetes.protobuf", JSON),
            ("application/json;q=0.5,application/vnd.kubernetes.protobuf", PROTOBUF),
            ("application/json;q=0.5,application/vnd.kubernetes.protobuf;q=0.5", JSON),
            ("application/json;q=no,application/vnd.kubernetes.protobuf;q=0.1", PROTOBUF),
            ("*/*,application/vnd.kubernetes.protobuf", PROTOBUF),
            ("application/*,application/vnd.kubernetes.protobuf", PROTOBUF),
            ("application/vnd.kubernetes.protobuf;q=0.9,*/*", JSON),
            ("application/vnd.kubernetes.protobuf;q=0", PROTOBUF),
        ] {
            assert_eq!(accepted(accept, &service), expected, "{accept:?}");
        }
    }

    #[test]
    fn a_status_is_never_a_shape_and_falls_back_to_json() {
        for (accept, expected) in [
            ("application/vnd.kubernetes.protobuf", Media::Protobuf),
            ("application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1", Media::Json),
            ("application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,*/*;q=0.1", Media::Json),
            ("application/json;as=Table;v=v1;g=meta.k8s.io,application/vnd.kubernetes.protobuf", Media::Protobuf),
            ("text/html", Media::Json),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(header::ACCEPT, accept.parse().unwrap());
            assert_eq!(status(&headers), expected, "{accept:?}");
        }
    }
}
