//! A port all of whose connections have requests.

use std::net::{IpAddr, SocketAddr, UdpSocket};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::*;

/// An address of this machine that is not a loopback one; `None` without a network.
fn own_address() -> Option<IpAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    // Nothing is sent. The address is reserved for documentation.
    socket.connect("198.51.100.1:9").ok()?;
    Some(socket.local_addr().ok()?.ip())
}

/// A watch, which keeps its connection busy.
async fn watch(address: SocketAddr) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream
        .write_all(b"GET /api/v1/nodes?watch=true HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer a\r\n\r\n")
        .await
        .unwrap();
    stream
}

async fn head(stream: &mut TcpStream) -> String {
    let mut head = [0; 12];
    tokio::time::timeout(Duration::from_secs(30), stream.read_exact(&mut head)).await.expect("an answer").unwrap();
    String::from_utf8_lossy(&head).into_owned()
}

/// Clients with addresses of their own, on one port: one that waits for room keeps nobody else from being accepted.
#[tokio::test]
async fn a_connection_that_waits_for_room_does_not_stop_the_port() {
    let Some(own) = own_address() else { return eprintln!("skipped: this machine has no address but loopback ones") };
    let fixture = fixture_with(|config| {
        config.proxy.max_connections = 3;
        config.proxy.allow_remote_plaintext = true;
    })
    .await;
    let listener = TcpListener::bind("0.0.0.0:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    fixture.proxy.serve(listener).unwrap();
    let (local, remote) = (SocketAddr::from(([127, 0, 0, 1], port)), SocketAddr::new(own, port));
    // A client has at most two of three.
    let mut busy = [watch(local).await, watch(local).await, watch(remote).await];
    for stream in &mut busy {
        assert_eq!(head(stream).await, "HTTP/1.1 200");
    }
    let mut waiting = watch(remote).await;
    let mut refused = watch(local).await;
    let read = tokio::time::timeout(Duration::from_secs(5), refused.read_u8()).await;
    assert!(read.expect("it is refused at once, though another one waits").is_err());
    let [first, ..] = busy;
    drop(first);
    assert_eq!(head(&mut waiting).await, "HTTP/1.1 200", "it has waited for this place");
}
