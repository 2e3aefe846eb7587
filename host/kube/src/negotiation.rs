//! Content negotiation of filtered responses, by the rules of kube-apiserver.
//!
//! Media ranges are ordered by quality, then named types before wildcards, then as written. A range is skipped if it has a
//! parameter that the API server does not support (an unknown `as`, another `stream`), or names an encoding that filters
//! do not support (CBOR, YAML). If no range is left, the response is plain JSON, which every Kubernetes client decodes, unless
//! the API server has none of the client's media types either: it refuses such a read with 406 ([`Accepted::is_served`]).
//! Weir requests the negotiated encoding from the API server, so that it never converts a response.

use http::{HeaderMap, HeaderValue, header};

use crate::{OptionsError, Query, Verb};

const JSON: &str = "application/json";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// The encoding of objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoding {
    /// `application/json`
    Json,
    /// `application/vnd.kubernetes.protobuf`
    Protobuf,
}

/// The transformation of each object that the client requested with `as=`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transform {
    /// The whole object.
    None,
    /// `as=PartialObjectMetadata` or `as=PartialObjectMetadataList`.
    Metadata(MetaVersion),
    /// `as=Table`.
    Table(MetaVersion, IncludeObject),
}

/// The requested version of `meta.k8s.io`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetaVersion {
    /// `v1`
    V1,
    /// `v1beta1`
    V1Beta1,
}

/// The `includeObject` option: what `rows[].object` of a Table contains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IncludeObject {
    /// No object.
    None,
    /// The metadata of the object.
    Metadata,
    /// The whole object.
    Object,
}

/// The negotiated media type of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MediaType {
    /// The encoding of objects.
    pub encoding: Encoding,
    /// The transformation of each object.
    pub transform: Transform,
}

/// What a client accepts, by its `Accept` headers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Accepted {
    /// The negotiated media type.
    pub media_type: MediaType,
    /// Whether the client accepts nothing but Tables.
    pub only_tables: bool,
    /// Whether the API server answers in one of these media types. It refuses others with 406. YAML and CBOR count: such a client
    /// gets JSON from Weir.
    pub is_served: bool,
}

/// One media range of an `Accept` header.
#[derive(Debug)]
struct MediaRange<'a> {
    kind: &'a str,
    subtype: &'a str,
    parameters: Vec<(&'a str, &'a str)>,
    quality: f32,
}

impl Encoding {
    /// The `Content-Type` of a response.
    #[must_use]
    pub fn content_type(self, verb: Verb) -> HeaderValue {
        HeaderValue::from_static(match (self, verb) {
            // The API server adds `stream=watch` to every encoding except JSON.
            (Self::Protobuf, Verb::Watch) => "application/vnd.kubernetes.protobuf;stream=watch",
            (Self::Protobuf, _) => PROTOBUF,
            (Self::Json, _) => JSON,
        })
    }

    /// The encoding of a response by its `Content-Type`; `None` for one that Weir does not request.
    #[must_use]
    pub fn from_content_type(content_type: &str) -> Option<Self> {
        let media = content_type.split(';').next().unwrap_or_default().trim();
        [(JSON, Self::Json), (PROTOBUF, Self::Protobuf)]
            .into_iter()
            .find(|(name, _)| media.eq_ignore_ascii_case(name))
            .map(|(_, encoding)| encoding)
    }

    /// The encoding of the `Status` object in an error response to this request.
    #[must_use]
    pub fn for_errors(headers: &HeaderMap) -> Self {
        let text = joined_accept(headers);
        ranges(&text).iter().find_map(MediaRange::encoding).unwrap_or(Self::Json)
    }
}

impl MetaVersion {
    /// `meta.k8s.io/v1`
    #[must_use]
    pub fn api_version(self) -> &'static str {
        match self {
            Self::V1 => "meta.k8s.io/v1",
            Self::V1Beta1 => "meta.k8s.io/v1beta1",
        }
    }
}

