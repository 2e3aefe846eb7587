//! The answers of the admin port.

use http::header::HOST;
use http_body_util::BodyExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::super::status::{FilterStatus, ReloadError, ReloadResult};
use super::*;
use weir_spec::LookupSpec;

use crate::reload::ReloadMetrics;
use crate::serve::ProxyMetrics;

fn admin() -> (Admin, Arc<FilterStatus>, Arc<ReloadMetrics>) {
    let (status, mut registry) = (Arc::new(FilterStatus::default()), Registry::default());
    let (reload, metrics) = (Arc::<ReloadMetrics>::default(), Arc::<AdminMetrics>::default());
    reload.register(&mut registry);
    metrics.register(&mut registry);
    ProxyMetrics::default().register(&mut registry);
    let parts = AdminParts {
        sources: HealthSources::of_filters(status.clone()),
        registry,
        metrics,
        runtime: Arc::default(),
        engine: Engine::new(None).unwrap(),
        clients: Arc::default(),
        activity: Arc::default(),
        node_name: "edge-a".to_owned(),
        proxy: None,
    };
    (Admin::new(parts), status, reload)
}

fn client() -> Client {
    let address = "127.0.0.1:1".parse().unwrap();
    let connection = Connections::new(1).admit(ConnectionPeer::of(address, None)).unwrap();
    Client { address, local: None, connection }
}

