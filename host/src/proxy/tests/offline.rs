//! What clients get beside views while no API server can be reached: tokens, single objects, discovery.

use std::path::Path;

use http_body_util::Full;
use weir_runtime::Outcome;
use weir_store::disk::{DiskCache, DiskConfig};

use super::*;

const TOKEN: &str = "/api/v1/namespaces/default/serviceaccounts/web/token";
const SETTINGS: &str = "/api/v1/namespaces/default/configmaps/settings";
const MINE: (&str, &str) = ("authorization", "Bearer mine");
const OTHER: (&str, &str) = ("authorization", "Bearer other");

fn open(directory: &Path) -> Arc<DiskCache> {
    DiskCache::new(DiskConfig::new(&directory.join("cache"), "node"), Arc::default())
}

async fn start(disk: Option<&Arc<DiskCache>>, upstream: Option<UpstreamConfig>) -> ProxyFixture {
    fixture_with(|setup| {
        setup.cached = ["services", "configmaps", "secrets"].map(|name| name.parse().unwrap()).into();
        setup.disk = disk.cloned();
        setup.upstream = upstream.unwrap_or(setup.upstream.clone());
    })
    .await
}

fn unreachable() -> UpstreamConfig {
    UpstreamConfig::new(kube::Config::new("http://127.0.0.1:1".parse().unwrap()))
}

async fn stop(fixture: ProxyFixture, disk: Arc<DiskCache>) -> ApiServer {
    fixture.tasks.drain(Duration::from_secs(10)).await;
    disk.close().await;
    fixture.server
}

/// Ends the API server: its port refuses connections.
async fn end_api_server(fixture: &mut ProxyFixture) {
    fixture.server = ApiServer::builder().start().await.unwrap();
}

impl ProxyFixture {
    async fn write(&self, path: &str, user: (&str, &str), body: &Value) -> (http::response::Parts, Value) {
        let client = Client::builder(TokioExecutor::new()).build_http();
        let request = Request::post(format!("{}{path}", self.url))
            .header("content-type", "application/json")
            .header(user.0, user.1)
            .body(Full::new(Bytes::from(body.to_string())));
        let (parts, body) = client.request(request.unwrap()).await.unwrap().into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        (parts, serde_json::from_slice(&body).unwrap())
    }

    fn accounts(&self) {
        let account = |kind: &str, name: &str| {
            let metadata = json!({"name": name, "namespace": "default"});
            json!({"apiVersion": "v1", "kind": kind, "metadata": metadata})
        };
        self.server.store().put(account("ServiceAccount", "web")).unwrap();
        self.server.store().put(account("ConfigMap", "settings")).unwrap();
    }
}

fn token_request(pod: &str) -> Value {
    json!({
        "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
        "spec": {"audiences": ["a"], "boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": pod, "uid": pod}}
    })
}

#[tokio::test]
async fn a_token_is_replayed_to_who_got_it_and_for_the_same_request() {
    let mut fixture = start(None, None).await;
    fixture.accounts();
    let (issued, token) = fixture.write(TOKEN, MINE, &token_request("p")).await;
    assert_eq!(issued.status, StatusCode::CREATED);
    end_api_server(&mut fixture).await;
    let (replayed, same) = fixture.write(TOKEN, MINE, &token_request("p")).await;
    assert_eq!((replayed.status, &same), (StatusCode::CREATED, &token));
    assert_eq!(replayed.headers["content-type"], issued.headers["content-type"]);
    assert!(replayed.headers.contains_key("warning"));
    for (user, pod) in [(OTHER, "p"), (MINE, "q")] {
        let (refused, status) = fixture.write(TOKEN, user, &token_request(pod)).await;
        assert_eq!((refused.status, &status["kind"]), (StatusCode::SERVICE_UNAVAILABLE, &json!("Status")));
    }
}

#[tokio::test]
async fn an_expired_token_is_not_replayed() {
    let mut fixture = start(None, None).await;
    fixture.server.on_request(|_| {
        let status = json!({"token": "t", "expirationTimestamp": "2020-01-01T00:00:00Z"});
        let body = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "status": status});
        weir_apiserver::Action::json(201, body.to_string())
    });
    assert_eq!(fixture.write(TOKEN, MINE, &token_request("p")).await.0.status, StatusCode::CREATED);
    end_api_server(&mut fixture).await;
    assert_eq!(fixture.write(TOKEN, MINE, &token_request("p")).await.0.status, StatusCode::SERVICE_UNAVAILABLE);
}