impl IncludeObject {
    /// Checks the option of a query, as the API server does for a Table.
    ///
    /// # Errors
    /// [`OptionsErrorKind::Malformed`](crate::OptionsErrorKind::Malformed)
    pub fn validate(query: &Query) -> Result<(), OptionsError> {
        match query.first("includeObject") {
            None | Some("" | "None" | "Metadata" | "Object") => Ok(()),
            Some(_) => Err(OptionsError::malformed("includeObject", "it is none of None, Metadata and Object")),
        }
    }

    fn of(query: &Query) -> Self {
        match query.first("includeObject") {
            Some("None") => Self::None,
            Some("Object") => Self::Object,
            _ => Self::Metadata,
        }
    }
}

impl MediaType {
    /// Whole objects as JSON, which every API server and every client supports.
    pub const JSON: Self = Self { encoding: Encoding::Json, transform: Transform::None };

    /// The `Accept` header of the request to the API server.
    ///
    /// It never requests metadata only, because filters read whole objects. It accepts JSON from a server that does not
    /// support the media type, unless the client accepts only Tables: where there is none, it gets the server's error.
    #[must_use]
    pub fn upstream_accept(self, only_tables: bool) -> HeaderValue {
        HeaderValue::from_static(match (self.encoding, self.transform) {
            (_, Transform::Table(MetaVersion::V1, _)) if only_tables => "application/json;as=Table;g=meta.k8s.io;v=v1",
            (_, Transform::Table(MetaVersion::V1Beta1, _)) if only_tables => {
                "application/json;as=Table;g=meta.k8s.io;v=v1beta1"
            }
            (_, Transform::Table(MetaVersion::V1, _)) => {
                "application/json;as=Table;g=meta.k8s.io;v=v1,application/json"
            }
            (_, Transform::Table(MetaVersion::V1Beta1, _)) => {
                "application/json;as=Table;g=meta.k8s.io;v=v1beta1,application/json"
            }
            (Encoding::Json, _) => JSON,
            (Encoding::Protobuf, _) => "application/vnd.kubernetes.protobuf,application/json",
        })
    }
}

impl Accepted {
    /// Negotiates the media type of a response to a request with this verb. `protobuf` says whether the resource has a protobuf
    /// encoding.
    #[must_use]
    pub fn negotiate(headers: &HeaderMap, protobuf: bool, query: &Query, verb: Verb) -> Self {
        let text = joined_accept(headers);
        let ranges: Vec<_> = ranges(&text).into_iter().map(|range| (range.transform(query), range)).collect();
        let supported = |(transform, range): &(Option<Transform>, MediaRange<'_>)| {
            let media_type = MediaType { encoding: range.encoding()?, transform: (*transform)? };
            match media_type {
                MediaType { encoding: Encoding::Protobuf, .. } if !protobuf => None,
                // A Table has no protobuf encoding.
                MediaType { encoding: Encoding::Protobuf, transform: Transform::Table(..) } => None,
                media_type => Some(media_type),
            }
        };
        let served = |(transform, range): &&(Option<Transform>, MediaRange<'_>)| match (range.is_served(), transform) {
            // No Table has a protobuf encoding.
            (true, Some(Transform::Table(..))) => range.encoding() != Some(Encoding::Protobuf),
            (true, Some(Transform::None)) => protobuf || range.encoding() != Some(Encoding::Protobuf),
            (is_served, transform) => is_served && transform.is_some(),
        };
        let is_served = match ranges.iter().find(served) {
            // It has chosen by then, and does not look at the next range.
            Some((_, range)) => match range.parameter("as") {
                Some("PartialObjectMetadataList") => matches!(verb, Verb::List | Verb::Watch),
                Some("PartialObjectMetadata") => verb != Verb::List,
                _ => true,
            },
            None => text.trim().is_empty(),
        };
        let is_table = |(transform, _): &_| matches!(transform, Some(Transform::Table(..)));
        Self {
            media_type: ranges.iter().find_map(supported).unwrap_or(MediaType::JSON),
            only_tables: !ranges.is_empty() && ranges.iter().all(is_table),
            is_served,
        }
    }
}

