//! Traces of requests, sent to a collector by a daemon that is built with the feature `otlp`.

use tokio::process::Command;
use weir_apiserver::Action;
use weir_tests::built;
use weir_tests::collector::{CollectedSpan, Collector};
use weir_tests::daemon::Setup;
use weir_tests::plane::skipped;

use super::{NO_LOAD_BALANCERS, edge};

/// The trace and the span of a client, as in the examples of the W3C recommendation.
const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

/// A daemon that sends traces; `None` if there is none.
fn traced(server: &str, collector: &Collector) -> Option<Setup> {
    let program = built::weir_with_traces();
    if !program.exists() {
        skipped("there is no daemon with traces: `make otlp` builds it");
        return None;
    }
    let setup = Setup::new(server).program(program).flag("--otlp-endpoint", collector.url());
    // How soon the SDK sends a batch, in milliseconds. The spans are those of requests that go to the API server.
    Some(
        setup.uncached().env("OTEL_BSP_SCHEDULE_DELAY", "50").filters(NO_LOAD_BALANCERS).bundled("discardcloudservice"),
    )
}

fn named<'a>(spans: &'a [CollectedSpan], name: &str) -> Vec<&'a CollectedSpan> {
    spans.iter().filter(|span| span.trace == TRACE && span.name == name).collect()
}

#[tokio::test]
async fn a_list_is_a_trace_of_its_filters_and_goes_on_at_the_api_server() {
    let (server, collector) = (edge().await, Collector::start().await);
    let Some(setup) = traced(server.url(), &collector) else { return };
    let weir = setup.start_ready().await;
    let client = weir.client("kube-proxy").with("traceparent", PARENT).with("tracestate", "vendor=1");
    let names = client.names("/api/v1/services").await;
    let spans = collector.spans(|spans| !named(spans, "list services").is_empty()).await;

    let request = named(&spans, "list services")[0];
    assert_eq!((request.parent.as_str(), request.kind, request.failed), ("00f067aa0ba902b7", 2, false));
    let attribute = |name: &str| request.attributes.get(name).map(String::as_str).unwrap_or_default();
    assert_eq!((attribute("weir.component"), attribute("k8s.resource")), ("kube-proxy", "services"));
    assert_eq!((attribute("url.path"), attribute("http.response.status_code")), ("/api/v1/services", "200"));
    assert_eq!((attribute("http.request.method"), attribute("k8s.verb")), ("GET", "list"));
    assert_eq!(request.resource["service.name"], "weir");
    assert_eq!(request.resource["k8s.node.name"], "edge-a");

    // The filter's batches count every object once.
    let batches = named(&spans, "discardcloudservice");
    assert!(!batches.is_empty() && batches.iter().all(|batch| batch.parent == request.id), "{spans:#?}");
    let count =
        |name: &str| batches.iter().map(|batch| batch.attributes[name].parse::<usize>().unwrap()).sum::<usize>();
    assert_eq!((count("kept") + count("edited"), count("failed")), (names.len(), 0));
    assert_eq!(count("objects"), names.len() + count("hidden"));
    assert!(count("hidden") > 0, "a LoadBalancer is hidden");

    // The API server sees the span that Weir's request to it has.
    // Before the list, the stamp of the filters was read.
    let upstream = *named(&spans, "GET upstream").last().unwrap();
    assert_eq!((upstream.kind, &upstream.parent), (3, &request.id));
    let recorded = server.requests();
    let list = recorded.iter().rfind(|request| request.path == "/api/v1/services").unwrap();
    assert_eq!(list.header("traceparent"), format!("00-{TRACE}-{}-01", upstream.id));
    assert_eq!(list.header("tracestate"), "vendor=1");
}

