//! A client that must not slow down or silence another one.

use bytes::Bytes;
use futures_util::stream;
use http::{Method, Request, Response};
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Incoming;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;
use tokio::sync::watch;
use weir_apiserver::{Action, ApiServer};
use weir_tests::client::{Client, PATIENCE, streamed};
use weir_tests::daemon::{Daemon, Setup};
use weir_tests::edge::{NO_LOAD_BALANCERS, api_server, service};
use weir_tests::node_reads::NodeReads;
use weir_tests::pki::Authority;

const LOG: &str = "/api/v1/namespaces/default/pods/noisy/log?follow=true";

/// An API server that speaks HTTP/2, whose logs never end.
async fn noisy(setup: impl FnOnce(Setup) -> Setup) -> (ApiServer, Daemon, watch::Receiver<usize>) {
    let ca = Authority::new("cluster");
    let pair = ca.server();
    let server =
        api_server().tls(pair.certificate.as_bytes(), pair.key.as_bytes()).max_streams(250).start().await.unwrap();
    server.store().load(include_str!("../demo/cluster.yaml")).unwrap();
    let (logs, open) = watch::channel(0);
    server.on_request(move |request| match request.path.ends_with("/log") {
        true => {
            let log = OpenLog::new(&logs);
            streamed(stream::repeat_with(move || {
                let _open = &log;
                Bytes::from_static(&[b'x'; 16 << 10])
            }))
        }
        false => Action::Serve,
    });
    let setup = setup(Setup::new(server.url())).filters(NO_LOAD_BALANCERS).bundled("discardcloudservice").file(
        "--certificate-authority",
        "ca.crt",
        ca.pem(),
    );
    (server, setup.start_ready().await, open)
}

/// Counts a log of the API server until its stream ends.
struct OpenLog(watch::Sender<usize>);

impl OpenLog {
    fn new(logs: &watch::Sender<usize>) -> Self {
        logs.send_modify(|open| *open += 1);
        Self(logs.clone())
    }
}

impl Drop for OpenLog {
    fn drop(&mut self) {
        self.0.send_modify(|open| *open -= 1);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unread_logs_silence_no_watch_and_their_number_is_bounded() {
    let (server, weir, mut logs) = noisy(|setup| setup).await;
    let victim = weir.client("kube-proxy").with("authorization", "Bearer victim");
    let mut watch = victim.watch("/api/v1/services?watch=true").await;
    let node = NodeReads::start(weir.client("kubelet"), weir.client("kube-proxy")).await;
    let before = weir.resident();
    let mut open = unread(&weir, 100).await;
    // The attacker has its share: a further request waits, and gets 429.
    let late = open[0].0.send(Method::GET, LOG, "").await;
    // client-go tries again only after what this header says.
    assert_eq!((late.status().as_u16(), late.headers().get("retry-after")), (429, Some(&"1".parse().unwrap())));
    let line = weir.logged("request refused").await["fields"].to_string();
    assert!(line.contains("\"stern\"") && line.contains("127.0.0.1") && !line.contains("attacker"), "{line}");
    let during = weir.resident();
    eprintln!("100 unread logs: {before:.1} MiB before, {during:.1} MiB with them");
    assert!(during < before + 100.0, "{before:.1} MiB before, {during:.1} MiB with them");
    server.store().put(service("late", "ClusterIP")).unwrap();
    let seen = async { while watch.next_named().await != "ADDED late" {} };
    tokio::time::timeout(PATIENCE, seen).await.expect("the watch is not silenced");
    assert_eq!(victim.get("/api/v1/endpoints").await.status, 200);
    assert_eq!(*logs.borrow(), 100);
    node.end().await;
    open.clear();
    tokio::time::timeout(PATIENCE, logs.wait_for(|open| *open == 0)).await.expect("they end upstream").unwrap();
    weir.settles_at(before).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_nobody_reads_is_given_up_when_memory_is_short() {
    let (_server, weir, mut logs) = noisy(|setup| setup.flag("--response-memory", "16Mi")).await;
    let victim = weir.client("kubectl").with("authorization", "Bearer victim");
    let mut read = victim.watch(LOG).await;
    let reading = tokio::spawn(async move { while read.has_piece().await {} });
    let node = NodeReads::start(weir.client("kubelet"), weir.client("kube-proxy")).await;
    let open = unread(&weir, 90).await;
    let fewer = logs.wait_for(|open| *open <= 33);
    tokio::select! {
        fewer = tokio::time::timeout(PATIENCE, fewer) => { fewer.expect("upstream streams end").unwrap(); }
        _ = reading => panic!("who reads is not given up"),
    }
    node.end().await;
    assert_eq!(open.len(), 90);
}

/// Logs of one credential that nobody reads, over several connections.
async fn unread(weir: &Daemon, count: usize) -> Vec<(Client, Response<Incoming>)> {
    let attackers: Vec<_> = (0..8).map(|_| weir.client("stern").with("authorization", "Bearer attacker")).collect();
    let mut open = Vec::new();
    for client in attackers.iter().cycle().take(count) {
        open.push((client.clone(), client.send(Method::GET, LOG, "").await));
    }
    open
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_watches_that_hold_nothing_are_not_ended_for_memory() {
    // Two windows fit into it.
    let (server, weir, _logs) = noisy(|setup| setup.flag("--response-memory", "1Mi")).await;
    let stream = TcpStream::connect(weir.url().strip_prefix("http://").unwrap()).await.unwrap();
    let mut builder = http2::Builder::new(TokioExecutor::new());
    // The client takes a byte of each answer, and then nothing.
    builder.initial_stream_window_size(1);
    let (sender, connection) = builder.handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let mut watches = Vec::new();
    for _ in 0..8 {
        let request = Request::get(format!("{}/api/v1/services?watch=true", weir.url()));
        let request = request.header("user-agent", "slow/1").header("authorization", "Bearer slow");
        let request = request.body(Empty::<Bytes>::new()).unwrap();
        watches.push(sender.clone().send_request(request).await.unwrap().into_body());
    }
    let node = NodeReads::start(weir.client("kubelet"), weir.client("kube-proxy")).await;
    // A log is a window of bytes: three of them are too many, even on a slow machine.
    let _open = unread(&weir, 3).await;
    weir.logged("response given up").await;
    server.store().put(service("late", "ClusterIP")).unwrap();
    for mut watch in watches {
        let mut text = Vec::new();
        let seen = async {
            while !text.windows(4).any(|word| word == b"late") {
                let frame = watch.frame().await.expect("the watch goes on").expect("the watch is not given up");
                text.extend_from_slice(frame.data_ref().unwrap());
            }
        };
        tokio::time::timeout(PATIENCE, seen).await.expect("its events arrive when it reads on");
    }
    node.end().await;
    let log = weir.log_text();
    assert!(log.matches("response given up").count() <= 3, "{log}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_is_given_up_learns_it_when_it_reads_on() {
    let (_server, weir, _logs) = noisy(|setup| setup.flag("--response-memory", "1Ki")).await;
    let client = Client::new(weir.url(), "kubectl");
    let mut log = client.watch(LOG).await;
    assert!(log.has_piece().await);
    weir.logged("response given up").await;
    let ended = async { while log.has_piece().await {} };
    tokio::time::timeout(PATIENCE, ended).await.expect("the log ends with an error");
}
