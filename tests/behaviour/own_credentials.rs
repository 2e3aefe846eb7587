//! Clients with a credential of their own: one list and one watch with it serve all their reads, for them alone, and Weir uses
//! the credential only while one of their requests is open.

use serde_json::json;
use weir_apiserver::{ApiServer, Recorded};
use weir_tests::client::Client;
use weir_tests::daemon::{Daemon, Setup};
use weir_tests::link::Link;

use super::{NO_LOAD_BALANCERS, edge};

const PODS: &str = "/api/v1/namespaces/default/pods?resourceVersion=0";
const WATCH: &str = "/api/v1/namespaces/default/pods?watch=true&resourceVersion=0";

struct Site {
    server: ApiServer,
    link: Link,
    weir: Daemon,
    operator: Client,
}

async fn site() -> Site {
    let server = edge().await;
    put(&server, "p");
    let link = Link::to(&server).await;
    let setup = Setup::new(&link.url()).filters(NO_LOAD_BALANCERS).bundled("discardcloudservice");
    let weir = setup.start_ready().await;
    let operator = client(&weir, "token-a");
    server.clear_requests();
    Site { server, link, weir, operator }
}

fn client(weir: &Daemon, token: &str) -> Client {
    weir.client("operator").with("authorization", &format!("Bearer {token}"))
}

fn put(server: &ApiServer, name: &str) {
    let metadata = json!({"name": name, "namespace": "default"});
    server.store().put(json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata})).unwrap();
}

/// The requests for pods, as they arrived.
fn reads(server: &ApiServer) -> Vec<Recorded> {
    server.requests().into_iter().filter(|request| request.target().contains("/pods")).collect()
}

#[tokio::test]
async fn one_list_and_one_watch_with_the_clients_own_credential_serve_all_its_reads() {
    let site = site().await;
    let mut first = site.operator.watch(WATCH).await;
    assert_eq!(first.next_named().await, "ADDED p");
    let mut second = site.operator.watch(WATCH).await;
    assert_eq!(second.next_named().await, "ADDED p");
    assert_eq!(site.operator.names(PODS).await, ["p"]);
    put(&site.server, "q");
    assert_eq!((first.next_named().await, second.next_named().await), ("ADDED q".to_owned(), "ADDED q".to_owned()));
    let reads = reads(&site.server);
    let targets: Vec<_> = reads.iter().map(Recorded::target).collect();
    assert_eq!(targets.iter().filter(|target| target.contains("watch=true")).count(), 1, "{targets:?}");
    assert_eq!(targets.iter().filter(|target| !target.contains("watch=true")).count(), 1, "{targets:?}");
    assert!(reads.iter().all(|read| read.header("authorization") == "Bearer token-a"), "{targets:?}");
    assert!(reads.iter().all(|read| read.header("user-agent").starts_with("weir/")));
}

#[tokio::test]
async fn a_clients_credential_is_used_only_while_one_of_its_requests_is_open() {
    let site = site().await;
    let others = *site.server.open_watches().borrow();
    let mut watch = site.operator.watch(WATCH).await;
    assert_eq!(watch.next_named().await, "ADDED p");
    let mut open = site.server.open_watches();
    open.wait_for(|open| *open > others).await.unwrap();
    drop(watch);
    open.wait_for(|open| *open == others).await.unwrap();
    // What changed meanwhile is there as soon as the client is back.
    put(&site.server, "q");
    let mut watch = site.operator.watch(WATCH).await;
    let mut names = [watch.next_named().await, watch.next_named().await];
    names.sort();
    assert_eq!(names, ["ADDED p", "ADDED q"]);
}

#[tokio::test]
async fn without_the_api_server_a_client_gets_what_it_has_read_and_nobody_else_does() {
    let mut site = site().await;
    assert_eq!(site.operator.names(PODS).await, ["p"]);
    let mut watch = site.operator.watch(WATCH).await;
    assert_eq!(watch.next_named().await, "ADDED p");
    site.link.down().await;
    site.weir.logged("the API server is down").await;
    let answer = site.operator.get(PODS).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert!(answer.headers.contains_key("warning"));
    let stranger = client(&site.weir, "token-b").get(PODS).await;
    assert_eq!(stranger.status, 503, "{}", stranger.text());
    let elsewhere = site.operator.get("/api/v1/namespaces/kube-system/pods?resourceVersion=0").await;
    assert_eq!(elsewhere.status, 503, "complete only for what it covers: {}", elsewhere.text());
}

#[tokio::test]
async fn secrets_are_read_with_the_clients_own_request_and_never_cached() {
    let site = site().await;
    for _ in 0..2 {
        let path = "/api/v1/namespaces/default/secrets?resourceVersion=0";
        assert_eq!(site.operator.get(path).await.status, 200);
    }
    let requests = site.server.requests();
    let secrets: Vec<_> = requests.iter().filter(|request| request.target().contains("/secrets")).collect();
    assert_eq!(secrets.len(), 2);
    assert!(secrets.iter().all(|request| !request.header("user-agent").starts_with("weir/")));
}
