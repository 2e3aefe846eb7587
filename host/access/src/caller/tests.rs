//! Keys, owners and claims of credentials.

use super::*;

fn caller(identity: Identity, pairs: &[(&'static str, &str)]) -> Caller {
    let headers = pairs.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect();
    Caller::of(identity, &headers)
}

fn account(user: &str, pod: &str) -> Arc<Account> {
    Arc::new(Account { user: user.to_owned(), uid: "u".to_owned(), pod: pod.to_owned() })
}

#[test]
fn each_user_has_a_key_of_its_own() {
    let key = |identity, pairs: &[(&'static str, &str)]| caller(identity, pairs).key().clone();
    let users = [
        key(Identity::Client, &[]),
        key(Identity::Node, &[]),
        key(Identity::Client, &[("authorization", "Bearer a")]),
        key(Identity::Client, &[("authorization", "Bearer b")]),
        key(Identity::Client, &[("authorization", "Bearer a"), ("impersonate-user", "bob")]),
        key(Identity::Impersonated, &[("impersonate-user", "bob")]),
        key(Identity::Impersonated, &[("impersonate-user", "bob"), ("impersonate-group", "a")]),
    ];
    let distinct: std::collections::BTreeSet<_> = users.iter().collect();
    assert_eq!(distinct.len(), users.len());
    assert_eq!(users[0], key(Identity::Client, &[("accept", "application/json")]));
    assert_eq!(users[1], key(Identity::Node, &[("impersonate-user", "bob")]));
    // As the API server reads them: a 401 ends all spellings of a token.
    assert_eq!(users[0], key(Identity::Client, &[("authorization", "Bearer  a")]));
    let protocol = ("sec-websocket-protocol", "v4, base64url.bearer.authorization.k8s.io.YQ");
    for spelling in
        [&[("authorization", "bearer a b")][..], &[("connection", "upgrade"), ("upgrade", "websocket"), protocol]]
    {
        assert_eq!(users[2], key(Identity::Client, spelling));
    }
}

/// Which of them counts only the API server knows.
#[test]
fn two_tokens_are_neither_that_of_one_of_them_nor_none() {
    let upgrade = [("connection", "upgrade"), ("upgrade", "websocket")];
    let protocol = |token: &str| format!("v4, base64url.bearer.authorization.k8s.io.{}", URL_SAFE_NO_PAD.encode(token));
    let expiring = |at: u64| format!("e30.{}.x", URL_SAFE_NO_PAD.encode(format!(r#"{{"exp":{at}}}"#)));
    let of = |bearer: Option<&str>, second: Option<&str>| {
        let (bearer, second) = (bearer.map(|token| format!("Bearer {token}")), second.map(protocol));
        let bearer = bearer.iter().map(|value| ("authorization", value.as_str()));
        let second = second.iter().map(|value| ("sec-websocket-protocol", value.as_str()));
        caller(Identity::Client, &upgrade.into_iter().chain(bearer).chain(second).collect::<Vec<_>>())
    };
    let (early, late) = (expiring(1_700_000_000), expiring(1_800_000_000));
    let both = of(Some(&late), Some(&early));
    let others = [
        of(None, None),
        of(Some(&late), None),
        of(None, Some(&early)),
        of(Some(&early), Some(&late)),
        of(Some(&late), Some("x")),
    ];
    assert!(others.iter().all(|other| other.key() != both.key()));
    assert_eq!((both.has_token(), both.expires()), (false, others[2].expires()));
}

#[test]
fn a_claim_names_nobody_and_only_shortens() {
    let token = |claims: &str| format!("Bearer e30.{}.x", URL_SAFE_NO_PAD.encode(claims));
    let of = |value: &str| caller(Identity::Client, &[("authorization", value)]);
    let named = of(&token(r#"{"exp":1700000000,"iss":"k","sub":"system:serviceaccount:kube-system:kube-proxy"}"#));
    assert_eq!(named.expires(), Some(SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000)));
    assert_eq!((named.reader(), &named.owner()), (None, named.key()));
    assert!(!named.is_node_component(&["kube-system/kube-proxy".to_owned()]));
    for bad in ["opaque", "Bearer opaque", "Bearer a.b.c", "Basic e30.e30.x"] {
        assert_eq!(of(bad).expires(), None, "{bad}");
    }
    for bad in [r#"{"exp":-1}"#, r#"{"exp":1e300}"#, r#"{"exp":"soon"}"#, "{}"] {
        assert_eq!(of(&token(bad)).expires(), None, "{bad}");
    }
}

#[test]
fn an_account_is_an_owner_whatever_its_token_and_its_pod() {
    let of = |token: &str, user: &str, pod: &str| {
        let caller = caller(Identity::Client, &[("authorization", token)]);
        caller.set_account(account(user, pod));
        caller
    };
    let (one, renewed, other) = (of("Bearer a", "u", "p"), of("Bearer b", "u", "p"), of("Bearer c", "u", "q"));
    assert_eq!(one.owner(), renewed.owner());
    assert_eq!((one.owner(), one.reader()), (other.owner(), other.reader()));
    assert_ne!(one.owner(), of("Bearer d", "v", "p").owner());
    let root = caller(Identity::Client, &[("authorization", "Bearer a"), ("impersonate-user", "u")]);
    root.set_account(account("u", ""));
    assert_eq!((root.reader(), root.token()), (None, None), "it only says that it is u");
    let other = caller(Identity::Client, &[("authorization", "Bearer a"), ("impersonate-user", "v")]);
    assert_eq!(root.owner(), other.owner(), "one share, whomever it impersonates");
    assert_ne!(root.owner(), one.owner());
}

#[test]
fn components_of_the_node_are_known_by_what_the_api_server_names() {
    let named = ["kube-system/kube-proxy".to_owned()];
    let account = |user: &str| {
        let caller = caller(Identity::Client, &[("authorization", "Bearer a")]);
        caller.set_account(account(user, ""));
        caller.is_node_component(&named)
    };
    assert!(account("system:serviceaccount:kube-system:kube-proxy"));
    assert!(!account("system:serviceaccount:default:kube-proxy") && !account("kube-proxy"));
    assert!(caller(Identity::Node, &[]).is_node_component(&[]));
    let groups = [("impersonate-user", "system:node:a"), ("impersonate-group", "system:nodes")];
    assert!(caller(Identity::Impersonated, &groups).is_node_component(&[]));
    assert!(!caller(Identity::Impersonated, &groups[..1]).is_node_component(&[]));
}

#[test]
fn a_credential_is_never_printed() {
    let caller = caller(Identity::Client, &[("authorization", "Bearer secret")]);
    assert!(!format!("{caller:?}").contains("secret"));
}

#[test]
fn a_token_in_a_header_or_sub_protocol_is_a_credential() {
    let headers = |name: &str, value: &str| {
        HeaderMap::from_iter([(name.parse::<http::HeaderName>().unwrap(), value.parse().unwrap())])
    };
    assert!(has_credential(&headers("authorization", "Bearer a")));
    let browser = "v4.channel.k8s.io, base64url.bearer.authorization.k8s.io.YQ";
    assert!(has_credential(&headers("sec-websocket-protocol", browser)));
    assert!(has_credential(&headers("authorization", "nonsense")), "the node credential is for who sends none");
    assert!(!has_credential(&HeaderMap::new()));
}
