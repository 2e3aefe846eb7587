//! `weir explain` and `/explain`: why a client component sees an object as it does.

use std::process::Output;
use std::time::Instant;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::Command;
use weir_apiserver::{ApiServer, Enforce};
use weir_tests::built;
use weir_tests::client::{Client, PATIENCE};
use weir_tests::daemon::{Daemon, Setup};
use weir_tests::link::Link;

use super::{edge, only, service};

const SLICE: &str = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/web-x7k2p";
const SLICES: &str = "/apis/discovery.k8s.io/v1/endpointslices?resourceVersion=0";

struct Site {
    server: ApiServer,
    link: Link,
    weir: Daemon,
}

/// kube-proxy of edge-a has read its slices, which servicetopology has edited.
async fn site() -> Site {
    let server = edge().await;
    server.set_policy(|asked| asked.token.as_deref() != Some("stranger"));
    server.enforce(Enforce::Token("stranger".to_owned()));
    let link = Link::to(&server).await;
    let filters = format!(
        "{}{}",
        only("servicetopology", "    match: [\"kube-proxy/endpointslices.discovery.k8s.io\"]\n"),
        "  - name: discardcloudservice\n    module: discardcloudservice.wasm\n    match: [\"*/services\"]\n"
    );
    let setup = Setup::new(&link.url())
        .flag("--node-name", "edge-a")
        .filters(&filters)
        .bundled("servicetopology")
        .bundled("discardcloudservice");
    let weir = setup.start_ready().await;
    weir.client("kube-proxy").with("authorization", "Bearer kube-proxy").get(SLICES).await;
    Site { server, link, weir }
}

fn admin(weir: &Daemon, token: &str) -> Client {
    weir.admin().with("authorization", &format!("Bearer {token}"))
}

async fn explained(weir: &Daemon, path: &str, component: &str) -> Value {
    let answer = admin(weir, "operator").get(&format!("/explain{path}?component={component}")).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()
}

/// Runs `weir explain`.
async fn command(weir: &Daemon, arguments: &[&str]) -> Output {
    let port = weir.admin_url().rsplit(':').next().unwrap();
    let token = weir.path("token");
    std::fs::write(&token, "operator").unwrap();
    let mut command = Command::new(built::weir());
    command.arg("explain").args(arguments).args(["--admin-port", port]).arg("--token-file").arg(token);
    // As in an image without CAs.
    command.env_clear().env("SSL_CERT_FILE", "/dev/null").env("SSL_CERT_DIR", "/dev/null").output().await.unwrap()
}

fn read<'a>(filter: &'a Value, on: &str, call: &str) -> &'a Value {
    let reads = filter["reads"].as_array().unwrap();
    let found = reads.iter().find(|read| read["on"] == on && read["call"].as_str().unwrap().starts_with(call));
    &found.unwrap_or_else(|| panic!("no {call} of {on} in {filter:#}"))["result"]
}

#[tokio::test]
async fn an_explanation_has_the_object_and_what_each_filter_read_decided_and_edited() {
    let site = site().await;
    let explained = explained(&site.weir, SLICE, "kube-proxy").await;
    assert_eq!((&explained["outcome"], &explained["node"]), (&json!("edited"), &json!("edge-a")));
    assert_eq!((&explained["readFrom"], &explained["sentOutcome"]), (&json!("watch cache"), &json!("edited")));
    assert_eq!(explained["object"]["endpoints"].as_array().unwrap().len(), 3, "as the API server has it");
    assert_eq!(explained["shown"]["endpoints"].as_array().unwrap().len(), 2, "as kube-proxy sees it");
    assert_eq!(explained["otherFilters"], json!(["discardcloudservice"]));
    let [filter] = explained["filters"].as_array().unwrap().as_slice() else { panic!("{explained:#}") };
    assert_eq!((&filter["filter"], &filter["decision"]), (&json!("servicetopology"), &json!("edited")));
    let topology = read(filter, "services default/web", "text metadata.annotations['openyurt.io/topologyKeys']");
    assert_eq!(topology, "openyurt.io/nodepool");
    let diff = filter["diff"].as_str().unwrap();
    assert!(diff.contains("-      \"nodeName\": \"edge-c\""), "{diff}");
}

