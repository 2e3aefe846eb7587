//! A link between the daemon and its API server that a test takes down.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::JoinSet;
use weir_apiserver::ApiServer;

use crate::client::PATIENCE;

const MOMENT: Duration = Duration::from_millis(2);

/// The link to an API server. While it is down, connections are refused.
#[derive(Debug)]
pub struct Link {
    address: SocketAddr,
    /// Bound, and never listens: while the link is down, nobody else gets the port, and connections are refused.
    _port: TcpSocket,
    server: SocketAddr,
    scheme: &'static str,
    /// None while it is down.
    listener: Option<Arc<TcpListener>>,
    connections: JoinSet<()>,
}

impl Link {
    /// A link that is up.
    ///
    /// # Panics
    /// No port can be had.
    pub async fn to(server: &ApiServer) -> Self {
        let port = bound("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = port.local_addr().unwrap();
        let scheme = if server.url().starts_with("https") { "https" } else { "http" };
        let server = server.address();
        let mut link = Self { address, _port: port, server, scheme, listener: None, connections: JoinSet::new() };
        link.up().await;
        link
    }

    /// Where the daemon finds the API server.
    #[must_use]
    pub fn url(&self) -> String {
        format!("{}://{}", self.scheme, self.address)
    }

    /// Leads to another API server from the next [`Link::up`] on.
    pub fn lead_to(&mut self, server: &ApiServer) {
        self.server = server.address();
    }

    fn serve(&mut self, listener: Arc<TcpListener>) {
        let server = self.server;
        self.connections.spawn(async move {
            let mut open = JoinSet::new();
            while let Ok((mut client, _)) = listener.accept().await {
                open.spawn(async move {
                    let Ok(mut server) = TcpStream::connect(server).await else { return };
                    let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
                });
            }
        });
    }

    /// Ends all connections, and refuses further ones.
    pub async fn down(&mut self) {
        self.listener = None;
        self.connections.shutdown().await;
    }

    /// Forwards connections again, and ends those that were not.
    ///
    /// # Panics
    /// Nobody may listen any more.
    pub async fn up(&mut self) {
        self.connections.shutdown().await;
        let listener = self.listener().await;
        self.serve(listener);
    }

    /// The one that there is: a link that changes while it is not down refuses nobody meanwhile.
    async fn listener(&mut self) -> Arc<TcpListener> {
        if let Some(listener) = &self.listener {
            return Arc::clone(listener);
        }
        let listening = async {
            loop {
                match bound(self.address).and_then(|socket| socket.listen(1024)) {
                    // A process that was forked meanwhile has the former socket, too, until it runs its program.
                    Err(error) if error.kind() == io::ErrorKind::AddrInUse => tokio::time::sleep(MOMENT).await,
                    listener => break listener.unwrap(),
                }
            }
        };
        let listener = tokio::time::timeout(PATIENCE, listening).await.expect("nobody else listens there");
        Arc::clone(self.listener.insert(Arc::new(listener)))
    }

    /// Connections are neither refused nor answered, as on a link that drops packets.
    ///
    /// # Panics
    /// Nobody may listen any more.
    pub async fn silent(&mut self) {
        self.connections.shutdown().await;
        let listener = self.listener().await;
        self.connections.spawn(async move {
            let mut open = Vec::new();
            while let Ok((client, _)) = listener.accept().await {
                open.push(client);
            }
        });
    }
}

/// A socket at this address, which another one may be bound to that does not listen either.
fn bound(address: SocketAddr) -> io::Result<TcpSocket> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    Ok(socket)
}
