//! A client that discards response bodies, with as little CPU time as possible.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::list::Encoding;

/// The size of a read in bytes.
const READ: usize = 256 << 10;

/// The measurements of a response.
pub(crate) struct Fetched {
    /// The time from the request to the first byte of the body.
    pub(crate) first: Duration,
    /// The time from the request to the end.
    pub(crate) all: Duration,
    /// The bytes of the response, including its head.
    pub(crate) bytes: usize,
}

/// Sends a GET request as kube-proxy, on a connection of its own.
fn request(address: &str, path: &str, encoding: Encoding, version: &str) -> TcpStream {
    let accept = if path.contains("watch=") { encoding.watch_media() } else { encoding.media() };
    let mut stream = TcpStream::connect(address).unwrap();
    write!(
        stream,
        "GET {path} {version}\r\nHost: {address}\r\nUser-Agent: kube-proxy/v1.34.0 bench\r\nAccept: {accept}\r\nConnection: close\r\n\r\n"
    )
    .unwrap();
    stream
}

/// Returns the body of a response. Blocks until it ends.
pub(crate) fn fetch_body(address: &str, path: &str, encoding: Encoding) -> Vec<u8> {
    let mut response = Vec::new();
    // HTTP/1.0 has no chunks.
    request(address, path, encoding, "HTTP/1.0").read_to_end(&mut response).unwrap();
    let head = response.windows(4).position(|end| end == b"\r\n\r\n").unwrap() + 4;
    assert!(response.starts_with(b"HTTP/1.0 200"), "{}", String::from_utf8_lossy(&response[..head]));
    response.split_off(head)
}

/// Measures a response. Blocks until it ends.
pub(crate) fn fetch(address: &str, path: &str, encoding: Encoding) -> Fetched {
    let began = Instant::now();
    let mut stream = request(address, path, encoding, "HTTP/1.1");
    let mut buffer = vec![0; READ];
    let (mut head, mut end, mut first, mut bytes) = (Vec::new(), Vec::new(), None, 0);
    loop {
        let count = stream.read(&mut buffer).unwrap();
        if count == 0 {
            break;
        }
        bytes += count;
        if first.is_none() {
            head.extend_from_slice(&buffer[..count]);
            let length = head.windows(4).position(|end| end == b"\r\n\r\n").map(|at| at + 4);
            if length.is_some_and(|length| bytes > length) {
                first = Some(began.elapsed());
            }
        }
        end.extend_from_slice(&buffer[count.saturating_sub(8)..count]);
        end.drain(..end.len().saturating_sub(8));
    }
    let text = String::from_utf8_lossy(&head).to_lowercase();
    assert!(text.starts_with("http/1.1 200"), "{}", text.chars().take(400).collect::<String>());
    let length = text.split("content-length: ").nth(1).and_then(|rest| rest.split("\r\n").next());
    match length {
        Some(length) => assert_eq!(bytes, length.parse::<usize>().unwrap() + text.find("\r\n\r\n").unwrap() + 4),
        None => assert!(end.ends_with(b"0\r\n\r\n"), "truncated response"),
    }
    Fetched { first: first.unwrap(), all: began.elapsed(), bytes }
}