#[tokio::test]
async fn a_hidden_object_is_explained_and_a_component_without_filters_too() {
    let site = site().await;
    let shop = "/api/v1/namespaces/default/services/shop";
    let hidden = explained(&site.weir, shop, "kube-proxy").await;
    assert_eq!((&hidden["outcome"], &hidden["shown"]), (&json!("hidden"), &Value::Null));
    assert_eq!(read(&hidden["filters"][0], "object", "").as_str().map(str::is_empty), Some(false));
    let other = explained(&site.weir, SLICE, "coredns").await;
    assert_eq!((&other["outcome"], &other["filters"]), (&json!("unchanged"), &json!([])));
    assert_eq!(other["sentOutcome"], Value::Null, "no watch of this component");
    assert_eq!((&other["knownComponents"], &hidden["knownComponents"]), (&json!(["kube-proxy"]), &Value::Null));
}

#[tokio::test]
async fn the_command_prints_the_same_for_people() {
    let site = site().await;
    let arguments = ["endpointslice/web-x7k2p", "--component", "kube-proxy"];
    let output = command(&site.weir, &arguments).await;
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let head = "endpointslices.discovery.k8s.io default/web-x7k2p for kube-proxy on node edge-a: edited\n";
    assert!(text.starts_with(head), "{text}");
    for line in [
        "1. servicetopology: edited",
        "   keeps endpoints on the nodes of node pool hangzhou (NodePool: edge-a, edge-b)\n",
        "   10.244.3.4 is left out: it is on node edge-c\n",
        "-      \"nodeName\": \"edge-c\"",
        "-v shows what each filter read.\n",
    ] {
        assert!(text.contains(line), "{line} in {text}");
    }
    let verbose = command(&site.weir, &[&arguments[..], &["-v"]].concat()).await;
    let verbose = String::from_utf8(verbose.stdout).unwrap();
    for line in [
        "   sha256:",
        "services default/web: text metadata.annotations['openyurt.io/topologyKeys'] → \"openyurt.io/nodepool\"",
        "Do not match this component and resource: discardcloudservice",
    ] {
        assert!(verbose.contains(line) && !text.contains(line), "{line} in {verbose}");
    }
    let typo = command(&site.weir, &["endpointslice/web-x7k2p", "--component", "kubeproxy"]).await;
    let typo = String::from_utf8(typo.stdout).unwrap();
    let known = "No rule names kubeproxy, and no client of this name has asked this Weir. Components that are known: kube-proxy\n";
    assert!(typo.contains(known), "{typo}");
    let json = command(&site.weir, &[&arguments[..], &["-o", "json"]].concat()).await;
    let json: Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(json["outcome"], "edited");
}

#[tokio::test]
async fn without_the_api_server_the_explanation_is_the_same() {
    let mut site = site().await;
    let before = explained(&site.weir, SLICE, "kube-proxy").await;
    site.link.down().await;
    site.weir.logged("the API server is down").await;
    let after = explained(&site.weir, SLICE, "kube-proxy").await;
    assert!(after["offlineSince"].is_string());
    assert_eq!(after["filters"], before["filters"]);
    assert_eq!(after["object"], before["object"]);
    let answer = admin(&site.weir, "operator").get("/explain/api/v1/namespaces/default/pods/p?component=a").await;
    assert_eq!(answer.status, 503, "{}", answer.text());
    assert!(answer.text().contains("cannot be reached since"), "{}", answer.text());
}

#[tokio::test]
async fn who_may_not_read_the_object_gets_no_explanation() {
    let site = site().await;
    let before = site.server.requests().len();
    for path in [SLICE, "/api/v1/namespaces/kube-system/secrets/a"] {
        let answer = admin(&site.weir, "stranger").get(&format!("/explain{path}?component=kube-proxy")).await;
        assert_eq!(answer.status, 403, "{}", answer.text());
        assert!(answer.text().contains("is forbidden"), "the API server's own message: {}", answer.text());
        assert!(!answer.text().contains("edge-c"));
    }
    assert!(site.server.requests().len() > before, "the API server was asked");
}

