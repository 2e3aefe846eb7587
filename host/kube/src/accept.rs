//! Content negotiation: in which form a client wants what a filter matches, by the rules of kube-apiserver.
//!
//! An `Accept` is read as its negotiator reads it: by quality, named types before wildcards, otherwise in the order
//! written; a range with a parameter that cannot be met (an unknown `as`, another `stream`) is passed over, and so are
//! encodings that cannot be filtered (CBOR, YAML). Where nothing is left the answer is plain JSON: every client's
//! decoder of a Kubernetes API reads it. Upstream is asked for what was chosen, so that no read is converted.

use http::{HeaderMap, HeaderValue, header};

use crate::{Query, Verb};

const JSON: &str = "application/json";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// How objects are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoding {
    /// `application/json`
    Json,
    /// `application/vnd.kubernetes.protobuf`
    Protobuf,
}

/// What is shown of each object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// All of it.
    Object,
    /// `as=PartialObjectMetadata[List]`.
    Metadata(MetaVersion),
    /// `as=Table`.
    Table(MetaVersion, Include),
}

/// The version of `meta.k8s.io` in which a shape was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetaVersion {
    /// `v1`
    V1,
    /// `v1beta1`
    V1Beta1,
}

/// What `rows[].object` of a Table carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Include {
    /// Nothing.
    None,
    /// Its metadata.
    Metadata,
    /// All of it.
    Object,
}

/// What a client gets: an encoding and a shape.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Form {
    /// How objects are written.
    pub encoding: Encoding,
    /// What is shown of each.
    pub shape: Shape,
}

/// One clause of an `Accept`.
#[derive(Debug)]
struct Range<'a> {
    kind: &'a str,
    subtype: &'a str,
    parameters: Vec<(&'a str, &'a str)>,
    quality: f32,
}

impl Encoding {
    /// The media type of an answer.
    #[must_use]
    pub fn content_type(self, verb: Verb) -> HeaderValue {
        HeaderValue::from_static(match (self, verb) {
            // As the API server says it: only for what is not JSON.
            (Self::Protobuf, Verb::Watch) => "application/vnd.kubernetes.protobuf;stream=watch",
            (Self::Protobuf, _) => PROTOBUF,
            (Self::Json, _) => JSON,
        })
    }

    /// The encoding of an answer by its media type; none for one that was not asked for.
    #[must_use]
    pub fn of_answer(content_type: &str) -> Option<Self> {
        let media = content_type.split(';').next().unwrap_or_default().trim();
        [(JSON, Self::Json), (PROTOBUF, Self::Protobuf)]
            .into_iter()
            .find(|(name, _)| media.eq_ignore_ascii_case(name))
            .map(|(_, encoding)| encoding)
    }

    /// The encoding in which a client is told of errors.
    #[must_use]
    pub fn of_errors(headers: &HeaderMap) -> Self {
        let text = accepted(headers);
        ranges(&text).iter().find_map(Range::encoding).unwrap_or(Self::Json)
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

impl Include {
    fn of(query: &Query) -> Self {
        match query.first("includeObject") {
            Some("None") => Self::None,
            Some("Object") => Self::Object,
            _ => Self::Metadata,
        }
    }
}

impl Form {
    /// Whole objects as JSON: what is always had.
    pub const PLAIN: Self = Self { encoding: Encoding::Json, shape: Shape::Object };

    /// What a read asks for. `protobuf`: whether objects of the resource can be written as protobuf.
    #[must_use]
    pub fn of(headers: &HeaderMap, protobuf: bool, query: &Query) -> Self {
        let text = accepted(headers);
        let offered = |range: &Range<'_>| {
            let form = Self { encoding: range.encoding()?, shape: range.shape(query)? };
            match form {
                Self { encoding: Encoding::Protobuf, .. } if !protobuf => None,
                // A Table cannot be written as protobuf.
                Self { encoding: Encoding::Protobuf, shape: Shape::Table(..) } => None,
                form => Some(form),
            }
        };
        ranges(&text).iter().find_map(offered).unwrap_or(Self::PLAIN)
    }

    /// What the API server is asked for: whole objects always, since that is what filters judge. JSON is taken from a
    /// server that lacks the form.
    #[must_use]
    pub fn asked(self) -> HeaderValue {
        HeaderValue::from_static(match (self.encoding, self.shape) {
            (_, Shape::Table(MetaVersion::V1, _)) => "application/json;as=Table;g=meta.k8s.io;v=v1,application/json",
            (_, Shape::Table(MetaVersion::V1Beta1, _)) => {
                "application/json;as=Table;g=meta.k8s.io;v=v1beta1,application/json"
            }
            (Encoding::Json, _) => JSON,
            (Encoding::Protobuf, _) => "application/vnd.kubernetes.protobuf,application/json",
        })
    }
}

impl<'a> Range<'a> {
    /// None for a clause that is no media range, or is refused (`q=0`).
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
        (quality > 0.0).then_some(Self { kind: kind.trim(), subtype: subtype.trim(), parameters, quality })
    }

