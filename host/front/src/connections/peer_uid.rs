//! The uid of the process at the other end of a loopback connection. TCP has no peer credentials, but the kernel knows both
//! ends of a loopback connection, and returns the uid of either by sock_diag(7).
//!
//! Only an established socket with an inode counts. When a process closes its socket, the kernel keeps it for a while
//! with uid 0 and inode 0. Otherwise a process could send a request, close the socket, and be taken for root.

use std::io;
use std::net::{IpAddr, SocketAddr};

use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, recv, send, socket_with};

/// `SOCK_DIAG_BY_FAMILY` of `linux/sock_diag.h`.
const BY_FAMILY: u16 = 20;
/// `NLM_F_REQUEST` of `linux/netlink.h`.
const REQUEST: u16 = 1;
/// `IPPROTO_TCP`.
const TCP: u8 = 6;
/// The state `TCP_ESTABLISHED`.
const ESTABLISHED: u8 = 1;
/// The size of `nlmsghdr`.
const HEADER: usize = 16;
/// Where `inet_diag_msg` of `linux/inet_diag.h` has the state, and where it has the uid and the inode.
const STATE: usize = 1;
const UID: usize = 64;
const INODE: usize = 68;

/// Returns the uid of the process that opened the connection from `client` to `server`; none if it is unknown, or if the
/// client has closed its end. It asks the kernel, which does not block.
pub(crate) fn peer_uid(client: SocketAddr, server: SocketAddr) -> Option<u32> {
    match ask(client, server) {
        Ok(uid) => uid,
        Err(error) => {
            tracing::warn!(%client, %error, "the kernel does not report the uid of a local client");
            None
        }
    }
}

fn ask(client: SocketAddr, server: SocketAddr) -> io::Result<Option<u32>> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, Some(netlink::SOCK_DIAG))?;
    let request = request(client, server).ok_or(io::ErrorKind::InvalidInput)?;
    send(&socket, &request, SendFlags::empty())?;
    let mut answer = [0; 1024];
    let (length, _) = recv(&socket, &mut answer, RecvFlags::empty())?;
    Ok(answer.get(..length).and_then(uid_in))
}

/// A message with `inet_diag_req_v2` for one socket. None if the addresses are of different families.
fn request(client: SocketAddr, server: SocketAddr) -> Option<Vec<u8>> {
    // A program can use IPv4 through an IPv6 socket: the kernel finds it by its IPv4 addresses.
    let (family, addresses) = match (client.ip().to_canonical(), server.ip().to_canonical()) {
        (IpAddr::V4(client), IpAddr::V4(server)) => {
            let padded = |address: [u8; 4]| [address, [0; 4], [0; 4], [0; 4]].concat();
            (AddressFamily::INET, [padded(client.octets()), padded(server.octets())])
        }
        (IpAddr::V6(client), IpAddr::V6(server)) => {
            (AddressFamily::INET6, [client.octets().to_vec(), server.octets().to_vec()])
        }
        _ => return None,
    };
    let mut body = vec![u8::try_from(family.as_raw()).ok()?, TCP, 0, 0];
    // All states.
    body.extend(u32::MAX.to_ne_bytes());
    body.extend(client.port().to_be_bytes());
    body.extend(server.port().to_be_bytes());
    body.extend(addresses.concat());
    // Any interface, and no cookie.
    body.extend([0_u32, u32::MAX, u32::MAX].map(u32::to_ne_bytes).concat());
    let mut message = u32::try_from(HEADER + body.len()).ok()?.to_ne_bytes().to_vec();
    message.extend([BY_FAMILY, REQUEST].map(u16::to_ne_bytes).concat());
    // Sequence number and port.
    message.extend([0; 8]);
    message.extend(body);
    Some(message)
}

/// The uid in an answer. None if it is an error (there is no such socket), or if no process has the socket open.
fn uid_in(answer: &[u8]) -> Option<u32> {
    let (header, socket) = answer.split_at_checked(HEADER)?;
    if *header.get(4..6)? != BY_FAMILY.to_ne_bytes() || *socket.get(STATE)? != ESTABLISHED {
        return None;
    }
    let number = |at: usize| Some(u32::from_ne_bytes(socket.get(at..at + 4)?.try_into().ok()?));
    let (uid, inode) = (number(UID)?, number(INODE)?);
    (inode != 0).then_some(uid)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use tokio::io::AsyncWriteExt as _;
    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    #[tokio::test]
    async fn the_uid_of_an_open_connection_is_that_of_its_client() {
        let own = std::fs::metadata("/proc/self").unwrap().uid();
        for (listen, connect) in [("127.0.0.1:0", "127.0.0.1"), ("[::1]:0", "::1"), ("[::]:0", "127.0.0.1")] {
            // The machine may have no IPv6.
            let Ok(listener) = TcpListener::bind(listen).await else { continue };
            let target = SocketAddr::new(connect.parse().unwrap(), listener.local_addr().unwrap().port());
            let stream = TcpStream::connect(target).await.unwrap();
            let (accepted, address) = listener.accept().await.unwrap();
            assert_eq!(peer_uid(address, accepted.local_addr().unwrap()), Some(own), "{listen}");
            assert_eq!(peer_uid(address, SocketAddr::new(target.ip(), 1)), None);
            drop(stream);
        }
    }

    #[tokio::test]
    async fn a_client_that_closed_its_socket_has_no_uid() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (client, server) = (stream.local_addr().unwrap(), stream.peer_addr().unwrap());
        let (_accepted, _) = listener.accept().await.unwrap();
        stream.write_all(b"POST / HTTP/1.1\r\n\r\n").await.unwrap();
        drop(stream);
        assert_eq!(peer_uid(client, server), None);
    }

    fn answer(kind: u16, state: u8, uid: u32, inode: u32) -> Vec<u8> {
        let mut answer = vec![0; HEADER + INODE + 4];
        answer[4..6].copy_from_slice(&kind.to_ne_bytes());
        answer[HEADER + STATE] = state;
        answer[HEADER + UID..HEADER + UID + 4].copy_from_slice(&uid.to_ne_bytes());
        answer[HEADER + INODE..].copy_from_slice(&inode.to_ne_bytes());
        answer
    }

    #[test]
    fn only_an_established_socket_with_an_inode_counts() {
        assert_eq!(uid_in(&answer(BY_FAMILY, ESTABLISHED, 1000, 5)), Some(1000));
        assert_eq!(uid_in(&answer(BY_FAMILY, ESTABLISHED, 0, 5)), Some(0));
        for state in (0..=12).filter(|state| *state != ESTABLISHED) {
            assert_eq!(uid_in(&answer(BY_FAMILY, state, 0, 5)), None, "{state}");
        }
        assert_eq!(uid_in(&answer(BY_FAMILY, ESTABLISHED, 0, 0)), None, "no process has it open");
        assert_eq!(uid_in(&answer(2, ESTABLISHED, 0, 5)), None, "NLMSG_ERROR");
        for length in 0..HEADER + INODE + 4 {
            assert_eq!(uid_in(&answer(BY_FAMILY, ESTABLISHED, 0, 5)[..length]), None, "{length}");
        }
    }
}
