//! Negotiation of media types against the rules of kube-apiserver.

use http::Method;

use super::*;
use crate::RequestInfo;

fn accepted(accept: &str, protobuf: bool, query: &Query, verb: Verb) -> Accepted {
    let headers = HeaderMap::from_iter([(header::ACCEPT, accept.parse().unwrap())]);
    Accepted::negotiate(&headers, protobuf, query, verb)
}

fn negotiated(accept: &str, path: &str) -> MediaType {
    let request = RequestInfo::parse(&Method::GET, &path.parse().unwrap()).unwrap();
    // Custom resources have no protobuf encoding.
    let protobuf = !request.resource().unwrap().resource.group.contains("openyurt");
    accepted(accept, protobuf, &request.query, Verb::List).media_type
}

const SERVICES: &str = "/api/v1/services";
const POOLS: &str = "/apis/apps.openyurt.io/v1beta2/nodepools";
const PROTOBUF: MediaType = MediaType { encoding: Encoding::Protobuf, transform: Transform::None };

#[test]
fn the_first_media_type_that_filters_support_is_chosen() {
    let metadata = |encoding| MediaType { encoding, transform: Transform::Metadata(MetaVersion::V1) };
    let table = |include| MediaType { encoding: Encoding::Json, transform: Transform::Table(MetaVersion::V1, include) };
    for (accept, expected) in [
        ("", MediaType::JSON),
        ("*/*", MediaType::JSON),
        ("application/*", MediaType::JSON),
        ("text/html, image/gif, *; q=.2, */*; q=.2", MediaType::JSON),
        ("application/vnd.kubernetes.protobuf", PROTOBUF),
        ("application/vnd.kubernetes.protobuf,application/json", PROTOBUF),
        ("application/vnd.kubernetes.protobuf, */*", PROTOBUF),
        ("*/*, application/vnd.kubernetes.protobuf", PROTOBUF),
        ("application/vnd.kubernetes.protobuf;stream=watch", PROTOBUF),
        ("application/vnd.kubernetes.protobuf;stream=other,application/json", MediaType::JSON),
        ("application/json;stream=watch", MediaType::JSON),
        ("application/json;pretty=1;charset=utf-8", MediaType::JSON),
        ("Application/JSON", MediaType::JSON),
        ("application/vnd.kubernetes.protobuf;q=0.5, application/json;q=0.9", MediaType::JSON),
        ("application/json;q=0.5, application/vnd.kubernetes.protobuf;q=0.9", PROTOBUF),
        ("application/json;q=0.1, application/vnd.kubernetes.protobuf", PROTOBUF),
        ("application/json;q=0, application/vnd.kubernetes.protobuf;q=0.1", PROTOBUF),
        ("application/cbor, application/vnd.kubernetes.protobuf;q=0.9, application/json;q=0.8", PROTOBUF),
        ("application/cbor,application/json;q=0.9", MediaType::JSON),
        ("application/yaml", MediaType::JSON),
        ("application/yaml, application/vnd.kubernetes.protobuf;q=0.1", PROTOBUF),
        ("application/json;as=Table;v=v1;g=meta.k8s.io,application/json", table(IncludeObject::Metadata)),
        ("application/json;as=Table;v=v2;g=meta.k8s.io,application/json", MediaType::JSON),
        ("application/json;as=Table;v=v1;g=other,application/json", MediaType::JSON),
        ("application/json;as=Table", MediaType::JSON),
        ("application/vnd.kubernetes.protobuf;as=Table;v=v1;g=meta.k8s.io,application/json", MediaType::JSON),
        ("application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io", metadata(Encoding::Json)),
        (
            "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json",
            metadata(Encoding::Protobuf),
        ),
        ("nonsense, ;;, /, application/json", MediaType::JSON),
    ] {
        assert_eq!(negotiated(accept, SERVICES), expected, "{accept}");
    }
    let accept = "application/json;as=Table;v=v1;g=meta.k8s.io";
    for (include, expected) in [
        ("Object", IncludeObject::Object),
        ("None", IncludeObject::None),
        ("x", IncludeObject::Metadata),
        ("", IncludeObject::Metadata),
    ] {
        assert_eq!(negotiated(accept, &format!("{SERVICES}?includeObject={include}")), table(expected));
    }
}

