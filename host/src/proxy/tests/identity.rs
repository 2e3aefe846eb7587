//! The credential that a request has upstream.

use kube::config::AuthInfo;

use super::*;

fn own_uid() -> u32 {
    use std::os::unix::fs::MetadataExt as _;
    std::fs::metadata("/proc/self").unwrap().uid()
}

async fn with_node_credential() -> ProxyFixture {
    let server = ApiServer::builder().start().await.unwrap();
    let mut node = kube::Config::new(server.url().parse().unwrap());
    node.auth_info = AuthInfo { token: Some("node-token".to_owned().into()), ..AuthInfo::default() };
    let url: http::Uri = server.url().parse().unwrap();
    let mut fixture = fixture_with(|setup| {
        let config = &mut setup.upstream;
        config.upstream = kube::Config::new(url);
        config.upstream.auth_info = AuthInfo { token: Some("weir-token".to_owned().into()), ..AuthInfo::default() };
        config.node_credential = Some(Ok(node));
        setup.proxy.node_credential_uids = vec![own_uid()];
    })
    .await;
    fixture.server = server;
    fixture
}

#[tokio::test]
async fn a_local_client_gets_the_node_credential_without_its_proxy_headers() {
    let fixture = with_node_credential().await;
    fixture.send("/api/v1/pods", &[("x-remote-user", "admin"), ("x-forwarded-for", "1.1.1.1")]).await;
    let headers = fixture.upstream_headers();
    assert_eq!(headers["authorization"], "Bearer node-token");
    for name in ["x-remote-user", "x-forwarded-for"] {
        assert!(!headers.contains_key(name), "{name}");
    }
}

#[tokio::test]
async fn a_local_client_that_impersonates_does_not_get_the_nodes_own_rights() {
    let fixture = with_node_credential().await;
    for name in ["impersonate-user", "impersonate-group", "impersonate-uid", "impersonate-extra-scopes"] {
        assert_eq!(fixture.send("/api/v1/pods", &[(name, "restricted")]).await.status(), StatusCode::FORBIDDEN);
        assert!(!fixture.server.requests().iter().any(|request| request.path == "/api/v1/pods"), "{name}");
    }
}

#[tokio::test]
async fn a_clients_own_credential_passes_with_its_impersonation_headers() {
    let fixture = with_node_credential().await;
    fixture
        .send(
            "/api/v1/pods",
            &[("authorization", "Bearer mine"), ("impersonate-user", "bob"), ("x-remote-user", "admin")],
        )
        .await;
    let headers = fixture.upstream_headers();
    assert_eq!(headers["authorization"], "Bearer mine");
    assert_eq!(headers["impersonate-user"], "bob");
    assert!(!headers.contains_key("x-remote-user"));
}

#[tokio::test]
async fn without_a_node_credential_none_is_attached() {
    let fixture = fixture_with(|setup| {
        let config = &mut setup.upstream;
        config.upstream.auth_info = AuthInfo { token: Some("weir-token".to_owned().into()), ..AuthInfo::default() };
    })
    .await;
    fixture.send("/api/v1/pods", &[]).await;
    assert!(!fixture.upstream_headers().contains_key("authorization"));
}

#[tokio::test]
async fn a_filtered_read_has_the_same_credential() {
    let fixture = with_node_credential().await;
    fixture.filter("*/pods", &Script::new(|_| weir_runtime::Outcome::Unchanged));
    fixture.send("/api/v1/pods", &[("accept", "application/vnd.kubernetes.protobuf")]).await;
    let headers = fixture.upstream_headers();
    assert_eq!(headers["authorization"], "Bearer node-token");
    assert_eq!(headers["accept"], "application/vnd.kubernetes.protobuf,application/json");
}