async fn get(admin: &Admin, path: &str) -> (StatusCode, String) {
    let response = admin.respond(&Method::GET, path, "");
    let status = response.status();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

#[tokio::test]
async fn readyz_reports_why_the_daemon_is_not_ready() {
    let (admin, filters, _) = admin();
    assert_eq!(get(&admin, "/livez").await, (StatusCode::OK, "ok\n".into()));
    let (status, text) = get(&admin, "/readyz").await;
    assert_eq!(
        (status, text.as_str()),
        (StatusCode::SERVICE_UNAVAILABLE, "not ready: the configuration has not been read yet\n")
    );
    let error = ReloadError { filter: Some("a".parse().unwrap()), reason: "no such module".into() };
    filters.refused(ReloadResult::refused("f.yaml", vec![error], &[]));
    let (status, text) = get(&admin, "/readyz").await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(text, "not ready: f.yaml was refused: filter a: no such module\n");
    filters.live(&[], ReloadResult::applied("f.yaml", &[]));
    assert_eq!(get(&admin, "/readyz").await.0, StatusCode::OK, "a set without filters is complete");
}

#[tokio::test]
async fn filters_shows_the_last_reload() {
    let (admin, filters, _) = admin();
    filters.live(&[], ReloadResult::applied("ConfigMap kube-system/weir-filters", &["a warning".into()]));
    let (status, text) = get(&admin, "/filters").await;
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(status, StatusCode::OK);
    assert_eq!(json["lastReload"]["source"], "ConfigMap kube-system/weir-filters");
    assert_eq!(json["lastReload"]["warnings"][0], "a warning");
    assert_eq!(json["ready"], true);
}

#[tokio::test]
async fn metrics_are_openmetrics() {
    let (admin, filters, metrics) = admin();
    metrics.reload("applied");
    let (_, text) = get(&admin, "/metrics").await;
    assert!(text.ends_with("# EOF\n"), "{text}");
    for line in
        ["weir_reloads_total{result=\"applied\"} 1", "weir_ready 0", "weir_code_cache_hits_total 0", "weir_watches 0"]
    {
        assert!(text.lines().any(|found| found == line), "{line} in {text}");
    }
    let memory = text.lines().find_map(|line| line.strip_prefix("process_resident_memory_bytes ")).unwrap();
    assert!(memory.parse::<u64>().unwrap() > 1 << 20, "{memory}");
    filters.live(&[], ReloadResult::applied("f", &[]));
    assert!(get(&admin, "/metrics").await.1.contains("weir_ready 1"));
}

#[tokio::test]
async fn readyz_filters_and_metrics_report_a_failing_reflector() {
    let (admin, ..) = admin();
    let lookup = LookupSpec::all("services".parse().unwrap());
    let _handle = admin.0.parts.sources.reflectors.open(&lookup);
    let (_, text) = get(&admin, "/readyz").await;
    assert!(text.ends_with("yet; listing services failed: no API server is configured\n"), "{text}");
    let json: serde_json::Value = serde_json::from_str(&get(&admin, "/filters").await.1).unwrap();
    assert_eq!(json["lookups"][0]["resource"], "services");
    assert_eq!(json["lookups"][0]["error"], "listing services failed: no API server is configured");
    let text = get(&admin, "/metrics").await.1;
    assert!(text.contains("weir_reflectors 1\n") && text.contains("weir_reflectors_degraded 1\n"), "{text}");
}

#[tokio::test]
async fn a_foreign_host_gets_nothing_but_probes() {
    let (admin, ..) = admin();
    let status = async |path: &str, host: &str| {
        let request = Request::builder().uri(path).header(HOST, host).body(()).unwrap();
        admin.checked(request, &client()).await.status()
    };
    for host in ["evil.example", "evil.example:10267", "edge-b", "", "127.0.0.1.evil.example", "a b"] {
        for path in ["/filters", "/caches", "/metrics", "/status", "/", "/%3Cscript%3E"] {
            assert_eq!(status(path, host).await, StatusCode::FORBIDDEN, "{host} {path}");
        }
        assert_eq!(status("/livez", host).await, StatusCode::OK, "kubelet's configuration may name any");
    }
    for host in ["127.0.0.1:10267", "[::1]:10267", "10.0.0.7", "localhost:1", "Edge-A:10267"] {
        assert_eq!(status("/filters", host).await, StatusCode::OK, "{host}");
    }
    let absolute = Request::builder().uri("http://evil.example/filters").header(HOST, "localhost").body(()).unwrap();
    assert_eq!(admin.checked(absolute, &client()).await.status(), StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn other_paths_and_methods_get_404_and_405() {
    let (admin, ..) = admin();
    assert_eq!(get(&admin, "/index.html").await.0, StatusCode::NOT_FOUND);
    let response = admin.respond(&Method::POST, "/livez", "");
    assert_eq!(
        (response.status(), response.headers()[ALLOW].to_str().unwrap()),
        (StatusCode::METHOD_NOT_ALLOWED, "GET, HEAD")
    );
}

#[tokio::test]
async fn the_port_serves_over_tcp_until_the_daemon_stops() {
    let (admin, ..) = admin();
    let tasks = Tasks::default();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    admin.serve(listener, &tasks);
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(b"GET /livez HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").await.unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    assert!(text.starts_with("HTTP/1.1 200 OK\r\n") && text.ends_with("ok\n"), "{text}");
    let idle = TcpStream::connect(address).await.unwrap();
    assert!(tasks.drain(Duration::from_secs(10)).await, "an idle connection does not delay the stop");
    drop(idle);
}

#[tokio::test]
async fn status_is_the_union_of_what_the_page_shows() {
    let (admin, filters, _) = admin();
    let error = ReloadError { filter: Some("a".parse().unwrap()), reason: "<script>".repeat(1000) };
    filters.refused(ReloadResult::refused("f.yaml", vec![error], &[]));
    admin.0.parts.clients.begin("kube-proxy", false).answered(StatusCode::BAD_GATEWAY);
    let lookup = LookupSpec::all("services".parse().unwrap());
    let _handle = admin.0.parts.sources.reflectors.open(&lookup);
    let (status, text) = get(&admin, "/status").await;
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!((status, &json["node"], &json["ready"]), (StatusCode::OK, &"edge-a".into(), &false.into()));
    assert_eq!(json["filters"][0]["state"], "failed");
    assert_eq!(json["filters"][0]["objects"]["kept"], 0);
    assert!(json["filters"][0]["lastError"].as_str().unwrap().len() < 1100, "texts are bounded");
    assert_eq!(json["reloads"][0]["result"], "refused");
    assert_eq!(json["activity"], json!({"until": null, "requests": [], "events": [], "hidden": []}));
    assert_eq!(json["lookups"][0]["resource"], "services");
    assert_eq!((&json["clients"][0]["component"], &json["clients"][0]["failed"]), (&"kube-proxy".into(), &1.into()));
    for n in 0..1000 {
        admin.0.parts.clients.begin(&"\u{7}".repeat(n), false);
    }
    assert!(get(&admin, "/status").await.1.len() < 200 << 10);
}

#[tokio::test]
async fn every_answer_has_headers_against_misuse_by_a_browser() {
    let (admin, ..) = admin();
    let get = async |path: &str| {
        let request = Request::builder().uri(path).header(HOST, "localhost").body(()).unwrap();
        admin.checked(request, &client()).await
    };
    for path in ["/", "/?q=%3Cscript%3E", "/status", "/metrics", "/filters", "/nothing"] {
        let response = get(path).await;
        assert_eq!(response.headers()["x-content-type-options"], "nosniff", "{path}");
        assert_eq!(response.headers()["cache-control"], "no-store", "{path}");
        let is_page = path.split('?').next() == Some("/");
        assert_eq!(response.headers()["content-type"] == "text/html; charset=utf-8", is_page, "{path}");
        assert_eq!(response.headers().contains_key("content-security-policy"), is_page, "{path}");
    }
}
