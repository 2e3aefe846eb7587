//! Request smuggling: spellings of the two lengths of a body on which proxies have disagreed, from the published corpora (RFC 9112
//! section 11.2, the "HTTP Desync Attacks" of 2019 to 2025, and the tests of llhttp).
//!
//! Weir serializes each request again. So the API server must get no request that Weir has not answered, and no body that Weir
//! has read as something else.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::time::Duration;

use futures_util::StreamExt as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use weir_tests::daemon::{Daemon, Setup};
use weir_tests::edge::api_server;

const PATH: &str = "/api/v1/namespaces/default/configmaps";
/// How long a connection is silent before an attempt is over.
const SILENCE: Duration = Duration::from_secs(1);
const SMUGGLED: &str =
    "GET /api/v1/namespaces/smuggled/secrets HTTP/1.1\r\nHost: weir\r\nUser-Agent: smuggler/1\r\n\r\n";

/// Headers that some programs read as a chunked body.
const CHUNKED: &[&str] = &[
    "Transfer-Encoding: chunked",
    "Transfer-Encoding : chunked",
    "Transfer-Encoding:chunked",
    "Transfer-Encoding:\tchunked",
    "Transfer-Encoding: \x0bchunked",
    "Transfer-Encoding: \x0cchunked",
    "Transfer-Encoding: xchunked",
    "Transfer-Encoding: chunked\t",
    "Transfer-Encoding: \"chunked\"",
    "Transfer-Encoding: 'chunked'",
    "Transfer-Encoding: chunked, identity",
    "Transfer-Encoding: identity, chunked",
    "Transfer-Encoding: chunked, chunked",
    "Transfer-Encoding: gzip, chunked",
    "Transfer-Encoding: chunked;q=1",
    "Transfer-Encoding: CHUNKED",
    "Transfer-Encoding: chu\u{e7}ked",
    "Transfer-Encoding:\r\n chunked",
    "Transfer-Encoding\r\n: chunked",
    " Transfer-Encoding: chunked",
    "X: x\nTransfer-Encoding: chunked",
    "X: x\rTransfer-Encoding: chunked",
    "X: x\r\n\rTransfer-Encoding: chunked",
    "Transfer_Encoding: chunked",
    "Transfer-Encoding: chunked\r\nTransfer-Encoding: x",
    "Transfer-Encoding: x\r\nTransfer-Encoding: chunked",
    "Transfer-Encoding: identity\r\nTransfer-Encoding: chunked",
    "Transfer-Encoding\0: chunked",
    "Transfer-Encoding: chunked\0",
    "Foo: bar\r\n\tTransfer-Encoding: chunked",
    "Connection: Transfer-Encoding\r\nTransfer-Encoding: chunked",
    "Upgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA",
    "Expect: 100-continue",
    "Expect: y 100-continue",
];

/// Headers that some programs read as a length.
const LENGTHS: &[&str] = &[
    "Content-Length: {}",
    "Content-Length: +{}",
    "Content-Length: -{}",
    "Content-Length: 0{}",
    "Content-Length: 0x{}",
    "Content-Length: {} ",
    "Content-Length: {}, {}",
    "Content-Length: {}, 0",
    "Content-Length: 0\r\nContent-Length: {}",
    "Content-Length: {}\r\nContent-Length: 0",
    "Content-Length: {}\r\nContent-Length: {}",
    "Content-Length : {}",
    "Content-Length:\r\n {}",
    "Content-Length: {}_0",
    "Content-Length: 1e1",
    "Content-Length: 18446744073709551617",
    "Content_Length: {}",
    "X: x\nContent-Length: {}",
];

/// Chunked bodies that some programs end early or late.
const BODIES: &[&str] = &[
    "0\r\n\r\n",
    "00000000000000000\r\n\r\n",
    "0;x\r\n\r\n",
    "0;x\n\r\n\r\n",
    "0 \r\n\r\n",
    "0\n\n",
    "0\r\r\n",
    "0x0\r\n\r\n",
    "-0\r\n\r\n",
    "10000000000000000\r\n\r\n",
    "2\r\n{}XX0\r\n\r\n",
    "2\r\n{}\n0\r\n\r\n",
    "0\r\nX: y\r\n\r\n",
    "0\r\nContent-Length: 5\r\n\r\n",
    "",
];

/// One spelling, with a name that both of its requests carry.
struct Attempt {
    name: String,
    bytes: String,
}

/// Sends an attempt, and reads what comes before the connection is silent.
async fn answers(weir: &Daemon, attempt: &Attempt) -> String {
    let mut stream = TcpStream::connect(weir.url().strip_prefix("http://").unwrap()).await.unwrap();
    // The daemon may refuse before it has read everything.
    let _ = stream.write_all(attempt.bytes.as_bytes()).await;
    let mut answer = Vec::new();
    // Some bodies go on for ever, as far as their length says.
    while let Ok(Ok(1..)) = tokio::time::timeout(SILENCE, stream.read_buf(&mut answer)).await {}
    String::from_utf8_lossy(&answer).into_owned()
}

fn attempts() -> Vec<Attempt> {
    let mut attempts = Vec::new();
    for chunked in CHUNKED {
        for length in LENGTHS.iter().map(Some).chain([None]) {
            for body in BODIES {
                let name = format!("smuggler-{}", attempts.len());
                let smuggled = SMUGGLED.replace("smuggler", &name);
                let mut bytes = format!("POST {PATH} HTTP/1.1\r\nHost: weir\r\nUser-Agent: {name}/1\r\n{chunked}\r\n");
                if let Some(length) = length {
                    let _ = write!(bytes, "{}\r\n", length.replace("{}", &(body.len() + smuggled.len()).to_string()));
                }
                let _ = write!(bytes, "\r\n{body}{smuggled}");
                attempts.push(Attempt { name, bytes });
            }
        }
    }
    attempts
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_api_server_gets_no_request_that_was_not_answered() {
    let attempts = attempts();
    let server = api_server().record(3 * attempts.len()).start().await.unwrap();
    let weir = Setup::new(server.url()).filters("filters: []").start_ready().await;
    let answers: Vec<_> =
        futures_util::stream::iter(&attempts).map(|attempt| answers(&weir, attempt)).buffered(128).collect().await;
    let mut sent: HashMap<String, Vec<String>> = HashMap::new();
    for request in server.requests() {
        let agent = request.header("user-agent").split('/').next().unwrap_or_default().to_owned();
        sent.entry(agent).or_default().push(request.path);
    }
    let mut refused = 0;
    for (attempt, answer) in attempts.iter().zip(&answers) {
        let answered = answer.matches("HTTP/1.1 ").count() - answer.matches("HTTP/1.1 100").count();
        let sent = sent.get(&attempt.name).cloned().unwrap_or_default();
        assert!(sent.len() <= answered, "{:?} sent {sent:?}: {answer}", attempt.bytes);
        // Read as a request of its own or refused, never as a part of another one.
        let known = [PATH, "/api/v1/namespaces/smuggled/secrets"];
        assert!(sent.iter().all(|path| known.contains(&&**path)), "{:?} sent {sent:?}", attempt.bytes);
        refused += usize::from(answer.starts_with("HTTP/1.1 400") && sent.is_empty());
    }
    eprintln!("{} spellings, {refused} refused", attempts.len());
    assert!(refused > attempts.len() / 2, "{refused} of {}", attempts.len());
    assert_eq!(weir.client("tool").get("/version").await.status, 200);
}
