//! The daemon follows changes of the node's addresses. The test re-executes itself in its own network namespace.
//! Without `unshare`, `ip` or the permission it reports that it is skipped.

use std::process::Command;

use weir_tests::daemon::Setup;
use weir_tests::plane::skipped;

use super::{edge, only};

const CONFIG: &str = "/api/v1/namespaces/kube-system/configmaps/kube-proxy";

#[test]
fn a_changed_default_route_is_detected() {
    let network = |command: &str| Command::new("unshare").args(["-rn", "sh", "-c", command]).output();
    match network("ip link set lo up && ip route") {
        Ok(output) if output.status.success() => {}
        refused => return skipped(&format!("no network namespace here: {refused:?}")),
    }
    let program = std::env::current_exe().unwrap();
    let inside = format!(
        "ip link set lo up && exec {} --ignored --exact behaviour::node::inside_its_own_network_namespace",
        program.display()
    );
    let output = network(&inside).unwrap();
    let report = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && report.contains("1 passed"), "{report}");
}

fn ip(arguments: &str) {
    assert!(Command::new("ip").args(arguments.split(' ')).status().unwrap().success(), "ip {arguments}");
}

#[tokio::test]
#[ignore = "run by a_changed_default_route_is_detected, in a network namespace"]
async fn inside_its_own_network_namespace() {
    ip("addr add 10.9.1.1/24 dev lo");
    ip("route add default dev lo");
    let server = edge().await;
    let settings = "    settings: {addresses: [default-route]}\n";
    let weir = Setup::new(server.url())
        .filters(&only("nodeportaddresses", settings))
        .bundled("nodeportaddresses")
        .start_ready()
        .await;
    let client = weir.client("kubelet");
    let first = client.json(CONFIG).await;
    let written = first["data"]["config.conf"].as_str().unwrap();
    assert!(written.contains("10.9.1.0/24") && written.contains("# all addresses of the node"), "{written}");
    let version = first["metadata"]["resourceVersion"].as_str().unwrap();
    let path = "/api/v1/namespaces/kube-system/configmaps?fieldSelector=metadata.name%3Dkube-proxy";
    client.json(path).await;
    let watch = async || client.watch(&format!("{path}&watch=true&resourceVersion={version}")).await;
    let mut events = watch().await;
    ip("addr add 10.9.2.1/24 dev lo");
    // The present state may come first, as nothing is known of the client. The watch may end while it catches up.
    loop {
        let Some(event) = events.try_next().await.unwrap() else {
            events = watch().await;
            continue;
        };
        assert_eq!(event["object"]["metadata"]["name"], "kube-proxy", "{event}");
        if event["object"]["data"]["config.conf"].as_str().unwrap().contains("10.9.2.0/24") {
            break;
        }
    }
    let written = client.json(CONFIG).await["data"]["config.conf"].as_str().unwrap().to_owned();
    assert!(written.contains("10.9.2.0/24"), "{written}");
}
