//! The credentials that Weir sends to the API server: their formats, their rotation, and credentials that appear after
//! the start.

use weir_apiserver::ApiServer;
use weir_tests::daemon::{Setup, replace};
use weir_tests::pki::{Authority, Pair, certificate_user, kubeconfig};

use super::secure::{der, request_after_reload, secure_edge, wait_for_request};

#[tokio::test]
async fn a_rotated_client_certificate_and_token_are_used_for_later_requests() {
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
    wait_for_request(&server, shows(&first, "one")).await;
    // While the files are replaced one by one, the certificate and the key never match.
    replace(&weir.path("client.key"), second.key.as_bytes());
    weir.logged("keeping the last valid one").await;
    replace(&weir.path("client.crt"), second.certificate.as_bytes());
    replace(&weir.path("token"), b"two");
    request_after_reload(&weir, &server, shows(&second, "two")).await;
    // If a token file disappears, the last valid token stays in use.
    let from = weir.log_length();
    std::fs::remove_file(weir.path("token")).unwrap();
    let (_, line) = weir.logged_after(from, "keeping the last valid one").await;
    assert!(line.to_string().contains("--token-file") && line.to_string().contains("token"), "{line}");
    server.clear_requests();
    request_after_reload(&weir, &server, shows(&second, "two")).await;
}

#[tokio::test]
async fn every_form_of_a_kubeconfig_is_supported() {
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
    for (user, expected) in [
        (certificate_user(&pair), None),
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
        // Each daemon gets its own server: a late request of the previous daemon would be taken for one of the next.
        let server = secure_edge(&ca.server(), Some(&clients)).await;
        let weir = Setup::kubeconfig_of(&kubeconfig(server.url(), ca.pem(), &user)).start_ready().await;
        let requests = server.requests();
        assert!(!requests.is_empty());
        // The start does not wait for a slow plugin, and only asks whether the server responds.
        for request in requests.into_iter().filter(|request| request.path != "/readyz") {
            match expected {
                Some(token) => assert_eq!(request.header("authorization"), token, "{user}: {}", request.path),
                None => assert_eq!(request.certificate.as_deref(), Some(&der(&pair)[..]), "{user}: {}", request.path),
            }
        }
        drop(weir);
    }
}

#[tokio::test]
async fn an_exec_plugin_runs_again_before_its_certificate_expires() {
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
    weir.logged("reloaded credential").await;
    assert_eq!(shown().await.as_deref(), Some(&der(&second)[..]));
}

#[tokio::test]
async fn a_changed_server_in_the_kubeconfig_logs_that_a_restart_is_needed() {
    let ca = Authority::new("cluster");
    let (server, other) = (secure_edge(&ca.server(), None).await, secure_edge(&ca.server(), None).await);
    let config = |server: &ApiServer, token: &str| kubeconfig(server.url(), ca.pem(), &format!("token: {token}"));
    let weir = Setup::kubeconfig_of(&config(&server, "first")).start_ready().await;
    let from = weir.log_length();
    replace(&weir.path("config"), config(&other, "second").as_bytes());
    let (from, line) = weir.logged_after(from, "keeping the last valid one").await;
    for word in ["the API server changed to", other.url(), "requires a restart"] {
        assert!(line.to_string().contains(word), "no {word:?} in {line}");
    }
    let shown = weir.admin().get("/readyz?verbose").await.text();
    let line = shown.lines().find(|line| line.starts_with("[!] server-address: "));
    assert!(line.is_some_and(|line| line.contains(other.url()) && line.ends_with("restart Weir")), "{shown}");
    server.clear_requests();
    request_after_reload(&weir, &server, |request| request.header("authorization") == "Bearer first").await;
    assert_eq!(other.requests().len(), 0, "a credential is not sent elsewhere");
    replace(&weir.path("config"), config(&server, "third").as_bytes());
    weir.logged_after(from, "reloaded credential").await;
    request_after_reload(&weir, &server, |request| request.header("authorization") == "Bearer third").await;
    assert_eq!(weir.metric("weir_notices{notice=\"server-address\"}").await, 0.0);
}

/// Another machine may have the address of an API server that has moved.
#[tokio::test]
async fn a_server_with_the_certificate_of_another_cluster_is_shown() {
    let (ca, other) = (Authority::new("cluster"), Authority::new("other"));
    let server = secure_edge(&other.server(), None).await;
    let setup = Setup::new(server.url()).filters("filters: []").file("--certificate-authority", "ca.crt", ca.pem());
    let weir = setup.start_ready().await;
    weir.client("tool").get("/api/v1/nodes").await;
    let shown = async {
        while weir.metric("weir_notices{notice=\"server-address\"}").await == 0.0 {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(weir_tests::client::PATIENCE, shown).await.expect("it is shown");
    let text = weir.admin().get("/readyz?verbose").await.text();
    assert!(text.contains("has a certificate of another name or another CA"), "{text}");
}

#[tokio::test]
async fn the_node_credential_may_appear_after_the_start() {
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
    weir.logged("reloaded credential").await;
    server.clear_requests();
    assert_eq!(client.get("/api/v1/nodes").await.status, 200);
    let requests = server.requests();
    let own = requests
        .iter()
        .find(|request| request.path == "/api/v1/nodes" && request.header("user-agent").starts_with("kubelet"));
    assert_eq!(own.map(|request| request.header("authorization")), Some("Bearer kubelets"), "{requests:?}");
}
