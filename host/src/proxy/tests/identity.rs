//! Whose credential travels.

use kube::config::AuthInfo;

use super::*;

fn own_uid() -> u32 {
    use std::os::unix::fs::MetadataExt as _;
    std::fs::metadata("/proc/self").unwrap().uid()
}

async fn with_node_credential() -> Rig {
    let server = ApiServer::builder().start().await.unwrap();
    let mut node = kube::Config::new(server.url().parse().unwrap());
    node.auth_info = AuthInfo { token: Some("node-token".to_owned().into()), ..AuthInfo::default() };
    let url: http::Uri = server.url().parse().unwrap();
    let mut rig = rig_with(|setup| {
        let config = &mut setup.upstream;
        config.upstream = kube::Config::new(url);
        config.upstream.auth_info = AuthInfo { token: Some("weir-token".to_owned().into()), ..AuthInfo::default() };
        config.node_credential = Some(Ok(node));
        setup.proxy.node_credential_uids = vec![own_uid()];
    })
    .await;
    rig.server = server;
    rig
}

#[tokio::test]
async fn a_local_client_without_a_credential_gets_the_nodes_and_loses_its_claims() {
    let rig = with_node_credential().await;
    rig.send(
        "/api/v1/pods",
        &[("impersonate-user", "admin"), ("x-remote-user", "admin"), ("x-forwarded-for", "1.1.1.1")],
    )
    .await;
    let headers = rig.upstream_headers();
    assert_eq!(headers["authorization"], "Bearer node-token");
    for claim in ["impersonate-user", "x-remote-user", "x-forwarded-for"] {
        assert!(!headers.contains_key(claim), "{claim}");
    }
}

#[tokio::test]
async fn a_clients_own_credential_travels_with_what_it_claims() {
    let rig = with_node_credential().await;
    rig.send(
        "/api/v1/pods",
        &[("authorization", "Bearer mine"), ("impersonate-user", "bob"), ("x-remote-user", "admin")],
    )
    .await;
    let headers = rig.upstream_headers();
    assert_eq!(headers["authorization"], "Bearer mine");
    assert_eq!(headers["impersonate-user"], "bob");
    assert!(!headers.contains_key("x-remote-user"));
}

#[tokio::test]
async fn without_a_node_credential_nothing_is_added() {
    let rig = rig_with(|setup| {
        let config = &mut setup.upstream;
        config.upstream.auth_info = AuthInfo { token: Some("weir-token".to_owned().into()), ..AuthInfo::default() };
    })
    .await;
    rig.send("/api/v1/pods", &[]).await;
    assert!(!rig.upstream_headers().contains_key("authorization"));
}

#[tokio::test]
async fn a_matched_read_travels_under_the_same_identity() {
    let rig = with_node_credential().await;
    rig.filter("*/pods", &Script::new(|_| weir_runtime::Outcome::Unchanged));
    rig.send("/api/v1/pods", &[("accept", "application/vnd.kubernetes.protobuf")]).await;
    let headers = rig.upstream_headers();
    assert_eq!(headers["authorization"], "Bearer node-token");
    assert_eq!(headers["accept"], "application/vnd.kubernetes.protobuf,application/json");
}