    fn wildcards(&self) -> usize {
        usize::from(self.kind == "*") + usize::from(self.subtype == "*")
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

    fn shape(&self, query: &Query) -> Option<Shape> {
        let find = |name| self.parameters.iter().find(|(found, _)| *found == name).map(|(_, value)| *value);
        if find("stream").is_some_and(|stream| !stream.is_empty() && stream != "watch") {
            return None;
        }
        let Some(kind) = find("as") else {
            return (find("g").is_none() && find("v").is_none()).then_some(Shape::Object);
        };
        let version = match (find("g"), find("v")) {
            (Some("meta.k8s.io"), Some("v1")) => MetaVersion::V1,
            (Some("meta.k8s.io"), Some("v1beta1")) => MetaVersion::V1Beta1,
            _ => return None,
        };
        match kind {
            "Table" => Some(Shape::Table(version, Include::of(query))),
            "PartialObjectMetadata" | "PartialObjectMetadataList" => Some(Shape::Metadata(version)),
            _ => None,
        }
    }
}

/// The clauses in the order of preference.
fn ranges(text: &str) -> Vec<Range<'_>> {
    let mut ranges: Vec<_> = text.split(',').filter_map(Range::parse).collect();
    // Stable: equal ones stay as they were written.
    ranges.sort_by(|a, b| b.quality.total_cmp(&a.quality).then(a.wildcards().cmp(&b.wildcards())));
    ranges
}

/// All `Accept` lines as one; what is not text counts as not there.
fn accepted(headers: &HeaderMap) -> String {
    let lines: Vec<_> = headers.get_all(header::ACCEPT).iter().filter_map(|line| line.to_str().ok()).collect();
    lines.join(",")
}

#[cfg(test)]
mod tests {
    use http::Method;

    use super::*;
    use crate::Request;

    fn form(accept: &str, path: &str) -> Form {
        let request = Request::parse(&Method::GET, &path.parse().unwrap()).unwrap();
        let headers = HeaderMap::from_iter([(header::ACCEPT, accept.parse().unwrap())]);
        // Custom resources have no protobuf.
        let protobuf = !request.resource().unwrap().resource.group.contains("openyurt");
        Form::of(&headers, protobuf, &request.query)
    }

    const SERVICES: &str = "/api/v1/services";
    const POOLS: &str = "/apis/apps.openyurt.io/v1beta2/nodepools";
    const PROTOBUF: Form = Form { encoding: Encoding::Protobuf, shape: Shape::Object };

