//! The identity of a request upstream: the client's own token, its certificate by impersonation, or the node
//! credential.

use http::Method;
use weir_apiserver::{ApiServer, Recorded};
use weir_tests::client::{Client, PATIENCE, whole};
use weir_tests::daemon::{Daemon, Setup, own_uid};
use weir_tests::edge::{grant_impersonation, grant_kubelets, of_clients};
use weir_tests::pki::{Authority, certificate_user, kubeconfig};
use weir_tests::plane::skipped;
use weir_tests::rights::TOKEN;

use super::NO_LOAD_BALANCERS;
use super::secure::{der, secure_edge};

const SERVICES: &str = "/api/v1/services";

#[tokio::test]
async fn a_clients_token_is_never_sent_over_a_connection_with_a_client_certificate() {
    let (ca, clients) = (Authority::new("cluster"), Authority::new("clients"));
    let server = secure_edge(&ca.server(), Some(&clients)).await;
    let (own, node) = (clients.client("weir", "weir"), clients.client("system:node:edge-a", "system:nodes"));
    let setup = Setup::new(server.url())
        .file("--certificate-authority", "ca.crt", ca.pem())
        .file("--client-certificate", "client.crt", &own.certificate)
        .file("--client-key", "client.key", &own.key)
        .filters(NO_LOAD_BALANCERS)
        .bundled("discardcloudservice");
    let kubeconfig = kubeconfig(server.url(), ca.pem(), &certificate_user(&node));
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

#[tokio::test]
async fn a_client_certificate_is_reviewed_and_impersonated_or_refused() {
    let (ca, clients) = (Authority::new("weir"), Authority::new("clients"));
    let server = super::edge().await;
    grant_kubelets(&server);
    server.set_policy(|request| {
        request.user.name == "system:node:edge-a"
            && request.user.groups == ["system:nodes", "system:authenticated"]
            && (request.resource.as_str(), request.verb.as_str()) == ("services", "list")
    });
    let weir = Setup::new(server.url())
        .filters(NO_LOAD_BALANCERS)
        .bundled("discardcloudservice")
        .tls(&ca.server())
        .file("--client-ca-file", "clients.crt", clients.pem())
        .uncached()
        .start_ready()
        .await;
    let url = weir.secure_url().await;
    let node = clients.client("system:node:edge-a", "system:nodes");
    let client = Client::trusting(&url, "kubelet", Some(ca.pem()), Some(&node));
    server.clear_requests();
    assert_eq!(client.names(SERVICES).await, ["dashboard", "kubernetes", "web"], "filtered as for all");
    let requests = server.requests();
    assert_eq!(requests[0].path, "/apis/authorization.k8s.io/v1/subjectaccessreviews");
    let own = format!("Bearer {TOKEN}");
    assert_eq!(requests[0].header("authorization"), own);
    assert!(requests[0].header("user-agent").starts_with("weir/"), "{:?}", requests[0].headers);
    let list = &requests[1];
    assert_eq!((list.path.as_str(), list.header("authorization")), (SERVICES, own.as_str()));
    assert_eq!(list.header("impersonate-user"), "system:node:edge-a");
    let groups: Vec<_> = list.headers.get_all("impersonate-group").iter().collect();
    assert_eq!(groups, ["system:nodes", "system:authenticated"]);

    // The daemon refuses what the API server does not allow, before it forwards the request.
    server.clear_requests();
    for (method, path) in
        [(Method::GET, "/api/v1/secrets"), (Method::DELETE, "/api/v1/namespaces/default/services/web")]
    {
        let answer = whole(client.send(method, path, "").await).await.unwrap();
        assert_eq!((answer.status.as_u16(), answer.json()["reason"].as_str()), (403, Some("Forbidden")), "{path}");
        assert!(answer.text().contains("system:node:edge-a"), "{}", answer.text());
    }
    assert!(server.requests().iter().all(|request| request.path.ends_with("subjectaccessreviews")));

    // Impersonation cannot be nested, and a token takes precedence over the certificate.
    let stacked = client.clone().with("impersonate-user", "admin").get(SERVICES).await;
    assert_eq!(stacked.status, 403, "{}", stacked.text());
    server.clear_requests();
    assert_eq!(client.clone().with("authorization", "Bearer mine").get(SERVICES).await.status, 200);
    // Its owner is asked for with the token itself.
    for request in server.requests() {
        assert_eq!((request.header("authorization"), request.header("impersonate-user")), ("Bearer mine", ""));
        assert!(request.path == SERVICES || request.path.ends_with("/selfsubjectreviews"), "{}", request.path);
    }

    // A certificate of another CA does not open a connection.
    let stranger = Authority::new("others").client("system:node:edge-a", "system:nodes");
    let refused = Client::trusting(&url, "kubelet", Some(ca.pem()), Some(&stranger)).try_get(SERVICES).await;
    assert!(refused.is_err(), "{refused:?}");

    // Without a completed review the daemon refuses. A result is cached for some seconds.
    server.on_request(|request| match request.path.ends_with("subjectaccessreviews") {
        true => weir_apiserver::Action::json(500, "{}"),
        false => weir_apiserver::Action::Serve,
    });
    assert_eq!(client.get("/api/v1/configmaps").await.status, 503);
    assert_eq!(client.get(SERVICES).await.status, 200);
}

#[tokio::test]
async fn a_certificate_client_cannot_remove_its_own_impersonation() {
    let (ca, clients) = (Authority::new("weir"), Authority::new("clients"));
    let server = super::edge().await;
    grant_kubelets(&server);
    let weir = Setup::new(server.url())
        .filters("filters: []")
        .tls(&ca.server())
        .file("--client-ca-file", "clients.crt", clients.pem())
        .start_ready()
        .await;
    let node = clients.client("system:node:edge-a", "system:nodes");
    let client = Client::http1_showing(&weir.secure_url().await, "kubelet", ca.pem(), &node);
    server.clear_requests();
    for named in ["close, Impersonate-User, Impersonate-Group", "impersonate-group", "Authorization", "accept", "host"]
    {
        let answer = client.clone().with("connection", named).get(SERVICES).await;
        assert_eq!((answer.status.as_u16(), answer.json()["reason"].as_str()), (400, Some("BadRequest")), "{named}");
    }
    assert_eq!(of_clients(&server), [""; 0], "nothing leaves");
    // Only hop-by-hop headers are removed.
    let answer = client.clone().with("connection", "close, x-mine").with("x-mine", "1").get(SERVICES).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    // The daemon reads for itself meanwhile.
    let is_clients = |request: &&Recorded| request.headers.contains_key("impersonate-user") && request.path == SERVICES;
    let requests = server.requests();
    let request = requests.iter().rfind(is_clients).unwrap();
    assert_eq!(request.header("authorization"), format!("Bearer {TOKEN}"));
    assert_eq!((request.header("impersonate-user"), request.header("x-mine")), ("system:node:edge-a", ""));
    assert!(request.headers.contains_key("impersonate-group"));
}

#[tokio::test]
async fn a_certificate_users_review_is_cached_and_a_revoked_permission_takes_effect() {
    let (ca, clients) = (Authority::new("weir"), Authority::new("clients"));
    let server = super::edge().await;
    grant_impersonation(&server, &["one", "other"], "g");
    let weir = Setup::new(server.url())
        .filters("filters: []")
        .tls(&ca.server())
        .file("--client-ca-file", "clients.crt", clients.pem())
        .uncached()
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
    // A real server would refuse at once. This one does not, so that the test sees the effect of the review.
    server.set_policy(|request| request.user.name != "one");
    let revoked = async { while one.get(SERVICES).await.status == 200 {} };
    tokio::time::timeout(PATIENCE, revoked).await.expect("the revoked right is seen");
    assert_eq!(other.get(SERVICES).await.status, 200);
}

async fn with_node_credential(server: &ApiServer, uids: Option<&str>) -> Daemon {
    let node = kubeconfig(server.url(), "", "token: nodes");
    let setup = Setup::new(server.url()).filters("filters: []").file("--node-kubeconfig", "node.yaml", &node);
    let setup = uids.into_iter().fold(setup, |setup, uids| setup.flag("--node-credential-uids", uids));
    setup.start_ready().await
}

#[tokio::test]
async fn the_node_credential_is_attached_for_permitted_uids_and_by_default_for_root_only() {
    let server = super::edge().await;
    let own = own_uid().to_string();
    for (uids, status) in [(Some(format!("4000000,{own}")), 200), (Some("4000000".to_owned()), 403), (None, 200)] {
        let weir = with_node_credential(&server, uids.as_deref()).await;
        assert_eq!(weir.client("tool").get("/api/v1/nodes").await.status, status, "{uids:?}");
        let with_token = weir.client("tool").with("authorization", "Bearer mine");
        assert_eq!(with_token.get("/api/v1/nodes").await.status, 200);
        if own == "0" {
            let get = "GET /api/v1/nodes HTTP/1.0\r\nHost: localhost\r\n\r\n";
            let answer = weir.as_nobody(get, "cat <&3").await;
            assert!(answer.starts_with("HTTP/1.0 403"), "{uids:?}: {answer}");
        }
    }
}

/// The kernel lists a closed socket as owned by root.
#[tokio::test]
async fn a_client_that_closes_at_once_is_not_taken_for_root() {
    if own_uid() != 0 {
        return skipped("only root can start a process of another user");
    }
    let server = super::edge().await;
    let weir = with_node_credential(&server, None).await;
    server.clear_requests();
    let body = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"stolen"}}"#;
    let post = format!(
        "POST /api/v1/namespaces/default/configmaps HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}GET /version HTTP/1.1\r\n",
        body.len()
    );
    weir.as_nobody(&post, "exec 3>&-").await;
    weir.logged("request refused").await;
    // The log has the same reason once a minute.
    let refused = async || {
        let status = weir.admin().json("/status").await;
        let failures = status["failures"].as_array().unwrap().iter();
        failures
            .filter(|failure| failure["what"] == "request refused")
            .filter_map(|failure| failure["count"].as_u64())
            .sum::<u64>()
    };
    for count in 2..=20 {
        weir.as_nobody(&post, "exec 3>&-").await;
        let counted = async {
            while refused().await < count {
                tokio::time::sleep(std::time::Duration::from_millis(5)).await;
            }
        };
        assert!(tokio::time::timeout(PATIENCE, counted).await.is_ok(), "{}", weir.log_text());
    }
    assert!(server.requests().iter().all(|request| request.method != Method::POST), "{}", weir.log_text());
}

#[tokio::test]
async fn browser_requests_and_foreign_host_names_get_no_node_credential() {
    let server = super::edge().await;
    let weir = with_node_credential(&server, None).await;
    let client = weir.client("tool");
    server.clear_requests();
    for (name, value) in
        [("host", "evil.example:10261"), ("origin", "http://evil.example"), ("sec-fetch-site", "same-site")]
    {
        let answer = client.clone().with(name, value).get("/api/v1/secrets").await;
        assert_eq!((answer.status.as_u16(), answer.json()["reason"].as_str()), (403, Some("Forbidden")), "{name}");
    }
    assert_eq!(of_clients(&server), [""; 0]);
    assert_eq!(
        client.clone().with("host", "evil.example").with("authorization", "Bearer a").get("/version").await.status,
        200
    );
    assert_eq!(client.get("/api/v1/nodes").await.status, 200);
    assert_eq!(server.requests().last().unwrap().header("authorization"), "Bearer nodes");
}