/// As the account of the DaemonSet has it.
#[tokio::test]
async fn who_may_only_list_gets_an_explanation_from_a_cache_and_from_the_api_server() {
    let site = site().await;
    site.server.set_policy(|asked| asked.token.as_deref() != Some("stranger") || asked.verb != "get");
    let get =
        async |path: &str| admin(&site.weir, "stranger").get(&format!("/explain{path}?component=kube-proxy")).await;
    let explained = get(SLICE).await;
    assert_eq!((explained.status.as_u16(), &explained.json()["readFrom"]), (200, &json!("watch cache")));
    // No client has read this resource: no cache has it.
    let path = "/api/v1/namespaces/default/services/web";
    let explained = get(path).await;
    assert_eq!(explained.status, 200, "{}", explained.text());
    assert_eq!(explained.json()["readFrom"], "API server");
    assert_eq!(explained.json()["object"]["metadata"]["name"], "web");
    assert_eq!(get("/api/v1/namespaces/default/services/none").await.status, 404);
}

#[tokio::test]
async fn who_may_not_read_hears_what_is_needed_and_whose_credential_was_sent() {
    let site = site().await;
    let answer = admin(&site.weir, "stranger").get(&format!("/explain{SLICE}?component=kube-proxy")).await;
    assert!(
        answer.text().contains("needs the right to get or list endpointslices.discovery.k8s.io"),
        "{}",
        answer.text()
    );
    let token = site.weir.path("stranger");
    std::fs::write(&token, "stranger").unwrap();
    let port = site.weir.admin_url().rsplit(':').next().unwrap().to_owned();
    let mut command = Command::new(built::weir());
    command.args(["explain", "endpointslice/web-x7k2p", "--component", "kube-proxy", "--admin-port", &port]);
    let output = command.arg("--token-file").arg(&token).env_clear().output().await.unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(
        !output.status.success() && said.contains(&format!("asked with the token in {}", token.display())),
        "{said}"
    );
}

#[tokio::test]
async fn what_is_no_whole_answer_of_an_admin_port_does_not_hold_a_command() {
    const HALF: &str = "HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{";
    let cases = [
        ("", true, "no answer within 10s"),
        ("HTTP/1.1 200 OK\r\n", true, "no answer within 10s"),
        (HALF, true, "no answer within 10s"),
        (HALF, false, "end of file before message length reached"),
        ("HTTP/1.1 200 OK\r\ncache-control: no-store\r\ncontent-length: 1\r\n\r\n{", false, "EOF while parsing"),
        ("HTTP/1.1 404 Not Found\r\ncontent-length: 6\r\n\r\n<html>", false, "404 Not Found, from another program"),
        ("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}", false, "200 OK, from another program"),
        ("SSH-2.0-OpenSSH_9.9\r\n", false, "invalid HTTP version parsed"),
        ("", false, "connection closed before message completed"),
    ];
    let commands: [&[&str]; 2] = [&["status"], &["explain", "service/web", "--component", "kube-proxy"]];
    let runs = cases.iter().flat_map(|case| commands.map(|command| (*case, command)));
    futures_util::future::join_all(runs.map(async |((answer, stays_open, expected), arguments)| {
        let port = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let number = port.local_addr().unwrap().port().to_string();
        let mut command = Command::new(built::weir());
        command.args(arguments).args(["--admin-port", &number]).env_clear();
        let serve = async {
            let (mut connection, _) = port.accept().await.unwrap();
            let _ = connection.read(&mut [0; 1024]).await;
            connection.write_all(answer.as_bytes()).await.unwrap();
            if stays_open {
                let _ = connection.read(&mut [0; 1024]).await;
            }
        };
        let output = async { tokio::time::timeout(PATIENCE, command.output()).await.expect("it ends").unwrap() };
        let (output, ()) = tokio::join!(output, serve);
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.contains(expected) && said.contains(&number), "{arguments:?}, {answer:?}: {said}");
        assert_eq!((output.status.code(), said.lines().count()), (Some(1), 1), "{arguments:?}, {answer:?}: {said}");
    }))
    .await;
}

