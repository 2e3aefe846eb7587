//! The uid of the process at the other end of a loopback connection. TCP has no peer credentials, but the kernel's socket
//! tables list both ends of a loopback connection with their uids.
//!
//! Only an established socket with an inode counts. When a process closes its socket, the kernel keeps the row for a while
//! with uid 0 and inode 0. Otherwise a process could send a request, close the socket, and be taken for root.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

/// The socket tables. The flag says whether a table has IPv6 addresses.
const TABLES: [(&str, bool); 2] = [("/proc/net/tcp", false), ("/proc/net/tcp6", true)];
/// The state `TCP_ESTABLISHED` in the tables.
const ESTABLISHED: &str = "01";
/// The inode of a socket that no process holds any more.
const NO_INODE: u64 = 0;

/// Returns the uid that opened the connection from `client` to `server`; none if it is unknown, or if the client has
/// closed its end. Cancel-safe.
pub(in crate::proxy) async fn peer_uid(client: SocketAddr, server: SocketAddr) -> Option<u32> {
    for (path, v6) in TABLES {
        let Some((client, server)) = table_format(client, v6).zip(table_format(server, v6)) else { continue };
        // A system without IPv6 has no such table.
        let table = tokio::fs::read_to_string(path).await.unwrap_or_default();
        if let Some(socket) = table.lines().find_map(|line| Socket::find(line, &client, &server)) {
            return socket.uid();
        }
    }
    None
}

/// A row of a socket table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Socket {
    established: bool,
    uid: u32,
    inode: u64,
}

impl Socket {
    /// Parses a row; none if its local address is not `client` or its remote address is not `server`.
    fn find(line: &str, client: &str, server: &str) -> Option<Self> {
        let mut columns = line.split_ascii_whitespace().skip(1);
        if columns.next() != Some(client) || columns.next() != Some(server) {
            return None;
        }
        let state = columns.next()?;
        // Skips queues, timer and retransmissions before the uid, and the timeout after it.
        let (uid, inode) = (columns.nth(3)?, columns.nth(1)?);
        Some(Self { established: state == ESTABLISHED, uid: uid.parse().ok()?, inode: inode.parse().ok()? })
    }

    /// Returns the uid of the process that has the socket open.
    fn uid(self) -> Option<u32> {
        (self.established && self.inode != NO_INODE).then_some(self.uid)
    }
}

/// Formats an address as in the tables: hexadecimal 32-bit words in the byte order of the machine.
fn table_format(address: SocketAddr, v6: bool) -> Option<String> {
    let words = |octets: &[u8]| {
        octets.chunks_exact(4).fold(String::new(), |text, word| {
            let word: [u8; 4] = word.try_into().unwrap_or_default();
            format!("{text}{:08X}", u32::from_ne_bytes(word))
        })
    };
    let ip = match (address.ip().to_canonical(), v6) {
        (IpAddr::V4(ip), false) => words(&ip.octets()),
        // A program can use IPv4 through an IPv6 socket.
        (IpAddr::V4(ip), true) => words(&ip.to_ipv6_mapped().octets()),
        (IpAddr::V6(ip), true) => words(&Ipv6Addr::octets(&ip)),
        (IpAddr::V6(_), false) => return None,
    };
    Some(format!("{ip}:{:04X}", address.port()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use tokio::io::AsyncWriteExt as _;
    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    const CLIENT: &str = "0100007F:9C40";
    const SERVER: &str = "0100007F:2815";

    #[tokio::test]
    async fn the_uid_of_an_open_connection_is_that_of_its_client() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (client, server) = (stream.local_addr().unwrap(), stream.peer_addr().unwrap());
        let own = std::fs::metadata("/proc/self").unwrap().uid();
        assert_eq!(peer_uid(client, server).await, Some(own));
        assert_eq!(peer_uid(client, SocketAddr::new(server.ip(), 1)).await, None);
    }

    #[tokio::test]
    async fn a_client_that_closed_its_socket_has_no_uid() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (client, server) = (stream.local_addr().unwrap(), stream.peer_addr().unwrap());
        let (_accepted, _) = listener.accept().await.unwrap();
        stream.write_all(b"POST / HTTP/1.1\r\n\r\n").await.unwrap();
        drop(stream);
        assert_eq!(peer_uid(client, server).await, None);
    }

    fn row(state: &str, uid: &str, inode: &str) -> String {
        format!("   3: {CLIENT} {SERVER} {state} 00000000:00000000 00:00000000 00000000  {uid}        0 {inode} 1 0")
    }

    #[test]
    fn only_an_established_socket_with_an_inode_counts() {
        let uid = |state, uid, inode| Socket::find(&row(state, uid, inode), CLIENT, SERVER).and_then(Socket::uid);
        assert_eq!(uid("01", "1000", "5"), Some(1000));
        assert_eq!(uid("01", "0", "5"), Some(0));
        for state in ["02", "04", "05", "06", "07", "08", "09", "0B"] {
            assert_eq!(uid(state, "0", "5"), None, "{state}");
        }
        assert_eq!(uid("01", "0", "0"), None, "no process has it open");
    }

    #[test]
    fn a_row_counts_if_both_addresses_match_and_no_column_is_missing() {
        assert_eq!(Socket::find(&row("01", "1", "5"), SERVER, CLIENT), None, "the other end");
        for broken in [
            "",
            "  sl  local_address rem_address",
            "1: 0100007F:9C40 0100007F:2815 01",
            "1: 0100007F:9C40 0100007F:2815 01 0:0 0:0 0 1000 0",
            "1: 0100007F:9C40 0100007F:2815 01 0:0 0:0 0 x 0 5",
        ] {
            assert_eq!(Socket::find(broken, CLIENT, SERVER), None, "{broken}");
        }
    }
}
