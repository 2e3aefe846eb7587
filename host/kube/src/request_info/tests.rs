//! The test cases of `RequestInfoFactory` in kube-apiserver, and spellings of a path that must not bypass a filter.

use super::*;

fn parse(method: &str, uri: &str) -> Result<RequestInfo, RequestInfoError> {
    RequestInfo::parse(&method.parse().unwrap(), &uri.parse().unwrap())
}

fn resource(method: &str, uri: &str) -> ResourceRequest {
    parse(method, uri).unwrap().resource().cloned().unwrap_or_else(|| panic!("{uri} is no resource request"))
}

/// Method, URL, verb, group, version, namespace, resource, subresource, name.
type Case<'a> = (&'a str, &'a str, Verb, &'a str, &'a str, &'a str, &'a str, &'a str, &'a str);

const CASES: &[Case<'_>] = &[
    ("GET", "/api/v1/namespaces", Verb::List, "", "v1", "", "namespaces", "", ""),
    ("GET", "/api/v1/namespaces/other", Verb::Get, "", "v1", "other", "namespaces", "", "other"),
    ("GET", "/api/v1/namespaces/other/pods", Verb::List, "", "v1", "other", "pods", "", ""),
    ("GET", "/api/v1/namespaces/other/pods/foo", Verb::Get, "", "v1", "other", "pods", "", "foo"),
    ("HEAD", "/api/v1/namespaces/other/pods/foo", Verb::Get, "", "v1", "other", "pods", "", "foo"),
    ("GET", "/api/v1/pods", Verb::List, "", "v1", "", "pods", "", ""),
    ("HEAD", "/api/v1/pods", Verb::List, "", "v1", "", "pods", "", ""),
    ("PATCH", "/api/v1/namespaces/new", Verb::Patch, "", "v1", "new", "namespaces", "", "new"),
    ("GET", "/api/v1/proxy/namespaces/other/pods/foo", Verb::Proxy, "", "v1", "other", "pods", "", "foo"),
    ("GET", "/api/v1/proxy/namespaces/other/pods/foo/sub/path", Verb::Proxy, "", "v1", "other", "pods", "", "foo"),
    ("GET", "/api/v1/watch/pods", Verb::Watch, "", "v1", "", "pods", "", ""),
    ("GET", "/api/v1/pods?watch=true", Verb::Watch, "", "v1", "", "pods", "", ""),
    ("GET", "/api/v1/pods?watch=false", Verb::List, "", "v1", "", "pods", "", ""),
    ("GET", "/api/v1/watch/namespaces/other/pods", Verb::Watch, "", "v1", "other", "pods", "", ""),
    ("GET", "/api/v1/watch/namespaces/other/pods/foo", Verb::Watch, "", "v1", "other", "pods", "", "foo"),
    ("GET", "/api/v1/namespaces/other/pods?watch=1", Verb::Watch, "", "v1", "other", "pods", "", ""),
    ("GET", "/api/v1/namespaces/other/pods?watch=0", Verb::List, "", "v1", "other", "pods", "", ""),
    ("GET", "/api/v1/namespaces/other/pods/foo/status", Verb::Get, "", "v1", "other", "pods", "status", "foo"),
    ("GET", "/api/v1/namespaces/other/pods/foo/proxy/subpath", Verb::Get, "", "v1", "other", "pods", "proxy", "foo"),
    ("PUT", "/api/v1/namespaces/other/finalize", Verb::Update, "", "v1", "other", "namespaces", "finalize", "other"),
    ("PUT", "/api/v1/namespaces/other/status", Verb::Update, "", "v1", "other", "namespaces", "status", "other"),
    ("PATCH", "/api/v1/namespaces/other/pods/foo", Verb::Patch, "", "v1", "other", "pods", "", "foo"),
    ("DELETE", "/api/v1/namespaces/other/pods/foo", Verb::Delete, "", "v1", "other", "pods", "", "foo"),
    ("POST", "/api/v1/namespaces/other/pods", Verb::Create, "", "v1", "other", "pods", "", ""),
    ("DELETE", "/api/v1/nodes", Verb::DeleteCollection, "", "v1", "", "nodes", "", ""),
    ("DELETE", "/api/v1/namespaces", Verb::DeleteCollection, "", "v1", "", "namespaces", "", ""),
    ("DELETE", "/api/v1/namespaces/other/pods", Verb::DeleteCollection, "", "v1", "other", "pods", "", ""),
    ("DELETE", "/apis/ext/v1/namespaces/other/pods", Verb::DeleteCollection, "ext", "v1", "other", "pods", "", ""),
    ("POST", "/apis/ext/v1/namespaces/other/pods", Verb::Create, "ext", "v1", "other", "pods", "", ""),
    ("POST", "/apis/ext/v1beta3/namespaces/other/pods", Verb::Create, "ext", "v1beta3", "other", "pods", "", ""),
    ("GET", "/apis/group/version/resource/name/sub", Verb::Get, "group", "version", "", "resource", "sub", "name"),
    ("GET", "/apis/batch/v1/job", Verb::List, "batch", "v1", "", "job", "", ""),
];