#[tokio::test]
async fn a_watch_is_a_span_until_it_ends_and_failures_are_marked() {
    let (server, collector) = (edge().await, Collector::start().await);
    let Some(setup) = traced(server.url(), &collector) else { return };
    let weir = setup.start_ready().await;
    let client = weir.client("kubectl").with("traceparent", PARENT);
    // A view is shared: what it filters is no part of a watch.
    let tables = client.clone().with("accept", "application/json;as=Table;v=v1;g=meta.k8s.io");
    let mut watch = tables.watch("/api/v1/services?watch=1&resourceVersion=0").await;
    watch.next().await;
    // The filter of an event of a Table is a part of the watch, which has not ended.
    let spans = collector.spans(|spans| !named(spans, "discardcloudservice").is_empty()).await;
    assert!(named(&spans, "watch services").is_empty());
    drop(watch);
    let spans = collector.spans(|spans| !named(spans, "watch services").is_empty()).await;
    let parent = &named(&spans, "watch services")[0].id;
    assert!(named(&spans, "discardcloudservice").iter().all(|batch| batch.parent == *parent));

    server.on_request(|request| match request.path.as_str() {
        "/api/v1/nodes" => Action::json(500, "{}"),
        _ => Action::Serve,
    });
    client.get("/api/v1/nodes").await;
    let spans = collector.spans(|spans| !named(spans, "list nodes").is_empty()).await;
    assert!(named(&spans, "list nodes")[0].failed);
}

#[tokio::test]
async fn a_collector_that_is_away_is_logged_once_and_stops_nothing() {
    let (server, collector) = (edge().await, Collector::start().await);
    let Some(setup) = traced(server.url(), &collector) else { return };
    collector.refuse(true);
    let weir = setup.start_ready().await;
    let client = weir.client("kube-proxy").with("traceparent", PARENT);
    weir.client("kubelet").names("/api/v1/services").await;
    let (at, _) = weir.logged_after(0, "traces are lost").await;
    client.names("/api/v1/services").await;
    collector.refuse(false);
    let (back, _) = weir.logged_after(at, "takes traces again").await;
    client.names("/api/v1/services").await;
    collector.spans(|spans| !named(spans, "list services").is_empty()).await;
    assert!(back > at && weir.log_text().matches("traces are lost").count() == 1, "{}", weir.log_text());
    // What is left is sent at the end, and a collector that is away delays it by a second at most.
    assert_eq!(weir.stop().await, Some(0));
}

#[tokio::test]
async fn a_daemon_without_traces_says_so_and_passes_the_context_of_clients() {
    let server = edge().await;
    let flags =
        ["serve", "--node-name", "a", "--server", "http://127.0.0.1:1", "--otlp-endpoint", "http://127.0.0.1:4318"];
    let output = Command::new(built::weir()).args(flags).env_clear().output().await.unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(64), "{error}");
    assert_eq!(error, "error: --otlp-endpoint: this Weir is built without traces: build it with `--features otlp`\n");
    let weir = Setup::new(server.url()).filters(NO_LOAD_BALANCERS).bundled("discardcloudservice").start_ready().await;
    for path in ["/api/v1/services", "/api/v1/nodes"] {
        weir.client("kube-proxy").with("traceparent", PARENT).names(path).await;
        let recorded = server.requests();
        let list = recorded.iter().rfind(|request| request.path == path).unwrap();
        assert_eq!(list.header("traceparent"), PARENT);
    }
}

#[tokio::test]
async fn an_endpoint_that_is_no_url_is_refused() {
    let program = built::weir_with_traces();
    if !program.exists() {
        return skipped("there is no daemon with traces: `make otlp` builds it");
    }
    for wrong in ["localhost:4318", "grpc://localhost:4317", "http://localhost:4318/?a=b"] {
        let flags = ["serve", "--node-name", "a", "--server", "http://127.0.0.1:1", "--otlp-endpoint", wrong];
        let output = Command::new(&program).args(flags).env_clear().output().await.unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(64), "{error}");
        assert!(error.contains("--otlp-endpoint") && error.contains(wrong), "{error}");
    }
}
