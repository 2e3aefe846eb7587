//! Which user of this machine has the other end of a loopback connection: from the kernel's tables of TCP sockets, which
//! hold both ends. (TCP has no peer credentials.) Read once for each connection that it matters to.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

/// The tables, and whether their addresses are IPv6.
const TABLES: [(&str, bool); 2] = [("/proc/net/tcp", false), ("/proc/net/tcp6", true)];

/// The user who opened the connection from `client` to `server`; none if that cannot be told. Cancel-safe.
pub(in crate::proxy) async fn owner(client: SocketAddr, server: SocketAddr) -> Option<u32> {
    for (path, v6) in TABLES {
        let Some((client, server)) = written(client, v6).zip(written(server, v6)) else { continue };
        // A system without IPv6 has no table of it.
        let table = tokio::fs::read_to_string(path).await.unwrap_or_default();
        if let Some(uid) = table.lines().find_map(|line| row(line, &client, &server)) {
            return Some(uid);
        }
    }
    None
}

/// The user of a table's line, if it is the socket whose own address is `client`.
fn row(line: &str, client: &str, server: &str) -> Option<u32> {
    let mut columns = line.split_ascii_whitespace().skip(1);
    let found = columns.next() == Some(client) && columns.next() == Some(server);
    // After the addresses: state, queues, timer, retransmissions.
    columns.nth(4).filter(|_| found)?.parse().ok()
}

/// An address as the tables write it: words of the machine's own byte order, in hexadecimal.
fn written(address: SocketAddr, v6: bool) -> Option<String> {
    let words = |octets: &[u8]| {
        octets.chunks_exact(4).fold(String::new(), |text, word| {
            let word: [u8; 4] = word.try_into().unwrap_or_default();
            format!("{text}{:08X}", u32::from_ne_bytes(word))
        })
    };
    let ip = match (address.ip().to_canonical(), v6) {
        (IpAddr::V4(ip), false) => words(&ip.octets()),
        // Of a program that speaks IPv4 through an IPv6 socket.
        (IpAddr::V4(ip), true) => words(&ip.to_ipv6_mapped().octets()),
        (IpAddr::V6(ip), true) => words(&Ipv6Addr::octets(&ip)),
        (IpAddr::V6(_), false) => return None,
    };
    Some(format!("{ip}:{:04X}", address.port()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    #[tokio::test]
    async fn the_owner_of_a_connection_is_found_and_of_no_other() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (client, server) = (stream.local_addr().unwrap(), stream.peer_addr().unwrap());
        let own = std::fs::metadata("/proc/self").unwrap().uid();
        assert_eq!(owner(client, server).await, Some(own));
        assert_eq!(owner(client, SocketAddr::new(server.ip(), 1)).await, None);
    }

    #[test]
    fn a_row_tells_its_user_where_both_addresses_are_those() {
        let line = "   3: 0100007F:9C40 0100007F:2815 01 00000000:00000000 00:00000000 00000000  1000        0 5 1 0";
        assert_eq!(row(line, "0100007F:9C40", "0100007F:2815"), Some(1000));
        assert_eq!(row(line, "0100007F:2815", "0100007F:9C40"), None, "that is the other end");
        for broken in ["", "  sl  local_address rem_address", "1: 0100007F:9C40 0100007F:2815 01"] {
            assert_eq!(row(broken, "0100007F:9C40", "0100007F:2815"), None, "{broken}");
        }
    }
}