impl<'a> MediaRange<'a> {
    /// `None` if the clause is not a media range. A quality of 0 only moves it to the end, as in the API server.
    fn parse(clause: &'a str) -> Option<Self> {
        let mut parts = clause.split(';').map(str::trim);
        let (kind, subtype) = match parts.next()? {
            "*" => ("*", "*"),
            media => media.split_once('/')?,
        };
        let mut quality = 1.0;
        let mut parameters = Vec::new();
        for part in parts {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            let value = value.trim().trim_matches('"');
            match name.trim() {
                "q" => quality = value.parse().unwrap_or(1.0),
                name => parameters.push((name, value)),
            }
        }
        Some(Self { kind: kind.trim(), subtype: subtype.trim(), parameters, quality })
    }

    fn wildcards(&self) -> usize {
        usize::from(self.kind == "*") + usize::from(self.subtype == "*")
    }

    fn parameter(&self, name: &str) -> Option<&'a str> {
        self.parameters.iter().find(|(found, _)| *found == name).map(|(_, value)| *value)
    }

    /// Whether the API server has such a media type. It takes no `application/*`.
    fn is_served(&self) -> bool {
        let is_any = self.kind == "*" && self.subtype == "*";
        let names = ["json", "vnd.kubernetes.protobuf", "yaml", "cbor"];
        let is_named = names.into_iter().any(|name| self.subtype.eq_ignore_ascii_case(name));
        is_any || (self.kind.eq_ignore_ascii_case("application") && is_named)
    }

    fn encoding(&self) -> Option<Encoding> {
        let application = self.kind.eq_ignore_ascii_case("application");
        match self.subtype {
            "*" if application || self.kind == "*" => Some(Encoding::Json),
            json if application && json.eq_ignore_ascii_case("json") => Some(Encoding::Json),
            protobuf if application && protobuf.eq_ignore_ascii_case("vnd.kubernetes.protobuf") => {
                Some(Encoding::Protobuf)
            }
            _ => None,
        }
    }

    fn transform(&self, query: &Query) -> Option<Transform> {
        if self.parameter("stream").is_some_and(|stream| !stream.is_empty() && stream != "watch") {
            return None;
        }
        let version = (self.parameter("g"), self.parameter("v"));
        let Some(kind) = self.parameter("as") else {
            return (version == (None, None)).then_some(Transform::None);
        };
        let version = match version {
            (Some("meta.k8s.io"), Some("v1")) => MetaVersion::V1,
            (Some("meta.k8s.io"), Some("v1beta1")) => MetaVersion::V1Beta1,
            _ => return None,
        };
        match kind {
            "Table" => Some(Transform::Table(version, IncludeObject::of(query))),
            "PartialObjectMetadata" | "PartialObjectMetadataList" => Some(Transform::Metadata(version)),
            _ => None,
        }
    }
}

/// The media ranges in order of preference.
fn ranges(text: &str) -> Vec<MediaRange<'_>> {
    let mut ranges: Vec<_> = text.split(',').filter_map(MediaRange::parse).collect();
    // A stable sort keeps equal ranges in the order written.
    ranges.sort_by(|a, b| b.quality.total_cmp(&a.quality).then(a.wildcards().cmp(&b.wildcards())));
    ranges
}

/// Joins all `Accept` headers and ignores those that are not text.
fn joined_accept(headers: &HeaderMap) -> String {
    let lines: Vec<_> = headers.get_all(header::ACCEPT).iter().filter_map(|line| line.to_str().ok()).collect();
    lines.join(",")
}

#[cfg(test)]
mod tests;
