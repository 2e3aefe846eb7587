//! TLS on both sides: the HTTPS port with its certificate, and verification of the API server.

use http::{Method, StatusCode, Version};
use weir_tests::client::{Client, whole};
use weir_tests::daemon::{Setup, replace};
use weir_tests::pki::Authority;
use weir_tests::until;

use super::NO_LOAD_BALANCERS;
use super::secure::secure_edge;

const SERVICES: &str = "/api/v1/services";

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
async fn a_new_certificate_is_served_without_a_restart_and_an_invalid_one_is_logged_and_ignored() {
    let (old, new) = (Authority::new("old"), Authority::new("new"));
    let server = super::edge().await;
    let weir = Setup::new(server.url()).filters("filters: []").tls(&old.server()).start_ready().await;
    let url = weir.secure_url().await;
    let by = |ca: &Authority| Client::trusting(&url, "tool", Some(ca.pem()), None);
    let open = by(&old);
    assert_eq!(open.get(SERVICES).await.status, 200);
    // The test authority issues certificates until the first day of 4096.
    assert_eq!(weir.metric("weir_serving_certificate_expiration_timestamp_seconds").await, 67_090_118_400.0);
    replace(&weir.path("tls.crt"), b"no certificate");
    let line =
        weir.logged("cannot reload certificates of the HTTPS port, keeping the last valid ones").await.to_string();
    assert!(line.contains("--tls-cert-file") && line.contains("tls.crt"), "{line}");
    assert_eq!(by(&old).get(SERVICES).await.status, 200);
    let from = weir.log_length();
    let pair = new.server();
    replace(&weir.path("tls.key"), pair.key.as_bytes());
    replace(&weir.path("tls.crt"), pair.certificate.as_bytes());
    weir.logged_after(from, "reloaded certificate of the HTTPS port").await;
    assert_eq!(by(&new).get(SERVICES).await.status, 200);
    assert!(by(&old).try_get(SERVICES).await.is_err());
    assert_eq!(open.get(SERVICES).await.status, 200, "an open connection stays");
}

/// What writes them may be late, or be interrupted by a power cut. The plain port serves meanwhile.
#[tokio::test]
async fn certificates_that_are_torn_at_the_start_are_taken_once_they_are_valid() {
    let (ca, clients) = (Authority::new("serving"), Authority::new("clients"));
    let (server, pair) = (super::edge().await, ca.server());
    let torn = |text: &str| text[..text.len() / 2].to_owned();
    for (certificate, key, client_ca) in [
        (torn(&pair.certificate), pair.key.clone(), clients.pem().to_owned()),
        (pair.certificate.clone(), String::new(), clients.pem().to_owned()),
        (pair.certificate.clone(), pair.key.clone(), torn(clients.pem())),
    ] {
        let setup = Setup::new(server.url()).filters("filters: []").tls(&ca.server());
        let setup = setup.file("--client-ca-file", "client-ca.crt", &client_ca);
        replace(&setup.path("tls.crt"), certificate.as_bytes());
        replace(&setup.path("tls.key"), key.as_bytes());
        let weir = setup.start_ready().await;
        let line = weir.logged("the HTTPS port starts without certificates").await.to_string();
        assert!(line.contains("-file"), "{line}");
        assert_eq!(weir.client("kube-proxy").get(SERVICES).await.status, 200);
        let url = weir.secure_url().await;
        let read = async || Client::trusting(&url, "tool", Some(ca.pem()), None).try_get(SERVICES).await;
        assert!(read().await.is_err());
        let fault = async || weir.metric("weir_notices{notice=\"no-certificate\"}").await;
        assert_eq!(fault().await, 1.0);
        let from = weir.log_length();
        replace(&weir.path("client-ca.crt"), clients.pem().as_bytes());
        replace(&weir.path("tls.key"), pair.key.as_bytes());
        replace(&weir.path("tls.crt"), pair.certificate.as_bytes());
        weir.logged_after(from, "reloaded certificate of the HTTPS port").await;
        until!(read().await.is_ok());
        assert_eq!(fault().await, 0.0);
    }
}

#[tokio::test]
async fn without_a_system_ca_bundle_only_the_given_one_is_needed_and_none_for_plain_http() {
    let ca = Authority::new("cluster");
    let (secure, plain) = (secure_edge(&ca.server(), None).await, super::edge().await);
    let setup = Setup::new(secure.url()).file("--certificate-authority", "ca.crt", ca.pem());
    for setup in [setup, Setup::new(plain.url())] {
        let nowhere = setup.path("nowhere").display().to_string();
        let weir = setup
            .filters("filters: []")
            .env("SSL_CERT_FILE", &nowhere)
            .env("SSL_CERT_DIR", &nowhere)
            .start_ready()
            .await;
        assert_eq!(weir.client("tool").get(SERVICES).await.status, 200);
    }
}

#[tokio::test]
async fn an_unverified_api_server_gives_a_status_with_the_reason() {
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
        // The error ends without a restart: with another CA file, or another certificate of the server.
        if word == "UnknownIssuer" {
            replace(&weir.path("ca.crt"), ca.pem().as_bytes());
            weir.logged("reloaded credential").await;
            assert_eq!(weir.client("tool").get(SERVICES).await.status, 200);
        }
    }
}