#[test]
fn requests_are_parsed_as_the_api_server_parses_them() {
    for (method, url, verb, group, version, namespace, name_of_resource, subresource, name) in CASES {
        let read = resource(method, url);
        let got = (
            read.verb,
            read.resource.group.as_str(),
            read.version.as_str(),
            read.namespace.as_deref().unwrap_or_default(),
            read.resource.resource.as_str(),
            read.subresource.as_deref().unwrap_or_default(),
            read.name.as_deref().unwrap_or_default(),
        );
        assert_eq!(
            got,
            (*verb, *group, *version, *namespace, *name_of_resource, *subresource, *name),
            "{method} {url}"
        );
    }
}

#[test]
fn paths_that_name_no_resource_are_non_resource_requests() {
    for path in [
        "/",
        "/api",
        "/api/",
        "/api/version",
        "/api/version/",
        "/apis",
        "/apis/group",
        "/apis/group/version",
        "/apis/group/version/",
        "/apis/version/resource",
        "/badprefix/version/resource",
        "/healthz",
        "/openapi/v3",
    ] {
        assert_eq!(parse("GET", path).unwrap().kind, RequestKind::NonResource, "{path}");
    }
}

#[test]
fn any_first_value_of_watch_except_false_and_zero_makes_a_watch() {
    for (query, verb) in [
        ("watch", Verb::Watch),
        ("watch=", Verb::Watch),
        ("watch=yes", Verb::Watch),
        ("watch=FALSE", Verb::List),
        ("watch=0&watch=1", Verb::List),
        ("watch=1&watch=0", Verb::Watch),
        ("%77atch=true", Verb::Watch),
        ("a;watch=true", Verb::List),
        ("watch=%zz", Verb::List),
        ("Watch=true", Verb::List),
    ] {
        assert_eq!(resource("GET", &format!("/api/v1/pods?{query}")).verb, verb, "{query}");
    }
    assert_eq!(resource("GET", "/api/v1/namespaces/a/pods/b?watch=true").verb, Verb::Get);
}

#[test]
fn what_is_authorized_is_what_the_api_server_authorizes() {
    let both = "fieldSelector=metadata.name%3Dx&labelSelector=a";
    for (method, url, name, field, label) in [
        ("GET", format!("/api/v1/pods?{both}"), Some("x"), Some("metadata.name=x"), Some("a")),
        ("GET", format!("/api/v1/pods?watch=1&{both}"), Some("x"), Some("metadata.name=x"), Some("a")),
        ("DELETE", format!("/api/v1/pods?{both}"), None, Some("metadata.name=x"), Some("a")),
        ("POST", format!("/api/v1/pods?{both}"), None, None, None),
        ("GET", format!("/api/v1/namespaces/a/pods/b?{both}"), Some("b"), None, None),
        ("GET", format!("/api/v1/watch/namespaces/a/pods/b?{both}"), Some("b"), None, None),
        ("GET", format!("/api/v1/watch/pods?{both}"), None, None, None),
        ("GET", format!("/api/v1/pods?limit=x&{both}"), None, Some("metadata.name=x"), Some("a")),
        ("GET", "/api/v1/pods?fieldSelector=metadata.name%3Da%2Fb".to_owned(), None, Some("metadata.name=a/b"), None),
        ("GET", "/api/v1/pods?fieldSelector=metadata.name%3D".to_owned(), None, Some("metadata.name="), None),
        ("GET", "/api/v1/pods?fieldSelector=&labelSelector=".to_owned(), None, None, None),
    ] {
        let read = resource(method, &url);
        assert_eq!(
            (read.authorized_name(), read.field_selector(), read.label_selector()),
            (name, field, label),
            "{url}"
        );
    }
}