#[test]
fn resources_without_protobuf_are_requested_as_json() {
    for accept in ["application/vnd.kubernetes.protobuf", "application/vnd.kubernetes.protobuf,application/json"] {
        assert_eq!(negotiated(accept, POOLS), MediaType::JSON);
        for known in [
            "/api/v1/nodes/a",
            "/api/v1/namespaces/a/pods/b/status",
            "/apis/discovery.k8s.io/v1/endpointslices?watch=1",
            "/api/v1/endpoints",
        ] {
            assert_eq!(negotiated(accept, known), PROTOBUF, "{known}");
        }
    }
}

#[test]
fn several_accept_headers_are_one_list() {
    let mut headers = HeaderMap::new();
    headers.append(header::ACCEPT, "application/cbor".parse().unwrap());
    headers.append(header::ACCEPT, "application/vnd.kubernetes.protobuf".parse().unwrap());
    assert_eq!(Encoding::for_errors(&headers), Encoding::Protobuf);
    assert_eq!(Encoding::for_errors(&HeaderMap::new()), Encoding::Json);
}

#[test]
fn the_encoding_of_a_response_follows_from_its_content_type() {
    for (content_type, expected) in [
        ("application/json", Some(Encoding::Json)),
        ("application/json; charset=utf-8", Some(Encoding::Json)),
        ("application/vnd.kubernetes.protobuf;stream=watch", Some(Encoding::Protobuf)),
        ("text/html", None),
        ("", None),
    ] {
        assert_eq!(Encoding::from_content_type(content_type), expected, "{content_type}");
    }
}

#[test]
fn a_client_that_accepts_only_tables_gets_no_other_form() {
    let only = |accept: &str| accepted(accept, true, &Query::default(), Verb::List).only_tables;
    let (v1, beta) =
        ("application/json;as=Table;g=meta.k8s.io;v=v1", "application/json;as=Table;g=meta.k8s.io;v=v1beta1");
    assert!(only(v1) && only(beta) && only(&format!("{v1},{beta}")));
    for other in ["", "*/*", "application/json", "application/json;as=Table"] {
        assert!(!only(other) && (other.is_empty() || !only(&format!("{v1},{other}"))), "{other}");
    }
    for (accept, upstream) in [(v1, v1), (beta, beta), ("application/json", "application/json")] {
        assert_eq!(negotiated(accept, SERVICES).upstream_accept(true), upstream);
    }
}

#[test]
fn what_the_api_server_refuses_is_not_served() {
    let is_served = |accept: &str, protobuf, verb| accepted(accept, protobuf, &Query::default(), verb).is_served;
    let metadata = |kind: &str| format!("application/json;as={kind};v=v1;g=meta.k8s.io");
    for (accept, list, get) in [
        (String::new(), true, true),
        ("*/*".to_owned(), true, true),
        ("application/json".to_owned(), true, true),
        ("application/yaml".to_owned(), true, true),
        ("text/html,*/*;q=0.8".to_owned(), true, true),
        ("text/html".to_owned(), false, false),
        ("application/*".to_owned(), false, false),
        ("nonsense".to_owned(), false, false),
        (metadata("PartialObjectMetadataList"), true, false),
        (metadata("PartialObjectMetadata"), false, true),
        // It has chosen the first one by then.
        (metadata("PartialObjectMetadata") + ",application/json", false, true),
        (metadata("Nothing") + ",application/json", true, true),
        (metadata("Nothing"), false, false),
        (metadata("Table"), true, true),
        ("application/vnd.kubernetes.protobuf;as=Table;v=v1;g=meta.k8s.io".to_owned(), false, false),
    ] {
        let found = [Verb::List, Verb::Get].map(|verb| is_served(&accept, true, verb));
        assert_eq!(found, [list, get], "{accept}");
    }
    let protobuf = |has_protobuf| is_served("application/vnd.kubernetes.protobuf", has_protobuf, Verb::List);
    assert!(protobuf(true) && !protobuf(false));
}
