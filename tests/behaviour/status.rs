//! `weir status`: the summary of a running daemon.

use std::process::Output;

use serde_json::{Value, json};
use tokio::process::Command;
use weir_apiserver::{ApiServer, End};
use weir_tests::daemon::{Daemon, Setup};
use weir_tests::edge::grant;
use weir_tests::link::Link;
use weir_tests::rights::{ACCOUNT, Rights};
use weir_tests::{built, until};

use super::{NO_LOAD_BALANCERS, edge};

async fn status(arguments: &[&str]) -> Output {
    Command::new(built::weir()).arg("status").args(arguments).env_clear().output().await.unwrap()
}

async fn printed(weir: &Daemon, code: i32, arguments: &[&str]) -> String {
    let port = weir.admin_url().rsplit(':').next().unwrap();
    let output = status(&[&["--admin-port", port], arguments].concat()).await;
    let text = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(code), "{text:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// `/readyz?verbose` and the metric show this health.
async fn shows_health(weir: &Daemon, health: &str) {
    let text = weir.admin().get("/readyz?verbose").await.text();
    assert!(text.starts_with(&format!("health: {health}\n")), "{text}");
    for state in ["ready", "degraded", "offline", "not-ready"] {
        let value = weir.metric(&format!("weir_node_health{{state=\"{state}\"}}")).await;
        assert_eq!(value, f64::from(u8::from(state == health)), "{state}");
    }
}

#[tokio::test]
async fn the_summary_shows_filters_reloads_caches_servers_and_clients() {
    let server = edge().await;
    let setup = Setup::new(server.url()).filters(NO_LOAD_BALANCERS).bundled("discardcloudservice");
    let weir = setup.start_ready().await;
    weir.client("kube-proxy").names("/api/v1/services?resourceVersion=0").await;
    assert!(printed(&weir, 0, &[]).await.starts_with("Health:   ready\n"));
    shows_health(&weir, "ready").await;
    let from = weir.log_length();
    weir.put_filters("filters: [{name: a, module: '\u{1b}[31m.wasm'}]");
    weir.logged_after(from, "configuration refused").await;
    let text = printed(&weir, 2, &["-o", "wide"]).await;
    assert!(text.starts_with("Health:   degraded\n"), "{text}");
    let row = |start: &str| text.lines().find(|line| line.starts_with(start)).map(str::to_owned).unwrap_or_default();
    assert_eq!(row("Node:"), "Node:     edge-a", "{text}");
    assert!(row("Ready:").ends_with("yes") && row("Offline:").ends_with("no"), "{text}");
    assert!(row("Reload:").contains("refused") && text.contains("error: "), "{text}");
    assert!(row("discardcloudservice").contains("sha256:"), "{text}");
    assert!(row("services").contains("daemon") && row("services").ends_with("synced"), "{text}");
    assert!(row("127.0.0.1:").contains("up"), "{text}");
    assert!(row("kube-proxy").contains('1'), "{text}");
    assert!(!text.contains('\u{1b}'), "nothing controls the terminal: {text:?}");

    let json: Value = serde_json::from_str(&printed(&weir, 2, &["-o", "json"]).await).unwrap();
    assert_eq!((&json["health"], &json["notices"][0]["name"]), (&"degraded".into(), &"refused".into()));
    assert_eq!(json["filters"][0]["name"], "discardcloudservice");
    assert_eq!(json["reloads"][1]["changes"][0]["change"], "added");
    assert_eq!(json["clients"][0]["component"], "kube-proxy");
    assert_eq!(json["servers"][0]["state"], "up");
}

#[tokio::test]
async fn an_outage_and_the_kill_switch_are_no_exit_code_0() {
    let server = edge().await;
    let mut link = Link::to(&server).await;
    let setup = Setup::new(&link.url()).filters(NO_LOAD_BALANCERS).bundled("discardcloudservice");
    let weir = setup.flag("--node-name", "edge-a").start_ready().await;
    let from = weir.log_length();
    let switch = |node: &mut Value| node["metadata"]["annotations"] = json!({"weir.dev/filters": "off"});
    server.store().edit("v1", "Node", "", "edge-a", switch);
    weir.logged_after(from, "filter set activated").await;
    let text = printed(&weir, 2, &[]).await;
    assert!(
        text.starts_with("Health:   degraded\n") && text.contains("Notice:   filters-off: all filters are off"),
        "{text}"
    );
    shows_health(&weir, "degraded").await;
    link.down().await;
    weir.logged("the API server is down").await;
    let text = printed(&weir, 2, &[]).await;
    assert!(text.starts_with("Health:   offline\n"), "{text}");
    shows_health(&weir, "offline").await;
}

/// A notice of this name, as `/status` has it.
async fn notice(weir: &Daemon, name: &str) -> Option<Value> {
    let status = weir.admin().json("/status").await;
    status["notices"].as_array().unwrap().iter().find(|notice| notice["name"] == name).cloned()
}

#[tokio::test]
async fn a_watch_cache_that_fails_while_a_server_answers_is_a_fault() {
    let server = edge().await;
    let weir = Setup::new(server.url()).filters(NO_LOAD_BALANCERS).bundled("discardcloudservice").start_ready().await;
    weir.client("kube-proxy").names("/api/v1/services?resourceVersion=0").await;
    shows_health(&weir, "ready").await;
    let shipped = Rights::shipped();
    server.set_rights(ACCOUNT, move |asked| asked.resource != "services" && shipped.allow(asked));
    server.close_watches(End::Clean);
    until!(notice(&weir, "failing-cache").await.is_some());
    let text = printed(&weir, 2, &[]).await;
    let words = "Notice:   failing-cache: watch caches (services) fail although an API server answers";
    assert!(text.contains(words) && text.contains("listing services is forbidden"), "{text}");
    shows_health(&weir, "degraded").await;
    grant(&server, Rights::shipped());
    until!(notice(&weir, "failing-cache").await.is_none());
    shows_health(&weir, "ready").await;
}

#[tokio::test]
async fn a_node_that_may_not_read_its_own_node_any_more_is_degraded() {
    let server = edge().await;
    let weir = Setup::new(server.url()).filters("filters: []").start_ready().await;
    until!(weir.admin().json("/status").await["lookups"][0]["synced"] == true);
    shows_health(&weir, "ready").await;
    let shipped = Rights::shipped();
    server.set_rights(ACCOUNT, move |asked| asked.resource != "nodes" && shipped.allow(asked));
    server.close_watches(End::Clean);
    until!(notice(&weir, "failing-lookups").await.is_some());
    let text = printed(&weir, 2, &[]).await;
    assert!(text.contains("failing-lookups: lookups of filters (nodes) fail although an API server answers"), "{text}");
    shows_health(&weir, "degraded").await;
    grant(&server, Rights::shipped());
    until!(notice(&weir, "failing-lookups").await.is_none());
}

#[tokio::test]
async fn a_pod_address_that_weir_cannot_provide_is_a_fault_and_one_of_another_program_a_remark() {
    let server = edge().await;
    let setup = || Setup::new(server.url()).filters("filters: []");
    let weir = setup().start_ready().await;
    until!(notice(&weir, "no-pod-interface").await.is_some_and(|notice| notice["isRemark"] == true));
    shows_health(&weir, "ready").await;
    // An interface that the daemon has not created, and so does not change.
    let weir = setup().flag("--pod-interface", "lo").start_ready().await;
    until!(notice(&weir, "pod-address").await.is_some_and(|notice| notice["isRemark"] == false));
    shows_health(&weir, "degraded").await;
    assert_eq!(notice(&weir, "no-pod-interface").await, None);
}

#[tokio::test]
async fn without_a_daemon_the_error_names_the_port_and_the_exit_code_is_1() {
    // Bound, so that nobody else listens there meanwhile.
    let bound = tokio::net::TcpSocket::new_v4().unwrap();
    bound.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let nobody = bound.local_addr().unwrap().port().to_string();
    let output = status(&["--admin-port", &nobody]).await;
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), output.stdout.len(), error.lines().count()), (Some(1), 0, 1), "{error}");
    assert!(error.contains(&format!("127.0.0.1:{nobody}")) && error.contains("Connection refused"), "{error}");
    for wrong in [&["--admin-port", "many"][..], &["-o", "yaml"]] {
        assert_eq!(status(wrong).await.status.code(), Some(64), "{wrong:?}");
    }
}

#[tokio::test]
async fn what_is_not_an_admin_port_is_an_error() {
    let server = ApiServer::builder().start().await.unwrap();
    let port = server.address().port().to_string();
    let output = status(&["--admin-port", &port]).await;
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.contains("404"), "{error}");
}
