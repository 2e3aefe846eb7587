//! The listening sockets: passed on by systemd (socket activation), or bound here.
//!
//! A socket that systemd holds outlives the daemon: while one daemon ends and the next begins, new connections wait in its
//! queue and none is refused. Which socket is which is told by its address.

use std::io;
use std::net::SocketAddr;

use listenfd::ListenFd;
use tokio::net::{TcpListener, TcpSocket};

/// Connections that wait to be accepted, as tokio has it for others.
const BACKLOG: u32 = 1024;

/// Sockets that were passed on and not taken yet.
#[derive(Debug, Default)]
pub struct Sockets(Vec<std::net::TcpListener>);

impl Sockets {
    /// Takes what the environment (`LISTEN_FDS`, `LISTEN_PID`) says was passed on.
    ///
    /// # Errors
    /// Something that is no TCP socket.
    pub fn passed_on() -> io::Result<Self> {
        let mut passed = ListenFd::from_env();
        let mut sockets = Vec::new();
        for index in 0..passed.len() {
            sockets.extend(passed.take_tcp_listener(index)?);
        }
        Ok(Self(sockets))
    }

    /// The socket of an address: the one that was passed on, or a new one.
    ///
    /// # Errors
    /// The address can not be bound.
    pub async fn listen(&mut self, address: SocketAddr) -> io::Result<TcpListener> {
        match self.0.iter().position(|socket| socket.local_addr().is_ok_and(|found| found == address)) {
            Some(index) => {
                let socket = self.0.swap_remove(index);
                socket.set_nonblocking(true)?;
                TcpListener::from_std(socket)
            }
            None => TcpListener::bind(address).await,
        }
    }

    /// The same, for an address that need not be there yet: who connects gets through once it is.
    ///
    /// # Errors
    /// The port is taken.
    pub async fn listen_ahead(&mut self, address: SocketAddr) -> io::Result<TcpListener> {
        if self.0.iter().any(|socket| socket.local_addr().is_ok_and(|found| found == address)) {
            return self.listen(address).await;
        }
        let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
        socket.set_reuseaddr(true)?;
        match address {
            SocketAddr::V4(_) => rustix::net::sockopt::set_ip_freebind(&socket, true)?,
            SocketAddr::V6(_) => rustix::net::sockopt::set_ipv6_freebind(&socket, true)?,
        }
        socket.bind(address)?;
        socket.listen(BACKLOG)
    }

    /// Where those listen that nobody took.
    #[must_use]
    pub fn left(&self) -> Vec<SocketAddr> {
        self.0.iter().filter_map(|socket| socket.local_addr().ok()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_socket_that_was_passed_on_is_taken_for_its_address_and_others_are_bound() {
        let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = socket.local_addr().unwrap();
        let mut sockets = Sockets(vec![socket]);
        let other = sockets.listen("127.0.0.1:0".parse().unwrap()).await.unwrap();
        assert_ne!(other.local_addr().unwrap(), address);
        assert_eq!(sockets.left(), [address]);
        let taken = sockets.listen(address).await.unwrap();
        assert_eq!(taken.local_addr().unwrap(), address);
        assert!(sockets.left().is_empty());
    }

    #[tokio::test]
    async fn a_port_is_bound_before_its_address_is_there() {
        // Addresses for documentation: no interface has them.
        for address in ["192.0.2.77:0", "[2001:db8::77]:0"] {
            let address: SocketAddr = address.parse().unwrap();
            let listener = Sockets::default().listen_ahead(address).await.unwrap();
            assert_eq!(listener.local_addr().unwrap().ip(), address.ip());
            assert!(Sockets::default().listen(address).await.is_err());
        }
        let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = socket.local_addr().unwrap();
        assert!(Sockets::default().listen_ahead(address).await.is_err(), "the port is taken");
        let mut sockets = Sockets(vec![socket]);
        assert_eq!(sockets.listen_ahead(address).await.unwrap().local_addr().unwrap(), address);
    }
}
