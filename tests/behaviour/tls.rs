//! TLS on both sides: the HTTPS port and its certificate, the API server's proof, credentials that are rotated.

use http::{Method, StatusCode, Version};
use weir_apiserver::ApiServer;
use weir_tests::client::{Client, PATIENCE, whole};
use weir_tests::daemon::{Daemon, Setup, replace};
use weir_tests::pki::{Authority, Pair};

use super::NO_LOAD_BALANCERS;

const SERVICES: &str = "/api/v1/services";

async fn secure_edge(pair: &Pair, clients: Option<&Authority>) -> ApiServer {
    let mut server = ApiServer::builder().tls(pair.certificate.as_bytes(), pair.key.as_bytes());
    if let Some(clients) = clients {
        server = server.client_ca(clients.pem());
    }
    let server = server.start().await.unwrap();
    server.store().load(include_str!("../demo/cluster.yaml")).unwrap();
    server
}

/// Waits for a request of the daemon or through it that fulfils a condition.
async fn asked(server: &ApiServer, condition: impl Fn(&weir_apiserver::Recorded) -> bool) {
    let mut count = server.request_count();
    let found = async {
        while !server.requests().iter().any(&condition) {
            count.changed().await.unwrap();
        }
    };
    tokio::time::timeout(PATIENCE, found).await.expect("such a request in time");
}

fn der(pair: &Pair) -> Vec<u8> {
    use rustls::pki_types::pem::PemObject as _;
    rustls::pki_types::CertificateDer::from_pem_slice(pair.certificate.as_bytes()).unwrap().to_vec()
}

#[tokio::test]
async fn the_https_port_filters_and_speaks_http_2_where_the_client_does() {
    let ca = Authority::new("weir");
    let server = super::edge().await;
    let weir = Setup::new(server.url())
        .filters(NO_LOAD_BALANCERS)
        .bundled("discardcloudservice")
        .tls(&ca.server())
        .start_ready()
        .await;
    let client = Client::trusting(&weir.secure_url().await, "kube-proxy", Some(ca.pem()), None);
    let answer = client.send(Method::GET, SERVICES, "").await;
    assert_eq!(answer.version(), Version::HTTP_2);
    let list = whole(answer).await.unwrap().json();
    assert_eq!(weir_tests::client::names(&list), ["dashboard", "kubernetes", "web"]);
    let mut events = client.watch(&format!("{SERVICES}?watch=true")).await;
    assert!(events.next_named().await.starts_with("ADDED"));
    let stranger = Client::trusting(&weir.secure_url().await, "kube-proxy", Some(Authority::new("x").pem()), None);
    assert!(stranger.try_get(SERVICES).await.unwrap_err().contains("UnknownIssuer"));
}

#[tokio::test]
async fn a_new_certificate_is_shown_without_a_restart_and_a_broken_one_is_told_and_left() {
    let (old, new) = (Authority::new("old"), Authority::new("new"));
    let server = super::edge().await;
    let weir = Setup::new(server.url()).filters("filters: []").tls(&old.server()).start_ready().await;
    let url = weir.secure_url().await;
    let by = |ca: &Authority| Client::trusting(&url, "tool", Some(ca.pem()), None);
    let open = by(&old);
    assert_eq!(open.get(SERVICES).await.status, 200);
    // Until the first of the year 4096, as our authority has it.
    assert_eq!(weir.metric("weir_serving_certificate_expiry_seconds").await, 67_090_118_400.0);
    replace(&weir.path("tls.crt"), b"no certificate");
    let line = weir.logged("cannot be used: the last good one stays").await.to_string();
    assert!(line.contains("--tls-cert-file") && line.contains("tls.crt"), "{line}");
    assert_eq!(by(&old).get(SERVICES).await.status, 200);
    let from = weir.log_length();
    let pair = new.server();
    replace(&weir.path("tls.key"), pair.key.as_bytes());
    replace(&weir.path("tls.crt"), pair.certificate.as_bytes());
    weir.logged_after(from, "has changed").await;
    assert_eq!(by(&new).get(SERVICES).await.status, 200);
    assert!(by(&old).try_get(SERVICES).await.is_err());
    assert_eq!(open.get(SERVICES).await.status, 200, "an open connection stays");
}