#[tokio::test]
async fn other_writes_fail_and_say_since_when_without_retry_after() {
    let mut fixture = start(None, None).await;
    fixture.accounts();
    end_api_server(&mut fixture).await;
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"}});
    for _ in 0..2 {
        let (parts, status) = fixture.write("/api/v1/namespaces/default/services", MINE, &service).await;
        assert_eq!(parts.status, StatusCode::SERVICE_UNAVAILABLE);
        assert!(!parts.headers.contains_key("retry-after"));
        let message = status["message"].as_str().unwrap();
        assert!(message.starts_with("the API server cannot be reached since 20"), "{message}");
    }
}

#[tokio::test]
async fn a_restart_without_the_api_server_replays_tokens_objects_and_discovery() {
    let folder = tempfile::tempdir().unwrap();
    let disk = open(folder.path());
    let fixture = start(Some(&disk), None).await;
    fixture.accounts();
    let (_, token) = fixture.write(TOKEN, MINE, &token_request("p")).await;
    let read = async |fixture: &ProxyFixture, path: &str, user| {
        let (parts, body) = fixture.send(path, &[user]).await.into_parts();
        let body: Value = serde_json::from_slice(&body.collect().await.unwrap().to_bytes()).unwrap();
        (parts.status, body)
    };
    let object = read(&fixture, SETTINGS, MINE).await;
    let discovery = read(&fixture, "/apis", MINE).await;
    assert_eq!((object.0, discovery.0), (StatusCode::OK, StatusCode::OK));
    drop(stop(fixture, disk).await);
    for entry in std::fs::read_dir(folder.path().join("cache")).unwrap() {
        let bytes = std::fs::read(entry.unwrap().path()).unwrap();
        assert!(!bytes.windows(9).any(|part| part == b"token-of-"), "tokens are encrypted");
    }

    let disk = open(folder.path());
    let fixture = start(Some(&disk), Some(unreachable())).await;
    assert_eq!(fixture.write(TOKEN, MINE, &token_request("p")).await.1, token);
    assert_eq!(read(&fixture, SETTINGS, MINE).await, object);
    assert_eq!(read(&fixture, &format!("{SETTINGS}?resourceVersion=0"), MINE).await, object);
    assert_eq!(read(&fixture, "/apis", MINE).await, discovery);
    assert_eq!(read(&fixture, "/apis", OTHER).await.0, StatusCode::SERVICE_UNAVAILABLE, "it was never accepted");
    let unknown = read(&fixture, "/api/v1/namespaces/default/configmaps/none", MINE).await;
    assert_eq!(unknown.0, StatusCode::SERVICE_UNAVAILABLE, "absence is not claimed");
    assert_eq!(read(&fixture, SETTINGS, OTHER).await.0, StatusCode::SERVICE_UNAVAILABLE);
    stop(fixture, disk).await;
}

#[tokio::test]
async fn filters_apply_to_a_remembered_object() {
    let mut fixture = start(None, None).await;
    fixture.accounts();
    fixture.filter("*/configmaps", &Script::new(|_| Outcome::Unchanged));
    let (_, object) = fixture.json(SETTINGS).await;
    end_api_server(&mut fixture).await;
    assert_eq!(fixture.json(SETTINGS).await, (StatusCode::OK, object.clone()));
    fixture.filter("*/configmaps", &Script::new(|_| Outcome::Hidden));
    assert_eq!(fixture.json(SETTINGS).await.0, StatusCode::NOT_FOUND);
    fixture.no_filters();
    assert_eq!(fixture.json(SETTINGS).await, (StatusCode::OK, object));
}

#[tokio::test]
async fn secrets_and_what_no_node_reads_are_not_remembered_of_other_clients() {
    let mut fixture = start(None, None).await;
    fixture.accounts();
    let put = |api: &str, kind: &str| {
        let metadata = json!({"name": "web", "namespace": "default"});
        fixture.server.store().put(json!({"apiVersion": api, "kind": kind, "metadata": metadata})).unwrap();
    };
    put("v1", "Secret");
    put("apps/v1", "Deployment");
    let (secret, deployment) =
        ("/api/v1/namespaces/default/secrets/web", "/apis/apps/v1/namespaces/default/deployments/web");
    let kubelet = ("user-agent", "kubelet/v1.34");
    let gets = [(SETTINGS, MINE), (secret, MINE), (deployment, MINE), (secret, kubelet), (deployment, kubelet)];
    for (path, header) in gets {
        let (parts, body) = fixture.send(path, &[header]).await.into_parts();
        body.collect().await.unwrap();
        assert_eq!(parts.status, StatusCode::OK, "{path}");
    }
    end_api_server(&mut fixture).await;
    let mut offline = Vec::new();
    for (path, header) in gets {
        offline.push(fixture.send(path, &[header]).await.status().as_u16());
    }
    assert_eq!(offline, [200, 503, 503, 503, 200], "who calls itself kubelet has no rights of a node by that");
}

