//! Filter modules that want more than they may have: time, memory, the log, files.

use std::os::unix::fs::symlink;
use std::process::Command;

use weir_apiserver::ApiServer;
use weir_tests::built;
use weir_tests::client::PATIENCE;
use weir_tests::daemon::{Daemon, Setup};
use weir_tests::edge::{edge, service};

const SERVICES: &str = "/api/v1/services";

/// The configuration of the guest that runs its settings, for the client `victim`.
fn guest(settings: &str) -> String {
    format!(
        "filters:
  - name: guest
    module: guest.wasm
    match: [\"victim/services\"]
    grants: [services, nodes, nodepools.apps.openyurt.io]
    failurePolicy: Ignore
    limits: {{time: 2s}}
    settings: {settings}
"
    )
}

fn program() -> Vec<u8> {
    std::fs::read(built::target().join("guest.wasm")).unwrap()
}

async fn running(settings: &str) -> (ApiServer, Daemon) {
    let server = edge().await;
    let weir = Setup::new(server.url()).filters(&guest(settings)).module("guest", &program()).start_ready().await;
    (server, weir)
}

#[tokio::test]
async fn a_module_cannot_sleep_past_its_time() {
    let (_server, weir) = running("{ops: [{sleep: 3600}, {read: [0, name]}], configure_sleeps: 3600}").await;
    let victim = weir.client("victim");
    let names = tokio::time::timeout(PATIENCE, victim.names(SERVICES)).await.expect("an hour has not passed");
    assert_eq!(names.len(), 4, "ready at once, or failed and ignored");
    assert_eq!(weir.stop().await, Some(0));
}

#[tokio::test]
async fn a_module_has_neither_files_nor_sockets_and_opens_no_descriptor() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let (server, weir) = running(&format!("{{ops: [{{reach: {port}}}, {{hide: 1}}]}}")).await;
    let victim = weir.client("victim");
    assert_eq!(victim.names(SERVICES).await.len(), 0, "it got to its end");
    let before = weir.descriptors();
    for n in 0..64 {
        // Another name is another trace: the module is called for each.
        server.store().put(service(&format!("s-{n}"), "ClusterIP")).unwrap();
        assert_eq!(victim.names(SERVICES).await.len(), 0);
    }
    assert!(weir.descriptors() < before + 32, "{} after {before}", weir.descriptors());
    assert!(tokio::time::timeout(std::time::Duration::ZERO, listener.accept()).await.is_err(), "nobody connected");
}

#[tokio::test]
async fn a_module_that_prints_does_not_fill_the_log() {
    let (server, weir) = running("{ops: [{print: 1000}]}").await;
    for n in 0..256 {
        server.store().put(service(&format!("s-{n}"), "ClusterIP")).unwrap();
    }
    let before = weir.log_length();
    assert_eq!(weir.client("victim").names(SERVICES).await.len(), 260);
    let (_, line) = weir.logged_after(before, "output of the filter module").await;
    let text = line["fields"]["line"].as_str().unwrap();
    assert!(text.contains("\\u{202e}reversed\\u{202c}"), "{text}");
    let printed = weir.log_length() - before;
    assert!((200..400).contains(&printed), "{printed} lines");
}

#[tokio::test]
async fn what_a_module_passes_to_the_host_is_weighed_against_its_memory() {
    let long = |op: &str| format!("{{ops: [{}]}}", vec![op; 24].join(", "));
    for (settings, class) in [
        (long("{long-one-of: [metadata.name, 4000000]}"), "memory"),
        (long("{long-set: [spec.x, 4000000]}"), "memory"),
        ("{ops: [{long-find: [services, 100000]}]}".to_owned(), "trap"),
    ] {
        let (server, weir) = running(&settings).await;
        for n in 0..64 {
            server.store().put(service(&format!("s-{n}"), "ClusterIP")).unwrap();
        }
        assert_eq!(weir.client("other").names(SERVICES).await.len(), 68);
        let before = weir.resident();
        assert_eq!(weir.client("victim").names(SERVICES).await.len(), 68, "failures are ignored");
        let line = weir.logged("filter failed on an object").await;
        assert_eq!(line["fields"]["class"], class, "{line}");
        weir.settles_at(before).await;
    }
}

#[tokio::test]
async fn only_regular_files_are_modules() {
    let server = edge().await;
    let setup = Setup::new(server.url()).filters(&guest("{ops: []}"));
    let path = setup.modules().join("guest.wasm");
    assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
    let weir = setup.start().await;
    weir.logged("guest.wasm cannot be read: it is not a regular file").await;
    let from = weir.log_length();
    std::fs::remove_file(&path).unwrap();
    symlink("/dev/zero", &path).unwrap();
    weir.put_filters(&guest("{ops: [{read: [0, name]}]}"));
    weir.logged_after(from, "refused for the same reasons as before").await;
    let shown = weir.admin().json("/filters").await.to_string();
    assert!(shown.contains("guest.wasm cannot be read: it is not a regular file"), "{shown}");
    assert_eq!(weir.stop().await, Some(0), "nothing hangs");
}
