//! Connections to servers that this file writes by hand, frame by frame.

use bytes::Bytes;
use futures_util::FutureExt as _;
use http_body_util::{BodyExt as _, Full};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, DuplexStream, duplex};

use super::*;
use crate::request::no_request_body;
use crate::streams::{IDLE_INTERVAL, MAX_STREAM_LIMIT};

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const ACK: u8 = 1;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
/// `:status 200` in HPACK.
const STATUS_200: u8 = 0x88;
/// The codes of GOAWAY and RST_STREAM.
pub(crate) const NO_ERROR: u8 = 0;
pub(crate) const REFUSED_STREAM: u8 = 7;
/// `SETTINGS_MAX_CONCURRENT_STREAMS`.
const MAX_CONCURRENT_STREAMS: u16 = 3;

/// The server side of an HTTP/2 connection.
pub(crate) struct Http2Server<S = DuplexStream>(S);

impl Http2Server {
    /// Opens a connection to a new server and reads the preface.
    pub(crate) async fn connect(streams: Arc<Streams>) -> (Connection, Self) {
        let (client, server) = duplex(1 << 16);
        let connection = Connection::http2(TokioIo::new(client), 1 << 20, streams).await.unwrap();
        (connection, Self::accept(server).await)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Http2Server<S> {
    /// Reads the preface of a client.
    pub(crate) async fn accept(mut io: S) -> Self {
        let mut preface = [0; 24];
        io.read_exact(&mut preface).await.unwrap();
        Self(io)
    }

    async fn write(&mut self, kind: u8, payload: &[u8]) {
        self.write_frame(kind, 0, 0, payload).await;
    }

    async fn write_frame(&mut self, kind: u8, flags: u8, stream: u8, payload: &[u8]) {
        let head = [0, 0, u8::try_from(payload.len()).unwrap(), kind, flags, 0, 0, 0, stream];
        self.0.write_all(&[&head[..], payload].concat()).await.unwrap();
        self.0.flush().await.unwrap();
    }

    pub(crate) async fn write_settings(&mut self, limit: Option<u32>) {
        let setting = |limit: u32| [&MAX_CONCURRENT_STREAMS.to_be_bytes()[..], &limit.to_be_bytes()].concat();
        self.write(SETTINGS, &limit.map(setting).unwrap_or_default()).await;
    }

    /// Asks the client to open no further streams, and waits until it has read that.
    pub(crate) async fn send_away(&mut self) {
        self.write(GOAWAY, &[0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 0]).await;
        self.write(PING, &[0; 8]).await;
        while self.read().await != (PING, ACK) {}
    }

    /// Says that this is the last stream that the server processes.
    pub(crate) async fn send_last(&mut self, stream: u8, code: u8) {
        self.write(GOAWAY, &[0, 0, 0, stream, 0, 0, 0, code]).await;
    }

    /// Ends the first stream.
    pub(crate) async fn reset_first(&mut self, code: u8) {
        self.write_frame(RST_STREAM, 0, 1, &[0, 0, 0, code]).await;
    }

    /// Responds on the first stream.
    pub(crate) async fn respond_first(&mut self) {
        self.write_frame(HEADERS, END_STREAM | END_HEADERS, 1, &[STATUS_200]).await;
    }

    /// Reads the body of the first request to its end.
    pub(crate) async fn read_body(&mut self) -> Vec<u8> {
        let mut body = Vec::new();
        loop {
            let (kind, flags, payload) = self.read_frame().await;
            if kind == DATA {
                body.extend(payload);
                if flags & END_STREAM != 0 {
                    return body;
                }
            }
        }
    }

    /// Reads a frame, and returns its type and flags.
    async fn read(&mut self) -> (u8, u8) {
        let (kind, flags, _) = self.read_frame().await;
        (kind, flags)
    }

    async fn read_frame(&mut self) -> (u8, u8, Vec<u8>) {
        let mut head = [0; 9];
        self.0.read_exact(&mut head).await.unwrap();
        let mut payload = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
        self.0.read_exact(&mut payload).await.unwrap();
        (head[3], head[4], payload)
    }

    /// Resolves when the client has closed the connection.
    pub(crate) async fn closed(mut self) {
        self.0.read_to_end(&mut Vec::new()).await.unwrap();
    }
}

pub(crate) fn get(uri: &str) -> Request<RequestBody> {
    Request::get(uri).body(no_request_body()).unwrap()
}

async fn limit_becomes(streams: &Streams, limit: usize) {
    let mut published = streams.limit();
    let published = published.wait_for(|published| *published == limit);
    let _ = tokio::time::timeout(Duration::from_secs(10), published).await.expect("the limit is published").unwrap();
}

#[tokio::test]
async fn the_limit_of_the_server_is_known_once_its_settings_arrive_and_nothing_else_happens() {
    for (sent, published) in
        [(None, DEFAULT_STREAM_LIMIT), (Some(0), 1), (Some(100), 100), (Some(u32::MAX), MAX_STREAM_LIMIT)]
    {
        let streams = Arc::new(Streams::default());
        let (connection, mut server) = Http2Server::connect(streams.clone()).await;
        // The server does not respond to this request, so that nothing but SETTINGS wakes the dispatcher.
        let mut response = pin!(connection.send(get("http://a/")));
        assert!(response.as_mut().now_or_never().is_none());
        while server.read().await.0 != HEADERS {}
        assert!(!streams.is_limit_known());
        server.write_settings(sent).await;
        limit_becomes(&streams, published).await;
    }
}

#[tokio::test]
async fn a_changed_limit_is_published_with_the_next_stream() {
    let streams = Arc::new(Streams::default());
    let (connection, mut server) = Http2Server::connect(streams.clone()).await;
    server.write_settings(Some(100)).await;
    limit_becomes(&streams, 100).await;
    server.write_settings(Some(5)).await;
    let mut requests = Vec::new();
    while *streams.limit().borrow() != 5 {
        let mut request = Box::pin(connection.send(get("http://a/")));
        assert!(request.as_mut().now_or_never().is_none());
        requests.push(request);
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_request_that_a_closing_connection_did_not_send_is_returned_whole() {
    let streams = Arc::new(Streams::default());
    let (connection, mut server) = Http2Server::connect(streams.clone()).await;
    server.write_settings(Some(3)).await;
    limit_becomes(&streams, 3).await;
    // The open stream keeps the connection open.
    let mut first = pin!(connection.send(get("http://a/")));
    assert!(first.as_mut().now_or_never().is_none());
    server.send_away().await;
    assert!(connection.is_ready());
    let Err(SendError::Unsent { request, .. }) = connection.send(get("http://a/b?c")).await else {
        panic!("the server accepts no request")
    };
    assert_eq!(request.uri(), "http://a/b?c");
    assert!(connection.is_closed());
}

#[tokio::test]
async fn a_request_that_the_server_names_as_not_processed_is_known_as_such() {
    // The last stream that the server processes, or none if it ends only the stream; the code.
    for (last, code, is_unprocessed) in [
        (Some(0), NO_ERROR, true),
        (Some(1), NO_ERROR, false),
        (None, REFUSED_STREAM, true),
        (None, REFUSED_STREAM + 1, false),
    ] {
        let (connection, mut server) = Http2Server::connect(Arc::default()).await;
        server.write_settings(Some(3)).await;
        let body = Full::new(Bytes::from_static(b"{}")).map_err(|never| match never {}).boxed_unsync();
        let (response, ()) =
            tokio::join!(connection.send(Request::post("http://a/").body(body).unwrap()), async move {
                assert_eq!(server.read_body().await, b"{}");
                match last {
                    Some(last) => server.send_last(last, code).await,
                    None => server.reset_first(code).await,
                }
            });
        assert_eq!(matches!(response, Err(SendError::Unprocessed(_))), is_unprocessed, "{last:?} {code}: {response:?}");
        assert!(is_unprocessed || matches!(response, Err(SendError::Broken(_))));
    }
}

#[tokio::test(start_paused = true)]
async fn an_idle_connection_closes_and_one_with_a_stream_does_not() {
    let (streams1, streams2) = (Arc::new(Streams::default()), Arc::new(Streams::default()));
    let (client, mut server1) = duplex(1 << 16);
    let connection1 = Connection::http1(TokioIo::new(client), streams1.clone()).await.unwrap();
    let (connection2, server2) = Http2Server::connect(streams2.clone()).await;
    streams1.open();
    streams2.open();
    tokio::time::sleep(IDLE_INTERVAL * 10).await;
    assert!(!connection1.is_closed() && !connection2.is_closed());
    streams1.close();
    streams2.close();
    server1.read_to_end(&mut Vec::new()).await.unwrap();
    server2.closed().await;
    assert!(connection1.is_closed() && connection2.is_closed());
}

#[tokio::test]
async fn http1_carries_one_request_at_a_time_in_origin_form() {
    let streams = Arc::new(Streams::default());
    let (client, mut server) = duplex(1 << 16);
    let connection = Connection::http1(TokioIo::new(client), streams.clone()).await.unwrap();
    assert!(connection.is_http1());
    assert_eq!(*streams.limit().borrow(), 1);
    for (uri, head) in [
        ("https://a:443/b?c", "GET /b?c HTTP/1.1\r\nhost: a\r\n\r\n"),
        ("http://[::1]:443/", "GET / HTTP/1.1\r\nhost: [::1]:443\r\n\r\n"),
    ] {
        let (response, ()) = tokio::join!(connection.send(get(uri)), async {
            let mut received = vec![0; head.len()];
            server.read_exact(&mut received).await.unwrap();
            assert_eq!(String::from_utf8(received).unwrap(), head);
            assert!(!connection.is_ready(), "its response is not complete");
            server.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await.unwrap();
        });
        assert_eq!(response.unwrap().into_body().collect().await.unwrap().to_bytes(), Bytes::from("ok"));
        while !connection.is_ready() {
            tokio::task::yield_now().await;
        }
    }
    drop(server);
    while !connection.is_closed() {
        tokio::task::yield_now().await;
    }
    let Err(SendError::Unsent { request, .. }) = connection.send(get("http://a/b?c")).await else {
        panic!("the server closed the connection")
    };
    assert_eq!(request.uri(), "http://a/b?c");
}
