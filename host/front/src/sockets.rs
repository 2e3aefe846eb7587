//! Listening sockets: inherited from systemd (socket activation), or bound by the daemon.
//!
//! systemd keeps its sockets open while the daemon restarts: new connections wait in the backlog and none is refused. The
//! daemon recognises an inherited socket by its address, and marks it for its users ([`Listener::is_inherited`]).

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use listenfd::ListenFd;
use tokio::net::{TcpListener, TcpSocket};
use tokio::time::Instant;

/// The backlog of a listening socket; the same as tokio uses in `TcpListener::bind`.
const BACKLOG: u32 = 1024;
/// How long the daemon waits for a port that is in use. A daemon that is killed while it starts a process leaves its sockets
/// to that process until it runs.
const IN_USE: Duration = Duration::from_secs(2);
/// The interval at which it tries again.
const RETRY: Duration = Duration::from_millis(50);

/// A listening socket.
#[derive(Debug)]
pub struct Listener {
    /// The socket.
    pub socket: TcpListener,
    /// Whether somebody else, such as systemd, has it open, too, so that it stays when this daemon ends.
    pub(crate) is_inherited: bool,
}

impl From<TcpListener> for Listener {
    /// A socket that ends with this daemon.
    fn from(socket: TcpListener) -> Self {
        Self { socket, is_inherited: false }
    }
}

/// The inherited sockets that are not in use yet.
#[derive(Debug, Default)]
pub struct ListenSockets(Vec<std::net::TcpListener>);

impl ListenSockets {
    /// Takes the sockets that `LISTEN_FDS` and `LISTEN_PID` describe.
    ///
    /// # Errors
    /// An inherited socket is not a TCP socket.
    pub fn inherited() -> io::Result<Self> {
        let mut inherited = ListenFd::from_env();
        let mut sockets = Vec::new();
        for index in 0..inherited.len() {
            sockets.extend(inherited.take_tcp_listener(index)?);
        }
        Ok(Self(sockets))
    }

    /// Listens on an address: on the inherited socket if there is one, else on a new one.
    ///
    /// # Errors
    /// The address cannot be bound.
    pub async fn listen(&mut self, address: SocketAddr) -> io::Result<Listener> {
        match self.0.iter().position(|socket| socket.local_addr().is_ok_and(|found| found == address)) {
            Some(index) => {
                let socket = self.0.swap_remove(index);
                socket.set_nonblocking(true)?;
                Ok(Listener { socket: TcpListener::from_std(socket)?, is_inherited: true })
            }
            None => when_free(|| bind(address, false)).await.map(Listener::from),
        }
    }

    /// Like [`Self::listen`], but the address need not be on an interface yet (`IP_FREEBIND`).
    ///
    /// # Errors
    /// The port is in use.
    pub async fn listen_freebind(&mut self, address: SocketAddr) -> io::Result<Listener> {
        if self.0.iter().any(|socket| socket.local_addr().is_ok_and(|found| found == address)) {
            return self.listen(address).await;
        }
        when_free(|| bind(address, true)).await.map(Listener::from)
    }

    /// The addresses of inherited sockets that are not in use.
    #[must_use]
    pub fn unclaimed(&self) -> Vec<SocketAddr> {
        self.0.iter().filter_map(|socket| socket.local_addr().ok()).collect()
    }
}

fn bind(address: SocketAddr, freebind: bool) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_reuseaddr(true)?;
    match address {
        SocketAddr::V4(_) if freebind => rustix::net::sockopt::set_ip_freebind(&socket, true)?,
        SocketAddr::V6(_) if freebind => rustix::net::sockopt::set_ipv6_freebind(&socket, true)?,
        _ => {}
    }
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Binds a port, also one that is in use for a moment.
async fn when_free(bind: impl Fn() -> io::Result<TcpListener>) -> io::Result<TcpListener> {
    let deadline = Instant::now() + IN_USE;
    loop {
        match bind() {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && Instant::now() < deadline => {
                tokio::time::sleep(RETRY).await;
            }
            bound => return bound,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_inherited_socket_is_used_for_its_address() {
        let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = socket.local_addr().unwrap();
        let mut sockets = ListenSockets(vec![socket]);
        let other = sockets.listen("127.0.0.1:0".parse().unwrap()).await.unwrap();
        assert!(other.socket.local_addr().unwrap() != address && !other.is_inherited);
        assert_eq!(sockets.unclaimed(), [address]);
        let taken = sockets.listen(address).await.unwrap();
        assert!(taken.socket.local_addr().unwrap() == address && taken.is_inherited);
        assert!(sockets.unclaimed().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_port_may_be_in_use_for_a_moment() {
        let former = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = former.local_addr().unwrap();
        let error = ListenSockets::default().listen(address).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        let mut sockets = ListenSockets::default();
        let (listener, ()) = tokio::join!(sockets.listen(address), async {
            tokio::time::sleep(RETRY * 3).await;
            drop(former);
        });
        assert_eq!(listener.unwrap().socket.local_addr().unwrap(), address);
    }

    #[tokio::test(start_paused = true)]
    async fn a_port_is_bound_before_an_interface_has_its_address() {
        // No interface has these addresses, which are reserved for documentation.
        for address in ["192.0.2.77:0", "[2001:db8::77]:0"] {
            let address: SocketAddr = address.parse().unwrap();
            let listener = ListenSockets::default().listen_freebind(address).await.unwrap();
            assert_eq!(listener.socket.local_addr().unwrap().ip(), address.ip());
            assert!(ListenSockets::default().listen(address).await.is_err());
        }
        let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = socket.local_addr().unwrap();
        assert!(ListenSockets::default().listen_freebind(address).await.is_err(), "the port is in use");
        let mut sockets = ListenSockets(vec![socket]);
        assert_eq!(sockets.listen_freebind(address).await.unwrap().socket.local_addr().unwrap(), address);
    }
}
