//! Clients that say more of their credential than the API server has accepted, and what each one gets once it cannot be reached.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::Method;
use serde_json::json;
use weir_apiserver::{Action, ApiServer, Enforce, Recorded};
use weir_tests::client::{Answer, Client, PATIENCE, whole};
use weir_tests::daemon::{Daemon, Setup};
use weir_tests::edge::api_server;
use weir_tests::link::Link;
use weir_tests::pki::kubeconfig;
use weir_tests::until;

const ALL: &str = "/api/v1/services?resourceVersion=0";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const MAP: &str = "/api/v1/namespaces/default/configmaps/settings";

/// A token with claims that nobody has signed.
fn claiming(user: &str) -> String {
    let claims = json!({"iss": "https://kubernetes.default.svc", "sub": user, "exp": 4_000_000_000_u64});
    format!("e30.{}.x", URL_SAFE_NO_PAD.encode(claims.to_string()))
}

/// A daemon with its caches, in front of an API server that accepts these tokens only, and the link between them.
async fn start(folder: &tempfile::TempDir) -> (ApiServer, Link, Daemon) {
    let victim = claiming("system:serviceaccount:default:victim");
    let server = api_server()
        .known_tokens_only()
        .token(&victim, "system:serviceaccount:default:victim", &[])
        .token("opaque", "tenant", &[])
        .start()
        .await
        .unwrap();
    server.store().load(include_str!("../demo/cluster.yaml")).unwrap();
    server.store().load("{apiVersion: v1, kind: ConfigMap, metadata: {name: settings, namespace: default}}").unwrap();
    let link = Link::to(&server).await;
    let weir = Setup::new(&link.url()).on_disk(folder.path()).filters("filters: []").start_ready().await;
    (server, link, weir)
}

fn client(weir: &Daemon, authorization: &str) -> Client {
    weir.client("tool").with("authorization", authorization)
}

async fn status(client: &Client, path: &str) -> u16 {
    client.get(path).await.status.as_u16()
}

/// Takes the link down, and waits until the daemon knows.
async fn disconnect(link: &mut Link, weir: &Daemon) {
    link.down().await;
    until!(status(&weir.client("tool"), "/healthz").await == 503);
}

/// Breaks all connections, and waits until the API server gets such a request.
async fn reconnect_until(server: &ApiServer, link: &mut Link, weir: &Daemon, is_wanted: impl Fn(&Recorded) -> bool) {
    server.clear_requests();
    link.down().await;
    link.up().await;
    let mut count = server.request_count();
    let wanted = async {
        while !server.requests().iter().any(&is_wanted) {
            count.changed().await.unwrap();
        }
    };
    assert!(tokio::time::timeout(PATIENCE, wanted).await.is_ok(), "{}", weir.log_text());
}

