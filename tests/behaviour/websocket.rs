//! Watches over a WebSocket: one frame an event, from a watch cache, through filters and forwarded.

use bytes::Bytes;
use futures_util::{SinkExt as _, StreamExt as _};
use http::{HeaderMap, Method, StatusCode};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Message, Role};
use weir_apiserver::{ApiServer, End, Enforce};
use weir_document::protobuf::FrameSplitter;
use weir_tests::client::{Client, PATIENCE, Tunnel, streamed};
use weir_tests::daemon::{Daemon, Setup};
use weir_tests::pki::{Authority, kubeconfig};
use weir_tests::protobuf::{self, PROTOBUF};

use super::{NO_LOAD_BALANCERS, edge, service};

const SERVICES: &str = "/api/v1/services";
const WATCH: &str = "/api/v1/services?watch=true";
const SEVERAL: &str = "/api/v1/services?watch=true&allowWatchBookmarks=true&resourceVersion=0";

/// An open watch.
struct Socket {
    headers: HeaderMap,
    stream: WebSocketStream<Tunnel>,
}

/// Where the events of a watch come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    Cached,
    Filtered,
    Forwarded,
}

impl Socket {
    async fn open(client: &Client, path: &str) -> Self {
        let (answer, connection) = client.open_websocket(path).await;
        let connection = connection.unwrap_or_else(|| panic!("{path}: {} {}", answer.status, answer.text()));
        let stream = WebSocketStream::from_raw_socket(connection, Role::Client, None).await;
        Self { headers: answer.headers, stream }
    }

    /// The next frame; `None` at the end of the connection.
    async fn frame(&mut self) -> Option<Message> {
        let frame = tokio::time::timeout(PATIENCE, self.stream.next()).await.expect("a frame in time");
        frame.map(|frame| frame.expect("the connection goes on"))
    }

    /// The next event: the one of the next frame.
    async fn event(&mut self) -> Value {
        match self.frame().await.expect("the watch goes on") {
            Message::Text(text) => serde_json::from_str(&text).unwrap(),
            Message::Binary(bytes) => {
                let mut splitter = FrameSplitter::new();
                splitter.push(u32::try_from(bytes.len()).unwrap().to_be_bytes().to_vec());
                splitter.push(bytes);
                let frame = splitter.next().unwrap().expect("one event");
                let object = protobuf::read(&frame.object_bytes());
                json!({"type": frame.event.as_str(), "object": object})
            }
            other => panic!("no event: {other:?}"),
        }
    }

    /// The next event as `TYPE name`; an ERROR as `ERROR code`.
    async fn named(&mut self) -> String {
        let event = self.event().await;
        let (kind, object) = (event["type"].as_str().unwrap(), &event["object"]);
        match kind {
            "ERROR" => format!("ERROR {}", object["code"]),
            kind => format!("{kind} {}", object["metadata"]["name"].as_str().unwrap_or_default()),
        }
    }

    /// The frames that follow are the close frame and the end of the connection.
    async fn is_closed(&mut self) {
        let close = self.frame().await;
        assert!(matches!(&close, Some(Message::Close(Some(close))) if close.code == CloseCode::Normal), "{close:?}");
        assert_eq!(self.frame().await, None);
    }
}

/// An edge cluster, and a daemon that takes watches of Services from `source`.
async fn serving(source: Source) -> (ApiServer, Daemon) {
    let server = edge().await;
    let filters = if source == Source::Forwarded { "filters: []" } else { NO_LOAD_BALANCERS };
    let setup = Setup::new(server.url()).filters(filters).bundled("discardcloudservice");
    let setup = if source == Source::Cached { setup } else { setup.uncached() };
    (server, setup.start_ready().await)
}

/// The open watches that are counted or go upstream.
async fn open_watches(source: Source, server: &ApiServer, weir: &Daemon) -> usize {
    match source {
        Source::Cached | Source::Filtered => weir.metric("weir_watches").await as usize,
        Source::Forwarded => *server.open_watches().borrow(),
    }
}