#[test]
fn the_name_of_a_list_or_a_watch_selects_it() {
    let fields = |url: &str| resource("GET", url).options.map(|options| options.fields.to_string());
    assert_eq!(fields("/api/v1/watch/namespaces/a/pods/b").as_deref(), Ok("metadata.name=b"));
    assert_eq!(fields("/api/v1/watch/namespaces/a").as_deref(), Ok("metadata.name=a"));
    assert_eq!(
        fields("/api/v1/watch/namespaces/a/pods/b?fieldSelector=metadata.name%3Db").as_deref(),
        Ok("metadata.name=b")
    );
    assert_eq!(fields("/api/v1/namespaces/a/pods?fieldSelector=metadata.name%3Db").as_deref(), Ok("metadata.name=b"));
    for other in ["metadata.name%3Dc", "spec.nodeName%3Dn"] {
        let refused = fields(&format!("/api/v1/watch/namespaces/a/pods/b?fieldSelector={other}"));
        assert_eq!(refused.unwrap_err().parameter, "fieldSelector", "{other}");
    }
}

#[test]
fn a_read_that_the_server_refuses_has_no_options() {
    for (url, parameter) in [
        ("/api/v1/pods?limit=x", "limit"),
        ("/api/v1/pods?timeoutSeconds=x", "timeoutSeconds"),
        ("/api/v1/pods?watch=1&timeoutSeconds=9223372036854775807", "timeoutSeconds"),
        ("/api/v1/pods?sendInitialEvents=true", "sendInitialEvents"),
        ("/api/v1/pods?watch=1&continue=x", "continue"),
        ("/api/v1/namespaces?fieldSelector=metadata.namespace%3Da", "fieldSelector"),
        ("/api/v1/services?fieldSelector=spec.nodeName%3Da", "fieldSelector"),
        ("/api/v1/services?fieldSelector=metadata.name%21%3D%3Done", "fieldSelector"),
        ("/api/v1/services?labelSelector=a%3Db%3Dc", "labelSelector"),
        ("/api/v1/services?resourceVersion=x", "resourceVersion"),
        ("/api/v1/namespaces/a/services/b?export=1", "export"),
    ] {
        assert_eq!(resource("GET", url).options.unwrap_err().parameter, parameter, "{url}");
    }
    assert!(resource("GET", "/api/v1/services?fieldSelector=metadata.name%3Do%0Ae").options.is_ok());
    assert!(resource("GET", "/api/v1/namespaces/a/services/b?limit=x").options.is_ok(), "a get has no limit");
}

#[test]
fn ambiguous_paths_are_rejected() {
    for (path, why) in [
        ("/api/v1//pods", RequestInfoError::EmptySegment),
        ("//api/v1/pods", RequestInfoError::EmptySegment),
        ("/api/v1/pods//", RequestInfoError::EmptySegment),
        ("/api/v1/./pods", RequestInfoError::DotSegment),
        ("/healthz/../api/v1/pods", RequestInfoError::DotSegment),
        ("/api/v1/%2e%2e/pods", RequestInfoError::DotSegment),
        ("/api/v1/namespaces/a%2Fpods", RequestInfoError::EncodedSlash),
        ("/api/v1/namespaces/a/pods/b/proxy/%2e%2e/x", RequestInfoError::DotSegment),
        ("/api/v1/p%ffods", RequestInfoError::NotText),
        ("/api/v1/p%00ods", RequestInfoError::NotText),
        ("/api/v1/p%zods", RequestInfoError::BadEscape),
        ("/api/v1/watch", RequestInfoError::NoResource),
        (&format!("/api/v1/pods?{}", "&".repeat(10_000)), RequestInfoError::TooManyParameters),
    ] {
        assert_eq!(parse("GET", path), Err(why), "{path}");
    }
}

