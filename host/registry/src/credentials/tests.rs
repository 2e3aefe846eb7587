use super::*;

fn auth(user: &str) -> Value {
    serde_json::json!({"auth": STANDARD.encode(format!("{user}:secret-{user}"))})
}

fn parsed(auths: &Value) -> Credentials {
    Credentials::parse(&serde_json::json!({"auths": auths}).to_string()).unwrap()
}

/// The user for a repository.
fn user(credentials: &Credentials, host: &str, repository: &str) -> Option<String> {
    let basic = credentials.login(host, repository).basic?;
    assert_eq!(basic.password, format!("secret-{}", basic.user));
    Some(basic.user)
}

#[test]
fn the_longest_place_wins_and_docker_has_aliases() {
    let text = serde_json::json!({"auths": {
        "registry.example": auth("all"),
        "registry.example/team": {"username": "team", "password": "secret-team"},
        "https://index.docker.io/v1/": auth("docker"),
        "helped.example": {},
    }, "credsStore": "desktop"});
    let credentials = Credentials::parse(&text.to_string()).unwrap();
    for (host, repository, expected) in [
        ("registry.example", "a", Some("all")),
        ("registry.example", "team/a", Some("team")),
        ("registry.example", "team", Some("team")),
        ("registry.example", "teams/a", Some("all")),
        ("docker.io", "acme/a", Some("docker")),
        ("registry.example:5000", "a", None),
        ("helped.example", "a", None),
    ] {
        assert_eq!(user(&credentials, host, repository).as_deref(), expected, "{host}/{repository}");
    }
    assert_eq!(
        format!("{:?}", credentials.login("registry.example", "a")),
        "Login { entry: \"registry.example\", .. }"
    );
}

/// The cases of kubelet's own test of the rules, `TestURLsMatch`, and of `TestDockerKeyringForGlob`.
#[test]
fn entries_match_as_kubelet_matches_them() {
    for (key, place, expected) in [
        ("*.kubernetes.io", "prefix.kubernetes.io/a", true),
        ("prefix.*.io", "prefix.kubernetes.io/a", true),
        ("prefix.kubernetes.*", "prefix.kubernetes.io/a", true),
        ("*-good.kubernetes.io", "prefix-good.kubernetes.io/a", true),
        ("*.kubernetes.io/blah", "prefix.kubernetes.io/blah", true),
        ("prefix.*.io/foo", "prefix.kubernetes.io/foo/bar", true),
        ("*.kubernetes.io:1111/blah", "prefix.kubernetes.io:1111/blah", true),
        ("prefix.*.io:1111/foo", "prefix.kubernetes.io:1111/foo/bar", true),
        ("*.kubernetes.io", "kubernetes.io/a", false),
        ("*.*.kubernetes.io", "prefix.kubernetes.io/a", false),
        ("*.*.kubernetes.io", "kubernetes.io/a", false),
        ("kubernetes.io", "kubernetes.com/a", false),
        ("k*.io", "quay.io/a", false),
        ("*.kubernetes.io:1234/blah", "prefix.kubernetes.io:1111/blah", false),
        ("prefix.*.io/foo", "prefix.kubernetes.io:1111/foo/bar", false),
        ("https://*.docker.io/path", "prefix.docker.io/path/subpath", true),
        ("https://*.docker.io/v1/", "prefix.docker.io/path", true),
        ("https://*.docker.io/v2/", "prefix.docker.io/path", true),
        ("*.docker.io:1111", "prefix.docker.io:1111/path", true),
        ("https://suffix.*.io", "prefix.docker.io/path", false),
        ("*", "kubernetes.io/a", false),
        ("a*b*c.io", "axbxbc.io/a", true),
        ("registry.example/team", "registry.example/teams/a", true),
        ("registry.example/v1beta", "registry.example/a", false),
    ] {
        let (host, repository) = place.split_once('/').unwrap();
        let found = user(&parsed(&serde_json::json!({key: auth("a")})), host, repository);
        assert_eq!(found.is_some(), expected, "{key}: {place}");
    }
}

