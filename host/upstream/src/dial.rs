//! How connections reach a server: by TCP, or through a tunnel that a peer relays.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::BoxFuture;
use http::Uri;
use http::uri::Authority;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper::upgrade::Upgraded;
use hyper_util::client::legacy::connect::{Connected, Connection, HttpConnector};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tower::{BoxError, Service, ServiceExt as _};

/// The port of a URL without one. Only HTTPS goes through peers.
pub(super) const HTTPS_PORT: u16 = 443;

/// Opens a tunnel to a server.
pub(super) type OpenTunnel = Arc<dyn Fn(Authority) -> BoxFuture<'static, Result<Upgraded, BoxError>> + Send + Sync>;

/// The way to one server.
#[derive(Clone)]
pub(super) enum Dialer {
    /// By TCP.
    Direct(HttpConnector),
    /// Through a peer.
    Relayed(OpenTunnel),
}

/// A connection to a server, below TLS.
pub(super) enum DialedStream {
    Direct(TokioIo<TcpStream>),
    Relayed(Upgraded),
}

impl Dialer {
    /// Creates the direct way. `timeout` bounds each attempt to connect.
    pub(super) fn direct(timeout: Duration) -> Self {
        let mut http = HttpConnector::new();
        http.enforce_http(false);
        http.set_nodelay(true);
        // Half-open connections are common at the edge. Keepalive detects them within about a minute.
        http.set_keepalive(Some(Duration::from_secs(30)));
        http.set_keepalive_interval(Some(Duration::from_secs(10)));
        http.set_keepalive_retries(Some(3));
        http.set_connect_timeout(Some(timeout));
        Self::Direct(http)
    }
}

impl Service<Uri> for Dialer {
    type Response = DialedStream;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<DialedStream, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        match self {
            Self::Direct(http) => {
                let http = http.clone();
                Box::pin(async move { Ok(DialedStream::Direct(http.oneshot(uri).await?)) })
            }
            Self::Relayed(open) => {
                let open = open.clone();
                Box::pin(async move {
                    let target = host_and_port(&uri).ok_or("the URL of the server has no host")?;
                    Ok(DialedStream::Relayed(open(target).await?))
                })
            }
        }
    }
}

/// The target of a `CONNECT` request, which always has a port (RFC 9110, section 9.3.6).
fn host_and_port(url: &Uri) -> Option<Authority> {
    let port = url.port_u16().unwrap_or(HTTPS_PORT);
    format!("{}:{port}", url.host()?).parse().ok()
}

impl fmt::Debug for Dialer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Direct(_) => "Direct",
            Self::Relayed(_) => "Relayed",
        })
    }
}

impl Connection for DialedStream {
    fn connected(&self) -> Connected {
        match self {
            Self::Direct(stream) => stream.connected(),
            Self::Relayed(_) => Connected::new(),
        }
    }
}

impl Read for DialedStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Direct(stream) => Pin::new(stream).poll_read(cx, buffer),
            Self::Relayed(stream) => Pin::new(stream).poll_read(cx, buffer),
        }
    }
}

impl Write for DialedStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Direct(stream) => Pin::new(stream).poll_write(cx, bytes),
            Self::Relayed(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Direct(stream) => Pin::new(stream).poll_flush(cx),
            Self::Relayed(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Direct(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Relayed(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Direct(stream) => stream.is_write_vectored(),
            Self::Relayed(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Direct(stream) => Pin::new(stream).poll_write_vectored(cx, buffers),
            Self::Relayed(stream) => Pin::new(stream).poll_write_vectored(cx, buffers),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_always_have_a_port() {
        let target = |url: &'static str| host_and_port(&Uri::from_static(url)).map(|target| target.to_string());
        assert_eq!(target("https://api.example/").as_deref(), Some("api.example:443"));
        assert_eq!(target("https://[fd00::1]:6443/").as_deref(), Some("[fd00::1]:6443"));
        assert_eq!(target("/"), None);
    }
}