#[tokio::test]
async fn a_daemon_that_is_not_ready_gives_every_command_the_same_reason() {
    let server = edge().await;
    server.set_policy(|asked| !(asked.resource == "services" && asked.verb == "list"));
    server.enforce(Enforce::Everybody);
    let weir = Setup::new(server.url()).filters(&only("servicetopology", "")).bundled("servicetopology").start().await;
    weir.logged("configuration refused").await;
    let readyz = weir.admin().get("/readyz").await;
    assert_eq!(readyz.status, 503);
    let readyz = readyz.text();
    let reason = readyz.trim().trim_start_matches("not ready: ");
    assert!(reason.contains("listing services is forbidden"), "{reason}");
    let explained = command(&weir, &["endpointslice/web-x7k2p", "--component", "kube-proxy"]).await;
    let said = String::from_utf8(explained.stderr).unwrap();
    assert!(!explained.status.success() && said.contains(reason), "{said}");
    let port = weir.admin_url().rsplit(':').next().unwrap().to_owned();
    let status =
        Command::new(built::weir()).args(["status", "--admin-port", &port]).env_clear().output().await.unwrap();
    let said = String::from_utf8(status.stdout).unwrap();
    assert!(status.status.code() == Some(2) && said.contains(&format!("Ready:    no, {reason}")), "{said}");
}

#[tokio::test]
async fn a_request_that_cannot_be_explained_gets_the_reason() {
    let site = site().await;
    for (path, code, reason) in [
        ("/explain/api/v1/namespaces/default/services/none?component=a", 404, "services \"none\" not found"),
        ("/explain/api/v1/namespaces/default/services/web", 400, "`component`"),
        ("/explain/api/v1/services?component=a", 400, "not the API path of an object"),
        ("/explain/api/v1/namespaces/default/pods/p/log?component=a", 400, "not the API path of an object"),
        ("/explain/healthz?component=a", 400, "not the API path of an object"),
        ("/explain/api/v1/namespaces/%2e%2e/services/web?component=a", 400, "rejects the request"),
    ] {
        let answer = admin(&site.weir, "operator").get(path).await;
        assert_eq!(answer.status, code, "{path}: {}", answer.text());
        assert!(answer.text().contains(reason), "{path}: {}", answer.text());
    }
    let output = command(&site.weir, &["svc/none", "--component", "kube-proxy"]).await;
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(
        String::from_utf8(output.stderr).unwrap(),
        "weir: /api/v1/namespaces/default/services/none: services \"none\" not found\n"
    );
}

#[tokio::test]
async fn text_from_the_cluster_cannot_control_a_terminal() {
    let site = site().await;
    let mut named = service("odd", "ClusterIP");
    named["metadata"]["annotations"] = json!({"openyurt.io/topologyKeys": "\u{1b}[2J\u{202e}<script>"});
    site.server.store().put(named).unwrap();
    let mut slice = site.server.store().get("discovery.k8s.io/v1", "EndpointSlice", "default", "web-x7k2p").unwrap();
    slice["metadata"]["name"] = "odd".into();
    slice["metadata"]["labels"] = json!({"kubernetes.io/service-name": "odd"});
    slice["metadata"]["uid"] = "odd".into();
    site.server.store().put(slice).unwrap();
    let followed = async {
        loop {
            let output = command(&site.weir, &["endpointslice/odd", "--component", "kube-proxy", "-v"]).await;
            let text = String::from_utf8(output.stdout).unwrap();
            if text.contains("script") {
                return text;
            }
        }
    };
    let text = tokio::time::timeout(PATIENCE, followed).await.expect("the watch caches follow");
    let is_hostile = |letter: char| (letter.is_control() && letter != '\n') || letter == '\u{202e}';
    assert!(!text.contains(is_hostile), "{text:?}");
}

/// A goal of 50 ms, as a ratio: an explanation takes no longer than some plain gets through the proxy.
#[tokio::test]
async fn an_explanation_costs_about_as_much_as_some_gets() {
    let site = site().await;
    let client = site.weir.client("kube-proxy").with("authorization", "Bearer operator");
    explained(&site.weir, SLICE, "kube-proxy").await;
    client.get(SLICE).await;
    let mut times = [Vec::new(), Vec::new()];
    for _ in 0..15 {
        let began = Instant::now();
        explained(&site.weir, SLICE, "kube-proxy").await;
        times[0].push(began.elapsed());
        let began = Instant::now();
        client.get(SLICE).await;
        times[1].push(began.elapsed());
    }
    let [explain, get] = times.map(|mut times| {
        times.sort();
        times[times.len() / 2]
    });
    println!("explain {explain:?}, get {get:?} (medians of 15)");
    assert!(explain < 20 * get + std::time::Duration::from_millis(40), "explain {explain:?}, get {get:?}");
}