#[tokio::test]
async fn an_api_server_that_does_not_prove_itself_is_a_status_that_says_why() {
    let (ca, other) = (Authority::new("cluster"), Authority::new("other"));
    for (pair, trusted, word) in [(ca.server(), &other, "UnknownIssuer"), (ca.expired_server(), &ca, "xpired")] {
        let server = secure_edge(&pair, None).await;
        let weir = Setup::new(server.url())
            .filters("filters: []")
            .file("--certificate-authority", "ca.crt", trusted.pem())
            .start_ready()
            .await;
        let answer = weir.client("tool").get(SERVICES).await;
        assert_eq!(answer.status, StatusCode::BAD_GATEWAY, "{}", answer.text());
        let message = answer.json()["message"].as_str().unwrap().to_owned();
        for word in [word, "ca.crt", server.url().trim_start_matches("https://")] {
            assert!(message.contains(word), "no {word:?} in {message}");
        }
        // It is mended without a restart: another CA file, or another certificate of the server.
        if word == "UnknownIssuer" {
            replace(&weir.path("ca.crt"), ca.pem().as_bytes());
            weir.logged("credentials were renewed").await;
            assert_eq!(weir.client("tool").get(SERVICES).await.status, 200);
        }
    }
}

#[tokio::test]
async fn a_rotated_client_certificate_and_token_travel_from_then_on() {
    let (ca, clients) = (Authority::new("cluster"), Authority::new("clients"));
    let server = secure_edge(&ca.server(), Some(&clients)).await;
    let (first, second) = (clients.client("weir", "a"), clients.client("weir", "b"));
    let weir = Setup::new(server.url())
        .file("--certificate-authority", "ca.crt", ca.pem())
        .file("--client-certificate", "client.crt", &first.certificate)
        .file("--client-key", "client.key", &first.key)
        .file("--token-file", "token", "one")
        .start_ready()
        .await;
    let shows = |pair: &Pair, token: &'static str| {
        let der = der(pair);
        move |request: &weir_apiserver::Recorded| {
            request.certificate.as_deref() == Some(&der) && request.header("authorization") == format!("Bearer {token}")
        }
    };
    asked(&server, shows(&first, "one")).await;
    // Not even for a moment is there a pair that goes together while they are replaced one by one.
    replace(&weir.path("client.key"), second.key.as_bytes());
    weir.logged("the last good ones stay").await;
    replace(&weir.path("client.crt"), second.certificate.as_bytes());
    replace(&weir.path("token"), b"two");
    asked_by_reload(&weir, &server, shows(&second, "two")).await;
    // A token file that vanishes: the last good token goes on.
    let from = weir.log_length();
    std::fs::remove_file(weir.path("token")).unwrap();
    let (_, line) = weir.logged_after(from, "the last good ones stay").await;
    assert!(line.to_string().contains("--token-file") && line.to_string().contains("token"), "{line}");
    server.clear_requests();
    asked_by_reload(&weir, &server, shows(&second, "two")).await;
}

/// Makes the daemon ask for its ConfigMap again by breaking its watches.
async fn asked_by_reload(weir: &Daemon, server: &ApiServer, condition: impl Fn(&weir_apiserver::Recorded) -> bool) {
    let mut count = server.request_count();
    let found = async {
        while !server.requests().iter().any(&condition) {
            server.close_watches(weir_apiserver::End::Clean);
            let _ = tokio::time::timeout(std::time::Duration::from_millis(200), count.changed()).await;
        }
    };
    tokio::time::timeout(PATIENCE, found).await.unwrap_or_else(|_| panic!("{}", weir.log_text()));
}

