//! The listening sockets: passed on by systemd (socket activation), or bound here.
//!
//! A socket that systemd holds outlives the daemon: while one daemon ends and the next begins, new connections wait in its
//! queue and none is refused. Which socket is which is told by its address.

use std::io;
use std::net::SocketAddr;

use listenfd::ListenFd;
use tokio::net::TcpListener;

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
}