#[tokio::test]
async fn permissions_hold_offline_for_tokens_of_one_line_and_for_nobody_who_only_claims_so() {
    let mut fixture = fixture_with(|setup| setup.cached = vec!["services".parse().unwrap()]).await;
    fixture.accounts();
    fixture.service("a", "ClusterIP");
    let issue = async |fixture: &ProxyFixture, pod: &str, audiences: &[&str]| {
        let mut request = token_request(pod);
        request["spec"]["audiences"] = json!(audiences);
        let (_, answer) = fixture.write(TOKEN, MINE, &request).await;
        answer["status"]["token"].as_str().unwrap().to_owned()
    };
    let (allowed, renewed) = (issue(&fixture, "p", &[]).await, issue(&fixture, "p", &[]).await);
    let (other_pod, other_audience) = (issue(&fixture, "q", &[]).await, issue(&fixture, "p", &["vault"]).await);
    assert_ne!(allowed, renewed);
    let list = async |fixture: &ProxyFixture, token: &str| {
        let header = format!("Bearer {token}");
        fixture.send("/api/v1/services?resourceVersion=0", &[("authorization", &header)]).await.status()
    };
    assert_eq!(list(&fixture, &allowed).await, StatusCode::OK);
    end_api_server(&mut fixture).await;
    let (head, _) = renewed.rsplit_once('.').unwrap();
    for (token, expected, why) in [
        (&allowed, StatusCode::OK, "it was accepted and reviewed"),
        (&renewed, StatusCode::OK, "the API server has issued both for one pod"),
        (&other_pod, StatusCode::SERVICE_UNAVAILABLE, "its pod has read nothing"),
        (&other_audience, StatusCode::SERVICE_UNAVAILABLE, "it is for another server"),
        (&format!("{head}.x"), StatusCode::SERVICE_UNAVAILABLE, "it only claims to be of that pod"),
        (&format!(" {renewed}"), StatusCode::SERVICE_UNAVAILABLE, "the API server reads no token there"),
        (&"unknown".to_owned(), StatusCode::SERVICE_UNAVAILABLE, "nobody vouches for it"),
    ] {
        assert_eq!(list(&fixture, token).await, expected, "{why}");
    }
}

#[tokio::test]
async fn a_permission_counts_only_while_the_api_server_cannot_be_reached() {
    let fixture = fixture_with(|setup| setup.cached = vec!["services".parse().unwrap()]).await;
    fixture.service("a", "ClusterIP");
    fixture.server.add_token("mine", "reader", &[]);
    let list = async || fixture.send("/api/v1/services?resourceVersion=0", &[MINE]).await.status();
    assert_eq!(list().await, StatusCode::OK);
    let other = "/api/v1/namespaces/default/services?resourceVersion=0";
    fixture.server.on_request(|request| match request.target() {
        target if target.contains("selfsubjectaccessreviews") => weir_apiserver::Action::json(500, "{}"),
        _ => weir_apiserver::Action::json(403, r#"{"kind":"Status","code":403}"#),
    });
    // The list of the namespace was not reviewed; that of all namespaces, which includes it, was.
    assert_eq!(fixture.send(other, &[MINE]).await.status(), StatusCode::FORBIDDEN);
}

/// kubectl reads an object as a Table, and a loop of it must not fetch the whole object as often.
#[tokio::test]
async fn the_whole_of_an_object_that_is_read_in_part_is_fetched_once_at_a_time() {
    let fixture = start(None, None).await;
    fixture.accounts();
    let path = "/api/v1/namespaces/default/configmaps/settings";
    let metadata = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
    let arrived = Arc::new(tokio::sync::Semaphore::new(0));
    let (hang, is_whole) = (arrived.clone(), |accept: &str| accept == "application/json");
    fixture.server.on_request(move |request| match request.path == path && is_whole(request.header("accept")) {
        true => {
            hang.add_permits(1);
            weir_apiserver::Action::Hang
        }
        false => weir_apiserver::Action::Serve,
    });
    let headers = [("accept", metadata), ("authorization", "Bearer a"), ("user-agent", "kubelet/v1")];
    for _ in 0..5 {
        assert_eq!(fixture.send(path, &headers).await.status(), StatusCode::OK);
    }
    let _first = tokio::time::timeout(Duration::from_secs(10), arrived.acquire()).await.unwrap().unwrap();
    let whole =
        fixture.server.requests().into_iter().filter(|sent| sent.path == path && is_whole(sent.header("accept")));
    assert_eq!(whole.count(), 1);
}
