//! What is replaced, and what is not.

use http_body_util::{Empty, Full};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};

use super::*;

const OWN: &str = "HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-length: 0\r\ndate: Thu, 01 Jan 2026 00:00:00 GMT\r\n\r\n";

struct Guarded {
    guard: HeadGuard<DuplexStream>,
    client: DuplexStream,
    active: watch::Sender<usize>,
    own: Arc<OwnAnswers>,
}

/// Like the daemon's.
fn refusal(error: HeadError, _: Encoding) -> Response<Bytes> {
    let (code, message) = (error.code(), error.to_string());
    let status = serde_json::json!({ "kind": "Status", "code": code.as_u16(), "message": message });
    let response = Response::builder().status(code).header("content-type", "application/json");
    response.body(status.to_string().into()).unwrap()
}

fn guarded() -> Guarded {
    let (stream, client) = duplex(64 << 10);
    let ((active, open), own) = (watch::channel(0), Arc::<OwnAnswers>::default());
    Guarded { guard: HeadGuard::new(stream, open, own.clone(), refusal), client, active, own }
}

/// What the client reads of these bytes, after which it closes.
async fn sent(guarded: Guarded, bytes: &str) -> String {
    let Guarded { mut guard, client, active: _active, .. } = guarded;
    let write = async move {
        guard.write_all(bytes.as_bytes()).await.unwrap();
        guard.flush().await.unwrap();
        guard.shutdown().await.unwrap();
    };
    let read = async move {
        let (mut client, mut text) = (client, String::new());
        // A refused client that still sends gets the answer, too.
        let _ = client.write_all(b"rest").await;
        client.read_to_string(&mut text).await.unwrap();
        text
    };
    tokio::join!(write, read).1
}

#[tokio::test(start_paused = true)]
async fn the_answer_of_the_parser_gets_a_status_and_keeps_its_line_and_date() {
    let text = sent(guarded(), OWN).await;
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 431 Request Header Fields Too Large\r\n"), "{head}");
    for field in ["content-type: application/json", "connection: close", "date: Thu, 01 Jan 2026 00:00:00 GMT"] {
        assert!(head.contains(field), "{head}");
    }
    assert!(head.contains(&format!("content-length: {}", body.len())), "{head}");
    let status: serde_json::Value = serde_json::from_str(body).unwrap();
    assert_eq!((&status["kind"], &status["code"]), (&serde_json::json!("Status"), &serde_json::json!(431)));
    assert!(status["message"].as_str().unwrap().contains("64 KiB or 1024 header fields"), "{status}");
}

#[tokio::test(start_paused = true)]
async fn an_answer_of_the_service_and_bytes_of_other_protocols_are_never_replaced() {
    let with_more = OWN.replace("date: ", "audit-id: 1\r\ndate: ");
    let with_body = OWN.replace("length: 0", "length: 4") + "text";
    for other in [&*with_more, &with_body, "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"] {
        assert_eq!(sent(guarded(), other).await, other);
    }
    let open = guarded();
    open.active.send_replace(1);
    assert_eq!(sent(open, OWN).await, OWN, "the bytes of an open answer");
    let code = |code| Response::builder().status(code);
    let bare = guarded();
    bare.own.note(Version::HTTP_11, &code(431).body(Empty::<Bytes>::new()).unwrap());
    assert_eq!(sent(bare, OWN).await, OWN, "the API server's own answer");
    for upgraded in [true, false] {
        let tunnel = guarded();
        match upgraded {
            true => tunnel.own.note(Version::HTTP_11, &code(101).body(Empty::<Bytes>::new()).unwrap()),
            false => tunnel.own.note_tunnel(),
        }
        assert_eq!(sent(tunnel, OWN).await, OWN, "what a pod sends through a tunnel");
    }
    let after = guarded();
    after.own.note(Version::HTTP_11, &code(431).body(Full::new(Bytes::from_static(b"a"))).unwrap());
    assert_ne!(sent(after, OWN).await, OWN, "a later request on the same connection");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_never_closes_is_given_up() {
    let Guarded { mut guard, mut client, active: _active, .. } = guarded();
    guard.write_all(OWN.as_bytes()).await.unwrap();
    let began = tokio::time::Instant::now();
    guard.shutdown().await.unwrap();
    assert_eq!(began.elapsed(), LINGER);
    assert!(client.read_u8().await.is_ok(), "it was sent");
}

#[test]
fn a_field_of_http2_counts_as_in_its_settings() {
    let request = |value: usize| {
        let request = http::Request::builder().version(Version::HTTP_2).uri("http://a/b");
        request.header("x", "y".repeat(value)).body(()).unwrap()
    };
    // "/b", "x", and 32 bytes.
    assert_eq!(HeadError::check(&request(HEAD_BYTES - 35)), Ok(HEAD_BYTES));
    assert_eq!(HeadError::check(&request(HEAD_BYTES - 34)), Err(HeadError::TooLarge));
}