/// Waits until a client gets this no more.
async fn ended(weir: &Daemon, client: &Client, path: &str) {
    let ended = async {
        while status(client, path).await != 503 {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    };
    assert!(tokio::time::timeout(PATIENCE, ended).await.is_ok(), "{}", weir.log_text());
}

/// How many stores of a resource have their first list.
async fn listed(weir: &Daemon, resource: &str) -> usize {
    let caches = weir.admin().json("/caches").await;
    let stores = caches["stores"].as_array().unwrap().iter();
    stores.filter(|store| store["resource"] == resource && store["synced"] == true).count()
}

/// Waits until the largest store of a resource has so many objects.
async fn objects(weir: &Daemon, resource: &str, count: u64) {
    let has = async {
        loop {
            let caches = weir.admin().json("/caches").await;
            let stores = caches["stores"].as_array().unwrap().iter().filter(|store| store["resource"] == resource);
            if stores.filter_map(|store| store["objects"].as_u64()).max() == Some(count) {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    };
    let has = tokio::time::timeout(PATIENCE, has).await;
    assert!(has.is_ok(), "{}\n{}", weir.admin().json("/caches").await, weir.log_text());
}

fn is_warned(answer: &Answer) -> bool {
    answer.headers.contains_key("warning")
}

#[tokio::test]
async fn nobody_makes_the_daemon_ask_for_versions_of_api_groups() {
    let folder = tempfile::tempdir().unwrap();
    let (server, _link, weir) = start(&folder).await;
    let garbage = client(&weir, "Bearer garbage");
    for n in 1..20 {
        assert_eq!(status(&garbage, &format!("/apis/apps.openyurt.io/v{n}/nodepools")).await, 401);
    }
    let mut requests = server.request_count();
    let asked = || {
        let paths = server.requests().into_iter().map(|request| request.path);
        paths.filter(|path| path.contains("/apiservices/")).collect::<Vec<_>>()
    };
    assert_eq!(status(&client(&weir, "Bearer opaque"), "/apis/apps.openyurt.io/v1beta2/nodepools").await, 200);
    let answered = async {
        while asked().is_empty() {
            requests.changed().await.unwrap();
        }
    };
    assert!(tokio::time::timeout(PATIENCE, answered).await.is_ok(), "{}", weir.log_text());
    assert_eq!(asked(), ["/apis/apiregistration.k8s.io/v1/apiservices/v1beta2.apps.openyurt.io"]);
}

#[tokio::test]
async fn a_header_that_the_api_server_reads_as_no_token_gets_nothing_of_another_one_offline() {
    let folder = tempfile::tempdir().unwrap();
    let (_server, mut link, weir) = start(&folder).await;
    let token = claiming("system:serviceaccount:default:victim");
    let victim = client(&weir, &format!("Bearer {token}"));
    assert_eq!([status(&victim, ALL).await, status(&victim, MAP).await], [200, 200]);
    let forged = claiming("system:serviceaccount:default:victim").replace(".x", ".forged");
    let attackers = [
        format!("Bearer  {forged}"),
        format!("Bearer  {token}"),
        format!("Bearer\t{token}"),
        format!("Bearer opaque {token}"),
        format!("Bearer opaque {forged}"),
        format!("Bearer {forged}"),
        format!("Basic {token}"),
    ];
    // The API server answers discovery to all whose header it does not take for a token.
    for header in &attackers {
        client(&weir, header).get("/version").await;
        client(&weir, header).get("/apis").await;
    }
    disconnect(&mut link, &weir).await;
    let kept = victim.get(ALL).await;
    assert!(kept.status == 200 && is_warned(&kept), "{}", kept.status);
    assert_eq!(status(&victim, MAP).await, 200, "{}", weir.log_text());
    for header in &attackers {
        for path in [ALL, MAP] {
            assert_eq!(status(&client(&weir, header), path).await, 503, "{header} {path}");
        }
    }
    assert_eq!(status(&weir.client("tool"), ALL).await, 503, "no credential at all");
}

#[tokio::test]
async fn what_was_answered_401_403_or_404_online_does_not_come_back_offline() {
    let folder = tempfile::tempdir().unwrap();
    let (server, mut link, weir) = start(&folder).await;
    server.add_token("denied", "denied", &[]);
    server.add_token("ended", "ended", &[]);
    let (denied, ended, other) =
        (client(&weir, "Bearer denied"), client(&weir, "Bearer ended"), client(&weir, "Bearer opaque"));
    for client in [&denied, &ended] {
        assert_eq!([status(client, ALL).await, status(client, MAP).await], [200, 200]);
    }
    let gone = MAP.replace("settings", "gone");
    server.store().load("{apiVersion: v1, kind: ConfigMap, metadata: {name: gone, namespace: default}}").unwrap();
    assert_eq!([status(&other, ALL).await, status(&other, MAP).await, status(&other, &gone).await], [200, 200, 200]);
    // All of the collection is listed in the background. What changes later is followed when the client reads again.
    objects(&weir, "configmaps", 2).await;
    server.store().delete("v1", "ConfigMap", "default", "gone");
    server.on_request(|request| {
        let token = request.header("authorization").to_owned();
        match (token.as_str(), request.target().starts_with(MAP)) {
            ("Bearer denied", true) => Action::json(403, r#"{"kind":"Status","apiVersion":"v1","code":403}"#),
            ("Bearer ended", _) => Action::json(401, r#"{"kind":"Status","apiVersion":"v1","code":401}"#),
            _ => Action::Serve,
        }
    });
    assert_eq!(
        [status(&denied, MAP).await, status(&ended, MAP).await, status(&other, &gone).await],
        [403, 401, 404],
        "a get goes upstream"
    );
    objects(&weir, "configmaps", 1).await;
    disconnect(&mut link, &weir).await;
    assert_eq!(status(&denied, MAP).await, 503, "denied");
    assert_eq!(status(&denied, ALL).await, 200, "what it was not denied stays");
    assert_eq!([status(&ended, MAP).await, status(&ended, ALL).await], [503, 503], "its token has ended");
    assert_eq!(status(&other, &gone).await, 503, "the object is gone");
    assert_eq!([status(&other, ALL).await, status(&other, MAP).await], [200, 200]);
}

#[tokio::test]
async fn what_ends_one_token_takes_nothing_from_another_of_the_same_user() {
    let folder = tempfile::tempdir().unwrap();
    let (server, mut link, weir) = start(&folder).await;
    server.add_token("other", "tenant", &[]);
    let (ends, other) = (client(&weir, "Bearer opaque"), client(&weir, "Bearer other"));
    let maps = format!("{MAPS}?resourceVersion=0");
    assert_eq!(status(&other, &maps).await, 200);
    // Both read the same store, which is now read with this token.
    let mut events = ends.watch(&format!("{MAPS}?watch=true&resourceVersion=0")).await;
    assert_eq!(events.next_named().await, "ADDED settings");
    // The token ends with what Weir reads for all: a review in the background would end it before.
    server.on_request(|request| match (request.header("authorization"), request.path.as_str()) {
        ("Bearer opaque", MAPS) => Action::json(401, r#"{"kind":"Status","apiVersion":"v1","code":401}"#),
        _ => Action::Serve,
    });
    let is_refused = |request: &Recorded| request.path == MAPS && request.header("authorization") == "Bearer opaque";
    reconnect_until(&server, &mut link, &weir, is_refused).await;
    disconnect(&mut link, &weir).await;
    ended(&weir, &ends, &maps).await;
    assert_eq!([status(&other, &maps).await, status(&other, MAP).await], [200, 200], "{}", weir.log_text());
}

#[tokio::test]
async fn a_permission_that_ends_while_weir_follows_is_gone_offline() {
    let folder = tempfile::tempdir().unwrap();
    let (server, mut link, weir) = start(&folder).await;
    let tenant = client(&weir, "Bearer opaque");
    let maps = format!("{MAPS}?resourceVersion=0");
    // Weir has asked whether it may, and remembers the answer for minutes.
    assert_eq!([status(&tenant, &maps).await, status(&tenant, ALL).await], [200, 200]);
    let mut events = tenant.watch(&format!("{MAPS}?watch=true&resourceVersion=0")).await;
    assert_eq!(events.next_named().await, "ADDED settings");
    server.on_request(|request| match request.path.as_str() {
        MAPS => Action::json(403, r#"{"kind":"Status","apiVersion":"v1","code":403}"#),
        _ => Action::Serve,
    });
    let is_list = |request: &Recorded| request.path == MAPS && request.query.contains("limit=1");
    reconnect_until(&server, &mut link, &weir, is_list).await;
    disconnect(&mut link, &weir).await;
    ended(&weir, &tenant, &maps).await;
    assert_eq!(status(&tenant, ALL).await, 200, "what it was not denied stays");
}

#[tokio::test]
async fn a_token_holds_offline_until_it_expires_and_as_long_as_it_was_accepted() {
    let folder = tempfile::tempdir().unwrap();
    let (server, mut link, weir) = start(&folder).await;
    let soon = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs() + 15;
    let short = format!("e30.{}.x", URL_SAFE_NO_PAD.encode(json!({"exp": soon}).to_string()));
    server.add_token(&short, "short", &[]);
    let (short, lasting) = (client(&weir, &format!("Bearer {short}")), client(&weir, "Bearer opaque"));
    assert_eq!([status(&short, ALL).await, status(&lasting, ALL).await], [200, 200]);
    disconnect(&mut link, &weir).await;
    assert_eq!([status(&short, ALL).await, status(&lasting, ALL).await], [200, 200]);
    let expired = async {
        while status(&short, ALL).await == 200 {
            tokio::time::sleep(std::time::Duration::from_millis(200)).await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(30), expired).await.expect("it expires");
    assert_eq!(status(&lasting, ALL).await, 200);
}

#[tokio::test]
async fn what_a_client_read_upstream_and_all_else_that_it_may_read_holds_offline() {
    let folder = tempfile::tempdir().unwrap();
    let (server, mut link, weir) = start(&folder).await;
    server.set_policy(|asked| asked.user.name != "tenant" || asked.namespace == "default");
    server.enforce(weir_apiserver::Enforce::Everybody);
    server.add_token("admin", "admin", &["system:masters"]);
    let (admin, tenant) = (client(&weir, "Bearer admin"), client(&weir, "Bearer opaque"));
    // As kubectl asks: the latest state, from the API server.
    assert_eq!(status(&admin, "/api/v1/configmaps?limit=500").await, 200);
    assert_eq!(status(&admin, "/api/v1/services?limit=500").await, 200);
    assert_eq!([status(&tenant, MAPS).await, status(&tenant, "/api/v1/configmaps").await], [200, 403]);
    // What else they may read is asked in the background, last of all the watch of the last resource.
    let asked = |user: &'static str| {
        let requests = server.requests();
        requests
            .iter()
            .filter(|request| {
                request.path.ends_with("selfsubjectaccessreviews") && request.header("authorization") == user
            })
            .count()
    };
    let learnt = async {
        let mut count = server.request_count();
        while asked("Bearer admin") < 30 || asked("Bearer opaque") < 60 {
            count.changed().await.unwrap();
        }
    };
    tokio::time::timeout(PATIENCE, learnt).await.expect("both are asked about");
    // The lists for the views come after the reviews.
    let listed = async {
        while listed(&weir, "configmaps").await < 2 || listed(&weir, "services").await < 1 {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    };
    let listed = tokio::time::timeout(PATIENCE, listed).await;
    assert!(listed.is_ok(), "{}", weir.admin().json("/caches").await);
    disconnect(&mut link, &weir).await;
    for path in [MAP, MAPS, "/api/v1/configmaps", "/api/v1/services", "/api/v1/namespaces/default/services"] {
        assert_eq!(status(&admin, path).await, 200, "{path}: {}", weir.log_text());
    }
    // What was listed in full also answers narrower reads, filtered: of one namespace, by a selector, by name, as a watch.
    let labelled = admin.json(&format!("{MAPS}?labelSelector=a%3Db")).await;
    assert_eq!(labelled["items"], json!([]));
    assert_eq!(admin.names(&format!("{MAPS}?fieldSelector=metadata.name%3Dsettings")).await, ["settings"]);
    assert_eq!(admin.watch(&format!("{MAPS}?watch=true")).await.next_named().await, "ADDED settings");
    assert_eq!([status(&tenant, MAPS).await, status(&tenant, MAP).await], [200, 200]);
    assert_eq!([status(&tenant, "/api/v1/configmaps").await, status(&tenant, ALL).await], [503, 503]);
}

#[tokio::test]
async fn a_watch_of_one_name_shows_one_object() {
    let folder = tempfile::tempdir().unwrap();
    let (server, _link, weir) = start(&folder).await;
    server.set_policy(|asked| asked.user.name != "tenant" || asked.name == "web");
    server.enforce(weir_apiserver::Enforce::Everybody);
    let tenant = client(&weir, "Bearer opaque");
    let mut events = tenant.watch("/api/v1/watch/namespaces/default/services/web").await;
    assert_eq!(events.next_named().await, "ADDED web");
    server
        .store()
        .load(
            "{apiVersion: v1, kind: Service, metadata: {name: other, namespace: default}, spec: {ports: [{port: 1}]}}",
        )
        .unwrap();
    server.store().load("{apiVersion: v1, kind: Service, metadata: {name: web, namespace: default, labels: {a: b}}, spec: {ports: [{port: 2}]}}").unwrap();
    assert_eq!(events.next_named().await, "MODIFIED web", "and nothing of the other one");
    assert_eq!(status(&tenant, "/api/v1/watch/namespaces/default/services").await, 403);
}

#[tokio::test]
async fn impersonation_with_the_node_credential_is_refused() {
    let server = api_server().start().await.unwrap();
    let node = kubeconfig(server.url(), "", "token: node");
    let uid = weir_tests::daemon::own_uid().to_string();
    let weir = Setup::new(server.url())
        .filters("filters: []")
        .file("--node-kubeconfig", "node.yaml", &node)
        .flag("--node-credential-uids", &uid)
        .start_ready()
        .await;
    let kubectl = weir.client("kubectl");
    assert_eq!(status(&kubectl, "/api/v1/services").await, 200);
    let restricted = kubectl.clone().with("impersonate-user", "restricted");
    assert_eq!(status(&restricted, "/api/v1/services").await, 403);
    let written = restricted.send(Method::POST, "/api/v1/namespaces", "{}").await;
    assert_eq!(written.status(), 403);
}

/// A token of a service account for this pod, issued through the daemon, as kubelet asks for it.
async fn issued(weir: &Daemon, account: &str) -> Client {
    let path = format!("/api/v1/namespaces/default/serviceaccounts/{account}/token");
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "name": "web", "uid": "pod-1"});
    let body = json!({
        "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"boundObjectRef": pod},
    });
    let kubelet = client(weir, "Bearer opaque").with("content-type", "application/json");
    let answer = whole(kubelet.send(Method::POST, &path, body.to_string()).await).await.unwrap();
    assert_eq!(answer.status, 201, "{}", answer.text());
    client(weir, &format!("Bearer {}", answer.json()["status"]["token"].as_str().unwrap()))
}

#[tokio::test]
async fn a_token_inherits_nothing_of_another_service_account_or_of_one_that_had_its_name() {
    let folder = tempfile::tempdir().unwrap();
    let (server, mut link, weir) = start(&folder).await;
    let account = |name: &str| {
        let metadata = json!({"name": name, "namespace": "default"});
        server.store().put(json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata})).unwrap();
    };
    account("web");
    account("other");
    let (reader, renewed) = (issued(&weir, "web").await, issued(&weir, "web").await);
    let other = issued(&weir, "other").await;
    assert_eq!([status(&reader, ALL).await, status(&reader, MAP).await], [200, 200]);
    let uid = || server.store().get("v1", "ServiceAccount", "default", "web").unwrap()["metadata"]["uid"].clone();
    let first = uid();
    server.store().delete("v1", "ServiceAccount", "default", "web");
    account("web");
    assert_ne!(uid(), first);
    let recreated = issued(&weir, "web").await;
    disconnect(&mut link, &weir).await;
    assert_eq!(status(&renewed, ALL).await, 200, "of the same line, and never sent before");
    for path in [ALL, MAP] {
        assert_eq!(status(&reader, path).await, 200, "{path}: {}", weir.log_text());
        assert_eq!(status(&other, path).await, 503, "{path}: of another account, for the same pod");
        assert_eq!(status(&recreated, path).await, 503, "{path}: of an account with the same name");
    }
}

#[tokio::test]
async fn what_stands_behind_the_api_server_ends_no_credential() {
    const PASSED_ON: [&str; 4] = [
        "/api/v1/namespaces/default/pods/web/proxy/login",
        "/api/v1/namespaces/default/services/web/proxy/login",
        "/api/v1/nodes/edge-a/proxy/pods",
        "/apis/metrics.k8s.io/v1beta1/nodes",
    ];
    for code in [401, 403] {
        let folder = tempfile::tempdir().unwrap();
        let (server, mut link, weir) = start(&folder).await;
        server.on_request(move |request| {
            let refuses = PASSED_ON.contains(&request.path.as_str());
            let ends = request.path == "/api/v1/nodes" && request.header("authorization") == "Bearer ended";
            let status = |code| Action::json(code, format!(r#"{{"kind":"Status","apiVersion":"v1","code":{code}}}"#));
            if refuses {
                status(code)
            } else if ends {
                status(401)
            } else {
                Action::Serve
            }
        });
        let mut kept = Vec::new();
        for (number, path) in PASSED_ON.iter().enumerate() {
            let token = format!("kept-{number}");
            server.add_token(&token, &token, &[]);
            kept.push((client(&weir, &format!("Bearer {token}")), path));
        }
        server.add_token("ended", "ended", &[]);
        let ended = client(&weir, "Bearer ended");
        for client in kept.iter().map(|(client, _)| client).chain([&ended]) {
            assert_eq!([status(client, ALL).await, status(client, MAP).await], [200, 200]);
        }
        // The last that each of them hears.
        for (client, path) in &kept {
            assert_eq!(status(client, path).await, code, "{path}");
        }
        assert_eq!(status(&ended, "/api/v1/nodes").await, 401);
        disconnect(&mut link, &weir).await;
        for (client, path) in &kept {
            assert_eq!([status(client, ALL).await, status(client, MAP).await], [200, 200], "{code} of {path}");
        }
        assert_eq!([status(&ended, ALL).await, status(&ended, MAP).await], [503, 503], "by the API server itself");
    }
}

/// Beside a token in a WebSocket sub-protocol, which of both counts is not known, and nothing may be kept for a client that has none.
#[tokio::test]
async fn an_explanation_with_two_tokens_gives_a_client_without_one_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (server, mut link, weir) = start(&folder).await;
    server.set_policy(|asked| asked.token.is_some());
    server.enforce(Enforce::Everybody);
    let both = weir.admin().with("authorization", "Bearer opaque");
    let both = both.with("connection", "Upgrade").with("upgrade", "websocket");
    let both = both.with("sec-websocket-protocol", "v4.channel.k8s.io, base64url.bearer.authorization.k8s.io.eA");
    let path = "/api/v1/namespaces/default/services/web";
    let explained = both.get(&format!("/explain{path}?component=kube-proxy")).await;
    assert_eq!(explained.status, 200, "{}", explained.text());
    let (anonymous, named) = (weir.client("tool"), format!("{ALL}&fieldSelector=metadata.name%3Dweb"));
    assert_eq!((status(&anonymous, &named).await, status(&anonymous, path).await), (403, 403));
    disconnect(&mut link, &weir).await;
    assert_eq!((status(&anonymous, &named).await, status(&anonymous, path).await), (503, 503));
}