#[test]
fn the_entry_without_a_wildcard_comes_first_and_the_others_are_named() {
    let auths = serde_json::json!({
        "*.example/team": auth("glob"), "registry.example": auth("exact"), "registry.*": {}, "*.*": auth("any"),
    });
    let login = parsed(&auths).login("registry.example", "team/a");
    assert_eq!(login.basic.as_ref().unwrap().user, "exact");
    assert_eq!(
        login.unused(Some(Part::Basic)).unwrap(),
        "\"*.example/team\", which is for it too; \"*.*\", which is for it too; \"registry.*\", which has no credential"
    );
    assert_eq!(parsed(&auths).login("other.example", "a").basic.unwrap().user, "any");
}

#[test]
fn tokens_are_read_and_what_is_not_used_is_named() {
    // As `az acr login` writes it.
    let azure = serde_json::json!({"acr.example": {
        "auth": STANDARD.encode("00000000-0000-0000-0000-000000000000:"), "identitytoken": "secret",
    }});
    let login = parsed(&azure).login("acr.example", "a");
    assert_eq!((login.basic.is_none(), login.identity_token.as_deref()), (true, Some("secret")));
    assert_eq!(login.unused(Some(Part::IdentityToken)), None);
    let all = serde_json::json!({"r.example": {
        "auth": STANDARD.encode("a:b"), "username": "c", "password": "d", "identitytoken": "secret", "registrytoken": "secret",
        "email": "a@example.com", "other": "secret",
    }});
    let login = parsed(&all).login("r.example", "a");
    assert_eq!(login.names(), "registrytoken and identitytoken and user name and password");
    assert_eq!(
        login.unused(Some(Part::RegistryToken)).unwrap(),
        "identitytoken of \"r.example\"; user name and password of \"r.example\"; \"other\" of \"r.example\"; username and \
         password of \"r.example\", as its auth is another"
    );
}

#[test]
fn helpers_are_named_where_there_is_no_credential() {
    let text = r#"{"auths": {"a.example": {}}, "credHelpers": {"b.example": "ecr-login"}, "credsStore": "desktop"}"#;
    let credentials = Credentials::parse(text).unwrap();
    let unused = |host: &str| credentials.login(host, "a").unused(None).unwrap();
    assert_eq!(
        unused("a.example"),
        "\"a.example\", which has no credential; the credential helper \"desktop\": Weir runs none"
    );
    assert_eq!(unused("b.example"), "the credential helper \"ecr-login\": Weir runs none");
}

#[test]
fn the_older_format_of_pull_secrets_is_read() {
    let text = serde_json::json!({"registry.example": auth("a"), "https://localhost:5000": auth("b")}).to_string();
    let credentials = Credentials::parse(&text).unwrap();
    assert_eq!(user(&credentials, "registry.example", "x").as_deref(), Some("a"));
    assert_eq!(user(&credentials, "localhost:5000", "x").as_deref(), Some("b"));
    for text in ["{}", r#"{"auths": null}"#, r#"{"HttpHeaders": {}, "credsStore": ""}"#] {
        let login = Credentials::parse(text).unwrap().login("registry.example", "x");
        assert!(login.is_empty() && login.unused(None).is_none(), "{text}");
    }
}

#[test]
fn messages_keep_secrets() {
    for text in [
        r#"{"auths": {"a.example": {"auth": "c2VjcmV0"}}}"#,
        r#"{"auths": {"a.example": "secret"}}"#,
        r#"{"auths": "secret"}"#,
        r#"{"a.example": "secret"}"#,
        r#"{"kind": "Secret", "data": {".dockercfg": "secret"}}"#,
        "secret",
    ] {
        let error = Credentials::parse(text).unwrap_err();
        assert!(!error.contains("secret") && !error.contains("c2Vj"), "{error}");
    }
}