#[tokio::test]
async fn every_watch_is_one_frame_an_event_until_its_client_closes() {
    for source in [Source::Cached, Source::Filtered, Source::Forwarded] {
        for accept in ["application/json", PROTOBUF] {
            let (server, weir) = serving(source).await;
            let client = weir.client("kube-proxy").with("accept", accept);
            let plain = client.clone().watch(WATCH).await;
            let before = open_watches(source, &server, &weir).await;
            let mut socket = Socket::open(&client, WATCH).await;
            assert_eq!(socket.headers["sec-websocket-accept"], "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
            assert_eq!(socket.headers["connection"], "Upgrade");
            assert_eq!(socket.headers["upgrade"], "websocket");
            let mut names = vec![socket.named().await, socket.named().await, socket.named().await];
            if source == Source::Forwarded {
                names.extend([socket.named().await]);
                names.retain(|name| name != "ADDED shop");
            }
            names.sort();
            assert_eq!(names, ["ADDED dashboard", "ADDED kubernetes", "ADDED web"], "{source:?} {accept}");
            assert_eq!(open_watches(source, &server, &weir).await, before + 1, "{source:?} {accept}");

            let mut large = service("large", "ClusterIP");
            large["metadata"]["annotations"] = json!({"text": "x".repeat(700_000)});
            server.store().put(large).unwrap();
            let event = socket.event().await;
            assert_eq!(event["object"]["metadata"]["annotations"]["text"].as_str().unwrap().len(), 700_000);
            server.store().put(service("next", "ClusterIP")).unwrap();
            let frame = socket.frame().await.unwrap();
            assert!(
                if accept == PROTOBUF { frame.is_binary() } else { frame.is_text() },
                "{source:?} {accept}: {frame:?}"
            );

            socket.stream.send(Message::Ping(Bytes::from_static(b"alive"))).await.unwrap();
            assert_eq!(socket.frame().await, Some(Message::Pong(Bytes::from_static(b"alive"))));
            socket.stream.send(Message::text("x".repeat(100_000))).await.unwrap();
            server.store().delete("v1", "Service", "default", "next").unwrap();
            assert_eq!(socket.named().await, "DELETED next", "what a client sends is ignored");

            let normal = CloseFrame { code: CloseCode::Normal, reason: "".into() };
            socket.stream.send(Message::Close(Some(normal))).await.unwrap();
            socket.is_closed().await;
            if source != Source::Forwarded {
                assert_eq!(open_watches(source, &server, &weir).await, before, "{accept}");
            } else {
                let mut open = server.open_watches();
                let freed = open.wait_for(|open| *open == before);
                tokio::time::timeout(PATIENCE, freed).await.unwrap().unwrap();
            }
            drop(plain);
        }
    }
}

#[tokio::test]
async fn a_client_that_is_gone_without_a_close_frame_ends_the_watch() {
    for source in [Source::Filtered, Source::Forwarded] {
        let (server, weir) = serving(source).await;
        let mut open = server.open_watches();
        let before = *open.borrow();
        let mut socket = Socket::open(&weir.client("kube-proxy"), WATCH).await;
        socket.event().await;
        // The store of a view lists first.
        tokio::time::timeout(PATIENCE, open.wait_for(|open| *open == before + 1)).await.unwrap().unwrap();
        drop(socket);
        tokio::time::timeout(PATIENCE, open.wait_for(|open| *open == before)).await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn events_that_arrive_together_or_in_parts_are_one_frame_each() {
    let (server, weir) = serving(Source::Forwarded).await;
    let event = |name: &str| format!("{}\n", json!({"type": "ADDED", "object": {"metadata": {"name": name}}}));
    let (parts, received) = mpsc::unbounded_channel::<Bytes>();
    let received = std::sync::Mutex::new(Some(received));
    server.on_request(move |request| {
        match request.query.contains("watch").then(|| received.lock().unwrap().take()).flatten() {
            Some(parts) => streamed(futures_util::stream::unfold(parts, |mut parts| async move {
                parts.recv().await.map(|part| (part, parts))
            })),
            None => weir_apiserver::Action::Serve,
        }
    });
    let mut socket = Socket::open(&weir.client("tool"), WATCH).await;
    let all = [event("a"), event("b"), event("c")].concat();
    let (first, second) = all.split_at(all.len() - 10);
    parts.send(Bytes::copy_from_slice(first.as_bytes())).unwrap();
    for name in ["a", "b"] {
        let frame = socket.frame().await.unwrap();
        assert_eq!(frame, Message::text(event(name)), "as kube-apiserver's, with the end of its line");
    }
    parts.send(Bytes::copy_from_slice(second.as_bytes())).unwrap();
    assert_eq!(socket.named().await, "ADDED c");
    drop(parts);
    socket.is_closed().await;
}

#[tokio::test]
async fn a_change_of_filters_arrives_as_events_or_the_end() {
    let keep = NO_LOAD_BALANCERS.replace("match", "settings: {loadBalancers: keep}\n    match");
    for source in [Source::Cached, Source::Filtered] {
        let (_server, weir) = serving(source).await;
        let mut socket = Socket::open(&weir.client("kube-proxy"), WATCH).await;
        for _ in 0..3 {
            socket.event().await;
        }
        weir.put_filters(&keep);
        assert_eq!(socket.event().await["object"]["metadata"]["name"], "shop", "{source:?}");
    }

    let (server, weir) = serving(Source::Forwarded).await;
    let from = server.store().revision();
    let mut socket = Socket::open(&weir.client("kube-proxy"), &format!("{WATCH}&resourceVersion={from}")).await;
    weir.put_filters(NO_LOAD_BALANCERS);
    socket.is_closed().await;
}

#[tokio::test]
async fn the_end_of_a_watch_is_a_close_frame_and_so_is_that_of_the_daemon() {
    for source in [Source::Cached, Source::Filtered, Source::Forwarded] {
        let (server, weir) = serving(source).await;
        let client = weir.client("kube-proxy");
        client.json(SERVICES).await;
        client.json(&format!("{SERVICES}?resourceVersion=0")).await;
        weir.settled(&server).await;
        let version = server.store().revision();
        let mut short = Socket::open(&client, &format!("{WATCH}&timeoutSeconds=1&resourceVersion={version}")).await;
        short.is_closed().await;
        if source == Source::Forwarded {
            let mut cut = Socket::open(&client, &format!("{WATCH}&resourceVersion={version}")).await;
            server.close_watches(End::Abort);
            cut.is_closed().await;
        }
        let mut open = Socket::open(&client, SEVERAL).await;
        open.event().await;
        let stopped = tokio::spawn(weir.stop());
        while !matches!(open.frame().await.expect("a close frame comes first"), Message::Close(_)) {}
        assert_eq!(open.frame().await, None, "{source:?}");
        assert_eq!(stopped.await.unwrap(), Some(0), "{source:?}");
    }
}

#[tokio::test]
async fn what_is_no_watch_over_a_websocket_is_a_plain_response() {
    let (server, weir) = serving(Source::Cached).await;
    let client = weir.client("kube-proxy");
    for (name, value, code) in [
        ("sec-websocket-key", "", 400),
        ("sec-websocket-version", "8", 400),
        ("sec-websocket-protocol", "a, b", 400),
        ("sec-websocket-protocol", "base64url.bearer.authorization.k8s.io.YQ", 401),
    ] {
        let (answer, socket) = client.clone().with(name, value).open_websocket(WATCH).await;
        assert!(socket.is_none());
        assert_eq!((answer.status.as_u16(), &answer.json()["kind"]), (code, &json!("Status")), "{name} {value}");
        let version = answer.headers.get("sec-websocket-version");
        assert_eq!(version.is_some(), name == "sec-websocket-version", "it names the one that is spoken");
    }
    let (list, socket) = client.open_websocket(SERVICES).await;
    assert!(socket.is_none() && list.json()["kind"] == "ServiceList");
    let (refused, socket) = client.open_websocket(&format!("{WATCH}&resourceVersion=none")).await;
    assert!(socket.is_none() && refused.json()["kind"] == "Status", "{refused:?}");
    let head = client.with("upgrade", "websocket").with("connection", "Upgrade").send(Method::HEAD, WATCH, "").await;
    assert_ne!(head.status(), StatusCode::SWITCHING_PROTOCOLS);
    server.set_policy(|_| false);
    server.enforce(Enforce::Everybody);
    let other = weir.client("other").with("authorization", "Bearer other");
    let (refused, socket) = other.open_websocket("/api/v1/namespaces/default/secrets?watch=true").await;
    assert!(socket.is_none());
    assert_eq!((refused.status.as_u16(), &refused.json()["kind"]), (403, &json!("Status")));
}

#[tokio::test]
async fn the_request_upstream_is_a_plain_watch_with_the_credential_of_its_client() {
    let (server, weir) = serving(Source::Forwarded).await;
    server.clear_requests();
    // A browser cannot set Authorization.
    let client = weir
        .client("dashboard")
        .with("accept-encoding", "gzip")
        .with("sec-websocket-protocol", "v1.example, base64url.bearer.authorization.k8s.io.bWluZQ");
    let mut socket = Socket::open(&client, WATCH).await;
    assert_eq!(socket.headers["sec-websocket-protocol"], "v1.example");
    socket.event().await;
    let requests = server.requests();
    let watch = requests.iter().find(|request| request.target() == WATCH).expect("the watch");
    assert_eq!((watch.header("authorization"), watch.header("accept-encoding")), ("Bearer mine", "identity"));
    assert_eq!((watch.header("upgrade"), watch.header("sec-websocket-protocol")), ("", ""));
}

#[tokio::test]
async fn a_web_page_gets_no_watch_with_the_node_credential() {
    let server = edge().await;
    let config = kubeconfig(server.url(), "", "token: nodes");
    let setup = Setup::new(server.url()).filters("filters: []").file("--node-kubeconfig", "node.yaml", &config);
    let weir = setup.start_ready().await;
    let client = weir.client("kubelet");
    for (name, value) in [
        ("origin", "http://evil.example"),
        ("origin", "null"),
        ("sec-fetch-site", "cross-site"),
        ("host", "evil.example"),
    ] {
        let (answer, socket) = client.clone().with(name, value).open_websocket(WATCH).await;
        assert!(socket.is_none() && answer.status == 403, "{name}: {value}");
    }
    // fabric8 sends an Origin, and its own token.
    let own = client.with("origin", "http://localhost").with("authorization", "Bearer own");
    Socket::open(&own, WATCH).await.event().await;
}

#[tokio::test]
async fn the_https_port_has_websockets_over_http_1_1() {
    let ca = Authority::new("weir");
    let server = edge().await;
    let setup = Setup::new(server.url()).filters(NO_LOAD_BALANCERS).bundled("discardcloudservice");
    let weir = setup.tls(&ca.server()).start_ready().await;
    let client = Client::http1(&weir.secure_url().await, "kube-proxy", ca.pem());
    let mut socket = Socket::open(&client, WATCH).await;
    for _ in 0..3 {
        assert!(socket.named().await.starts_with("ADDED "));
    }
    server.store().put(service("new", "ClusterIP")).unwrap();
    assert_eq!(socket.named().await, "ADDED new");
    socket.stream.close(None).await.unwrap();
    let close = socket.frame().await;
    assert!(matches!(close, Some(Message::Close(_))), "{close:?}");
    assert_eq!(socket.frame().await, None);
}