    #[test]
    fn the_form_is_the_first_one_that_can_be_filtered() {
        let metadata = |encoding| Form { encoding, shape: Shape::Metadata(MetaVersion::V1) };
        let table = |include| Form { encoding: Encoding::Json, shape: Shape::Table(MetaVersion::V1, include) };
        for (accept, expected) in [
            ("", Form::PLAIN),
            ("*/*", Form::PLAIN),
            ("application/*", Form::PLAIN),
            ("text/html, image/gif, *; q=.2, */*; q=.2", Form::PLAIN),
            ("application/vnd.kubernetes.protobuf", PROTOBUF),
            ("application/vnd.kubernetes.protobuf,application/json", PROTOBUF),
            ("application/vnd.kubernetes.protobuf, */*", PROTOBUF),
            ("*/*, application/vnd.kubernetes.protobuf", PROTOBUF),
            ("application/vnd.kubernetes.protobuf;stream=watch", PROTOBUF),
            ("application/vnd.kubernetes.protobuf;stream=other,application/json", Form::PLAIN),
            ("application/json;stream=watch", Form::PLAIN),
            ("application/json;pretty=1;charset=utf-8", Form::PLAIN),
            ("Application/JSON", Form::PLAIN),
            ("application/vnd.kubernetes.protobuf;q=0.5, application/json;q=0.9", Form::PLAIN),
            ("application/json;q=0.5, application/vnd.kubernetes.protobuf;q=0.9", PROTOBUF),
            ("application/json;q=0.1, application/vnd.kubernetes.protobuf", PROTOBUF),
            ("application/json;q=0, application/vnd.kubernetes.protobuf;q=0.1", PROTOBUF),
            ("application/cbor, application/vnd.kubernetes.protobuf;q=0.9, application/json;q=0.8", PROTOBUF),
            ("application/cbor,application/json;q=0.9", Form::PLAIN),
            ("application/yaml", Form::PLAIN),
            ("application/yaml, application/vnd.kubernetes.protobuf;q=0.1", PROTOBUF),
            ("application/json;as=Table;v=v1;g=meta.k8s.io,application/json", table(Include::Metadata)),
            ("application/json;as=Table;v=v2;g=meta.k8s.io,application/json", Form::PLAIN),
            ("application/json;as=Table;v=v1;g=other,application/json", Form::PLAIN),
            ("application/json;as=Table", Form::PLAIN),
            ("application/vnd.kubernetes.protobuf;as=Table;v=v1;g=meta.k8s.io,application/json", Form::PLAIN),
            ("application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io", metadata(Encoding::Json)),
            (
                "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json",
                metadata(Encoding::Protobuf),
            ),
            ("nonsense, ;;, /, application/json", Form::PLAIN),
        ] {
            assert_eq!(form(accept, SERVICES), expected, "{accept}");
        }
        let accept = "application/json;as=Table;v=v1;g=meta.k8s.io";
        for (include, expected) in
            [("Object", Include::Object), ("None", Include::None), ("x", Include::Metadata), ("", Include::Metadata)]
        {
            assert_eq!(form(accept, &format!("{SERVICES}?includeObject={include}")), table(expected));
        }
    }

    #[test]
    fn kinds_that_have_no_protobuf_are_asked_for_as_json() {
        for accept in ["application/vnd.kubernetes.protobuf", "application/vnd.kubernetes.protobuf,application/json"] {
            assert_eq!(form(accept, POOLS), Form::PLAIN);
            for known in [
                "/api/v1/nodes/a",
                "/api/v1/namespaces/a/pods/b/status",
                "/apis/discovery.k8s.io/v1/endpointslices?watch=1",
                "/api/v1/endpoints",
            ] {
                assert_eq!(form(accept, known), PROTOBUF, "{known}");
            }
        }
    }

    #[test]
    fn lines_of_one_header_are_one_list() {
        let mut headers = HeaderMap::new();
        headers.append(header::ACCEPT, "application/cbor".parse().unwrap());
        headers.append(header::ACCEPT, "application/vnd.kubernetes.protobuf".parse().unwrap());
        assert_eq!(Encoding::of_errors(&headers), Encoding::Protobuf);
        assert_eq!(Encoding::of_errors(&HeaderMap::new()), Encoding::Json);
    }

    #[test]
    fn answers_are_known_by_their_media_type() {
        for (content_type, expected) in [
            ("application/json", Some(Encoding::Json)),
            ("application/json; charset=utf-8", Some(Encoding::Json)),
            ("application/vnd.kubernetes.protobuf;stream=watch", Some(Encoding::Protobuf)),
            ("text/html", None),
            ("", None),
        ] {
            assert_eq!(Encoding::of_answer(content_type), expected, "{content_type}");
        }
    }
}
