//! Exec plugins that hang.

use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;
use weir_tests::built;
use weir_tests::client::PATIENCE;
use weir_tests::daemon::Setup;
use weir_tests::edge::edge;
use weir_tests::pki::kubeconfig;

/// A kubeconfig whose plugin writes a file and sleeps for an hour.
fn hanging(server: &str, began: &str) -> String {
    let plugin = format!(
        "exec: {{apiVersion: client.authentication.k8s.io/v1, interactiveMode: Never,
           command: sh, args: [-c, \"touch {began}; exec sleep 3600\"]}}"
    );
    kubeconfig(server, "", &plugin)
}

async fn exists(path: &std::path::Path) {
    let found = async {
        while !path.exists() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, found).await.expect("the plugin runs");
}

#[tokio::test]
async fn a_plugin_of_the_daemons_own_credential_does_not_hold_up_its_end() {
    let server = edge().await;
    let folder = tempfile::tempdir().unwrap();
    let (config, began) = (folder.path().join("config"), folder.path().join("began"));
    std::fs::write(&config, hanging(server.url(), &began.display().to_string())).unwrap();
    let mut weir = Command::new(built::weir())
        .args(["serve", "--node-name", "n", "--port", "0", "--admin-port", "0", "--cache-size", "0", "--kubeconfig"])
        .arg(&config)
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    exists(&began).await;
    let id = weir.id().unwrap().to_string();
    assert!(Command::new("kill").args(["-TERM", &id]).status().await.unwrap().success());
    let ended = tokio::time::timeout(Duration::from_secs(20), weir.wait()).await;
    assert_eq!(ended.expect("it ends before the plugin").unwrap().code(), Some(0));
}

#[tokio::test]
async fn a_plugin_of_the_node_credential_holds_up_nobody_else() {
    let server = edge().await;
    let setup = Setup::new(server.url()).filters("filters: []");
    let began = setup.path("began");
    let config = hanging(server.url(), &began.display().to_string());
    let weir = setup.file("--node-kubeconfig", "node.yaml", &config).start_ready().await;
    exists(&began).await;
    let client = weir.client("kubelet");
    for _ in 0..8 {
        let refused = client.get("/api/v1/nodes").await;
        assert_eq!(refused.status, 503);
        assert!(refused.text().contains("exec plugin"), "{}", refused.text());
        assert_eq!(client.clone().with("authorization", "Bearer mine").get("/api/v1/nodes").await.status, 200);
        assert_eq!(weir.admin().get("/livez").await.status, 200);
    }
    assert_eq!(weir.stop().await, Some(0));
}