#[test]
fn the_normalized_path_and_query_are_forwarded() {
    for (sent, forwarded) in [
        ("/api/v1/%70ods?%77atch=true", "/api/v1/pods?watch=true"),
        ("/api/v1/pods/?limit=500", "/api/v1/pods?limit=500"),
        ("/api/v1/pods?a;b&labelSelector=a%3Db,c", "/api/v1/pods?labelSelector=a%3Db%2Cc"),
        ("/api/v1/pods?watch", "/api/v1/pods?watch="),
        ("/logs/", "/logs/"),
        ("/", "/"),
        (
            "/api/v1/namespaces/a/pods/b/exec?command=sh&command=-c",
            "/api/v1/namespaces/a/pods/b/exec?command=sh&command=-c",
        ),
        ("/api/v1/namespaces/a/services/https:b:/proxy/", "/api/v1/namespaces/a/services/https:b:/proxy/"),
        (
            "/api/v1/namespaces/a/services/b/proxy/x//y%2Fz/?q=a;b",
            "/api/v1/namespaces/a/services/b/proxy/x//y%2Fz/?q=a;b",
        ),
    ] {
        assert_eq!(parse("GET", sent).unwrap().forward.as_str(), forwarded, "{sent}");
    }
}

#[test]
fn a_name_like_the_proxy_subresource_does_not_change_the_resource() {
    let read = resource("GET", "/api/v1/watch/namespaces/proxy/pods");
    assert_eq!((read.verb, read.resource.resource.as_str()), (Verb::Watch, "pods"));
    assert_eq!(parse("GET", "/api/v1/watch/namespaces/proxy//pods"), Err(RequestInfoError::EmptySegment));
    let read = resource("GET", "/api/v1/namespaces/a/status/x/proxy/pods");
    assert_eq!((read.resource.resource.as_str(), read.subresource.as_deref()), ("namespaces", Some("status")));
}

#[test]
fn list_and_watch_of_a_collection_share_its_path() {
    for url in ["/apis/apps/v1/namespaces/a/deployments", "/apis/apps/v1/watch/namespaces/a/deployments"] {
        assert_eq!(resource("GET", url).collection, "/apis/apps/v1/namespaces/a/deployments");
    }
    assert_eq!(resource("GET", "/api/v1/namespaces/a").collection, "/api/v1/namespaces");
}

#[test]
fn only_subresources_that_return_the_object_match_its_rules() {
    for (name, class) in [
        ("status", Some(VerbClass::Read)),
        ("ephemeralcontainers", Some(VerbClass::Read)),
        ("resize", Some(VerbClass::Read)),
        ("approval", Some(VerbClass::Read)),
        ("finalize", Some(VerbClass::Read)),
        ("log", None),
        ("exec", None),
        ("proxy", None),
        ("scale", None),
    ] {
        assert_eq!(resource("GET", &format!("/api/v1/namespaces/a/pods/b/{name}")).verb_class(), class, "{name}");
    }
}

#[test]
fn the_client_component_is_the_first_token_of_the_user_agent() {
    for (agent, name) in [
        ("kube-proxy/v1.34.0 (linux/amd64) kubernetes/abc", "kube-proxy"),
        ("CoreDNS/1.12", "CoreDNS"),
        ("curl", "curl"),
        ("", ""),
        ("my agent/1", "my"),
    ] {
        let headers = HeaderMap::from_iter([(header::USER_AGENT, agent.parse().unwrap())]);
        assert_eq!(client_component(&headers), name);
    }
    assert_eq!(client_component(&HeaderMap::new()), "");
    let named = |length| HeaderMap::from_iter([(header::USER_AGENT, "a".repeat(length).parse().unwrap())]);
    assert_eq!(client_component(&named(MAX_COMPONENT)).len(), MAX_COMPONENT);
    assert_eq!(client_component(&named(MAX_COMPONENT + 1)), "");
}