#[tokio::test]
async fn a_clients_token_never_travels_over_a_connection_with_a_client_certificate() {
    let (ca, clients) = (Authority::new("cluster"), Authority::new("clients"));
    let server = secure_edge(&ca.server(), Some(&clients)).await;
    let (own, node) = (clients.client("weir", "weir"), clients.client("system:node:edge-a", "system:nodes"));
    let setup = Setup::new(server.url())
        .file("--certificate-authority", "ca.crt", ca.pem())
        .file("--client-certificate", "client.crt", &own.certificate)
        .file("--client-key", "client.key", &own.key)
        .filters(NO_LOAD_BALANCERS)
        .bundled("discardcloudservice");
    let kubeconfig = kubeconfig(
        server.url(),
        ca.pem(),
        &format!("client-certificate-data: {}, client-key-data: {}", base64(&node.certificate), base64(&node.key)),
    );
    let weir = setup.file("--node-kubeconfig", "node.yaml", &kubeconfig).start_ready().await;
    server.clear_requests();
    let client = weir.client("tool");
    for path in [SERVICES, "/api/v1/nodes", "/version"] {
        assert_eq!(client.get(path).await.status, 200);
        assert_eq!(client.clone().with("authorization", "Bearer mine").get(path).await.status, 200);
    }
    for (number, request) in
        server.requests().iter().filter(|request| request.header("user-agent").starts_with("tool")).enumerate()
    {
        match number % 2 {
            0 => {
                assert_eq!(request.certificate.as_deref(), Some(&der(&node)[..]), "{}", request.target());
                assert_eq!(request.header("authorization"), "");
            }
            _ => {
                assert_eq!(request.certificate, None, "{}", request.target());
                assert_eq!(request.header("authorization"), "Bearer mine");
            }
        }
    }
    assert_eq!(server.requests().iter().filter(|request| request.header("user-agent").starts_with("tool")).count(), 6);
}

fn base64(text: &str) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(text)
}

fn kubeconfig(server: &str, ca: &str, user: &str) -> String {
    format!(
        "{{apiVersion: v1, kind: Config, current-context: c,
          clusters: [{{name: a, cluster: {{server: \"{server}\", certificate-authority-data: {}}}}}],
          users: [{{name: u, user: {{{user}}}}}], contexts: [{{name: c, context: {{cluster: a, user: u}}}}]}}",
        base64(ca)
    )
}

#[tokio::test]
async fn a_kubeconfig_is_taken_in_all_its_forms() {
    let (ca, clients) = (Authority::new("cluster"), Authority::new("clients"));
    let pair = clients.client("weir", "weir");
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let plugin = file(
        "plugin.sh",
        r#"echo '{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"token":"from-plugin"}}'"#,
    );
    let issued = serde_json::json!({
        "apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential",
        "status": {"clientCertificateData": pair.certificate, "clientKeyData": pair.key},
    });
    let issuer = file("issuer.sh", &format!("cat <<'END'\n{issued}\nEND\n"));
    let (certificate, key) = (file("a.crt", &pair.certificate), file("a.key", &pair.key));
    let token = file("token", "from-file");
    let (data, key_data) = (base64(&pair.certificate), base64(&pair.key));
    for (user, expected) in [
        (format!("client-certificate-data: {data}, client-key-data: {key_data}"), None),
        (format!("client-certificate: {certificate}, client-key: {key}"), None),
        ("token: embedded".to_owned(), Some("Bearer embedded")),
        (format!("tokenFile: {token}"), Some("Bearer from-file")),
        (
            format!(
                "exec: {{apiVersion: client.authentication.k8s.io/v1, command: sh, args: [{plugin}], interactiveMode: Never}}"
            ),
            Some("Bearer from-plugin"),
        ),
        (
            format!(
                "exec: {{apiVersion: client.authentication.k8s.io/v1, command: sh, args: [{issuer}], interactiveMode: Never}}"
            ),
            None,
        ),
    ] {
        // One for each: what a daemon asked at its end would count as the next one's.
        let server = secure_edge(&ca.server(), Some(&clients)).await;
        let weir = Setup::new(server.url())
            .without("--server")
            .file("--kubeconfig", "config", &kubeconfig(server.url(), ca.pem(), &user))
            .start_ready()
            .await;
        let requests = server.requests();
        assert!(!requests.is_empty());
        for request in requests {
            match expected {
                Some(token) => assert_eq!(request.header("authorization"), token, "{user}: {}", request.path),
                None => assert_eq!(request.certificate.as_deref(), Some(&der(&pair)[..]), "{user}: {}", request.path),
            }
        }
        drop(weir);
    }
}

/// kube asks a plug-in again for a token only.
#[tokio::test]
async fn a_certificate_that_a_plugin_issues_for_a_time_is_asked_for_again() {
    let (ca, clients) = (Authority::new("cluster"), Authority::new("clients"));
    let server = secure_edge(&ca.server(), Some(&clients)).await;
    let folder = tempfile::tempdir().unwrap();
    let issued = folder.path().join("issued.json");
    let issue = |user: &str, seconds: u64| {
        let pair = clients.client(user, "nodes");
        let ends = jiff::Timestamp::now() + std::time::Duration::from_secs(seconds);
        let credential = serde_json::json!({
            "apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {
                "clientCertificateData": pair.certificate, "clientKeyData": pair.key,
                "expirationTimestamp": ends.to_string(),
            },
        });
        replace(&issued, credential.to_string().as_bytes());
        pair
    };
    let first = issue("first", 10);
    let user = format!(
        "exec: {{apiVersion: client.authentication.k8s.io/v1, command: cat, args: [{}], interactiveMode: Never}}",
        issued.display()
    );
    let weir = Setup::new(server.url())
        .filters("filters: []")
        .file("--certificate-authority", "ca.crt", ca.pem())
        .file("--node-kubeconfig", "config", &kubeconfig(server.url(), ca.pem(), &user))
        .start_ready()
        .await;
    let client = weir.client("kubelet");
    let shown = async || {
        assert_eq!(client.get("/api/v1/nodes").await.status, 200);
        let requests = server.requests();
        let ours = requests.iter().rfind(|request| request.header("user-agent").starts_with("kubelet"));
        ours.unwrap().certificate.clone()
    };
    assert_eq!(shown().await.as_deref(), Some(&der(&first)[..]));
    let second = issue("second", 3600);
    weir.logged("credentials were renewed").await;
    assert_eq!(shown().await.as_deref(), Some(&der(&second)[..]));
}

#[tokio::test]
async fn what_is_to_be_lent_may_come_after_the_start() {
    let ca = Authority::new("cluster");
    let server = secure_edge(&ca.server(), None).await;
    let setup = Setup::new(server.url()).filters("filters: []").file("--certificate-authority", "ca.crt", ca.pem());
    let path = setup.path("kubelet.conf");
    let weir = setup.flag("--node-kubeconfig", &path.display().to_string()).start_ready().await;
    let client = weir.client("kubelet");
    let refused = client.get("/api/v1/nodes").await;
    assert_eq!(refused.status, 503);
    assert!(refused.text().contains("kubelet.conf"), "{}", refused.text());
    assert_eq!(client.clone().with("authorization", "Bearer mine").get("/api/v1/nodes").await.status, 200);
    replace(&path, kubeconfig(server.url(), ca.pem(), "token: kubelets").as_bytes());
    weir.logged("credentials were renewed").await;
    assert_eq!(client.get("/api/v1/nodes").await.status, 200);
    assert_eq!(server.requests().last().unwrap().header("authorization"), "Bearer kubelets");
}

#[tokio::test]
async fn a_client_certificate_is_reviewed_and_impersonated_or_refused() {
    let (ca, clients) = (Authority::new("weir"), Authority::new("clients"));
    let server = super::edge().await;
    server.set_policy(|asked| {
        asked.user.name == "system:node:edge-a"
            && asked.user.groups == ["system:nodes", "system:authenticated"]
            && (asked.resource.as_str(), asked.verb.as_str()) == ("services", "list")
    });
    let token = ("--token-file", "token", "weirs");
    let weir = Setup::new(server.url())
        .filters(NO_LOAD_BALANCERS)
        .bundled("discardcloudservice")
        .file(token.0, token.1, token.2)
        .tls(&ca.server())
        .file("--client-ca-file", "clients.crt", clients.pem())
        .start_ready()
        .await;
    let url = weir.secure_url().await;
    let node = clients.client("system:node:edge-a", "system:nodes");
    let client = Client::trusting(&url, "kubelet", Some(ca.pem()), Some(&node));
    server.clear_requests();
    assert_eq!(client.names(SERVICES).await, ["dashboard", "kubernetes", "web"], "filtered as for all");
    let requests = server.requests();
    assert_eq!(requests[0].path, "/apis/authorization.k8s.io/v1/subjectaccessreviews");
    assert_eq!(requests[0].header("authorization"), "Bearer weirs");
    let list = &requests[1];
    assert_eq!((list.path.as_str(), list.header("authorization")), (SERVICES, "Bearer weirs"));
    assert_eq!(list.header("impersonate-user"), "system:node:edge-a");
    let groups: Vec<_> = list.headers.get_all("impersonate-group").iter().collect();
    assert_eq!(groups, ["system:nodes", "system:authenticated"]);

    // What the API server does not allow is refused before it is sent.
    server.clear_requests();
    for (method, path) in
        [(Method::GET, "/api/v1/secrets"), (Method::DELETE, "/api/v1/namespaces/default/services/web")]
    {
        let answer = whole(client.send(method, path, "").await).await.unwrap();
        assert_eq!((answer.status.as_u16(), answer.json()["reason"].as_str()), (403, Some("Forbidden")), "{path}");
        assert!(answer.text().contains("system:node:edge-a"), "{}", answer.text());
    }
    assert!(server.requests().iter().all(|request| request.path.ends_with("subjectaccessreviews")));

    // It can not be stacked, and a token goes before it.
    let stacked = client.clone().with("impersonate-user", "admin").get(SERVICES).await;
    assert_eq!(stacked.status, 403, "{}", stacked.text());
    server.clear_requests();
    assert_eq!(client.clone().with("authorization", "Bearer mine").get(SERVICES).await.status, 200);
    assert_eq!(server.requests().len(), 1);
    assert_eq!(server.requests()[0].header("authorization"), "Bearer mine");
    assert_eq!(server.requests()[0].header("impersonate-user"), "");

    // Nobody else's certificate opens a connection.
    let stranger = Authority::new("others").client("system:node:edge-a", "system:nodes");
    let refused = Client::trusting(&url, "kubelet", Some(ca.pem()), Some(&stranger)).try_get(SERVICES).await;
    assert!(refused.is_err(), "{refused:?}");

    // Unless it is known what somebody may do, nothing is done; what is known holds for some seconds.
    server.on_request(|request| match request.path.ends_with("subjectaccessreviews") {
        true => weir_apiserver::Action::json(500, "{}"),
        false => weir_apiserver::Action::Serve,
    });
    assert_eq!(client.get("/api/v1/configmaps").await.status, 503);
    assert_eq!(client.get(SERVICES).await.status, 200);
}

#[tokio::test]
async fn a_user_of_a_certificate_is_reviewed_once_for_many_requests_and_a_revoked_right_is_seen() {
    let (ca, clients) = (Authority::new("weir"), Authority::new("clients"));
    let server = super::edge().await;
    let weir = Setup::new(server.url())
        .filters("filters: []")
        .tls(&ca.server())
        .file("--client-ca-file", "clients.crt", clients.pem())
        .start_ready()
        .await;
    let url = weir.secure_url().await;
    let client = |user: &str| Client::trusting(&url, "tool", Some(ca.pem()), Some(&clients.client(user, "g")));
    let (one, other) = (client("one"), client("other"));
    server.clear_requests();
    let reviews = || server.requests().iter().filter(|request| request.path.ends_with("subjectaccessreviews")).count();
    for _ in 0..100 {
        assert_eq!(one.get(SERVICES).await.status, 200);
    }
    assert_eq!(reviews(), 1);
    assert_eq!(other.get(SERVICES).await.status, 200);
    assert_eq!(one.get("/api/v1/nodes").await.status, 200);
    assert_eq!(reviews(), 3, "another user, another resource");
    // The server would refuse at once; here it does not, so that what is seen is the review.
    server.set_policy(|asked| asked.user.name != "one");
    let began = std::time::Instant::now();
    let revoked = async { while one.get(SERVICES).await.status == 200 {} };
    tokio::time::timeout(PATIENCE, revoked).await.expect("the revoked right is seen");
    assert!(began.elapsed() < std::time::Duration::from_secs(12), "{:?}", began.elapsed());
    assert_eq!(other.get(SERVICES).await.status, 200);
}

#[tokio::test]
async fn a_kubeconfig_that_names_another_server_is_told_to_take_a_restart() {
    let ca = Authority::new("cluster");
    let (server, other) = (secure_edge(&ca.server(), None).await, secure_edge(&ca.server(), None).await);
    let config = |server: &ApiServer, token: &str| kubeconfig(server.url(), ca.pem(), &format!("token: {token}"));
    let weir = Setup::new(server.url())
        .without("--server")
        .file("--kubeconfig", "config", &config(&server, "first"))
        .start_ready()
        .await;
    let from = weir.log_length();
    replace(&weir.path("config"), config(&other, "second").as_bytes());
    let (from, line) = weir.logged_after(from, "the last good ones stay").await;
    for word in ["another API server is named now", other.url(), "takes a restart"] {
        assert!(line.to_string().contains(word), "no {word:?} in {line}");
    }
    server.clear_requests();
    asked_by_reload(&weir, &server, |request| request.header("authorization") == "Bearer first").await;
    assert_eq!(other.requests().len(), 0, "a credential is not sent elsewhere");
    replace(&weir.path("config"), config(&server, "third").as_bytes());
    weir.logged_after(from, "credentials were renewed").await;
    asked_by_reload(&weir, &server, |request| request.header("authorization") == "Bearer third").await;
}

#[tokio::test]
async fn lending_may_be_left_to_some_users_of_the_machine() {
    use std::os::unix::fs::MetadataExt as _;
    let server = super::edge().await;
    let ca = Authority::new("unused");
    let own = std::fs::metadata("/proc/self").unwrap().uid().to_string();
    for (uids, status) in [(format!("4000000,{own}"), 200), ("4000000".to_owned(), 403)] {
        let weir = Setup::new(server.url())
            .filters("filters: []")
            .file("--node-kubeconfig", "node.yaml", &kubeconfig(server.url(), ca.pem(), "token: nodes"))
            .flag("--lend-to-uids", &uids)
            .start_ready()
            .await;
        assert_eq!(weir.client("tool").get("/api/v1/nodes").await.status, status, "{uids}");
        let with_token = weir.client("tool").with("authorization", "Bearer mine");
        assert_eq!(with_token.get("/api/v1/nodes").await.status, 200);
    }
}

#[tokio::test]
async fn a_page_in_a_browser_and_a_foreign_name_are_lent_nothing() {
    let server = super::edge().await;
    let ca = Authority::new("unused");
    let weir = Setup::new(server.url())
        .filters("filters: []")
        .file("--node-kubeconfig", "node.yaml", &kubeconfig(server.url(), ca.pem(), "token: nodes"))
        .start_ready()
        .await;
    let client = weir.client("tool");
    server.clear_requests();
    for (name, value) in
        [("host", "evil.example:10261"), ("origin", "http://evil.example"), ("sec-fetch-site", "same-site")]
    {
        let answer = client.clone().with(name, value).get("/api/v1/secrets").await;
        assert_eq!((answer.status.as_u16(), answer.json()["reason"].as_str()), (403, Some("Forbidden")), "{name}");
    }
    assert_eq!(server.requests().len(), 0);
    assert_eq!(
        client.clone().with("host", "evil.example").with("authorization", "Bearer a").get("/version").await.status,
        200
    );
    assert_eq!(client.get("/api/v1/nodes").await.status, 200);
    assert_eq!(server.requests().last().unwrap().header("authorization"), "Bearer nodes");
}
