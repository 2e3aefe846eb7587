//! A link between the daemon and its API server that a test takes down.

use std::net::SocketAddr;

use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use weir_apiserver::ApiServer;

/// The link to an API server. While it is down, connections are refused.
#[derive(Debug)]
pub struct Link {
    address: SocketAddr,
    server: SocketAddr,
    connections: JoinSet<()>,
}

impl Link {
    /// A link that is up.
    ///
    /// # Panics
    /// No port can be had.
    pub async fn to(server: &ApiServer) -> Self {
        Self::at("127.0.0.1:0", server).await
    }

    /// The same at an address of its own. While it is down, nothing else takes its port: connections leave from another address.
    ///
    /// # Panics
    /// No port can be had.
    pub async fn apart(server: &ApiServer) -> Self {
        Self::at("127.0.0.2:0", server).await
    }

    async fn at(address: &str, server: &ApiServer) -> Self {
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut link = Self { address, server: server.address(), connections: JoinSet::new() };
        link.serve(listener);
        link
    }

    /// Where the daemon finds the API server.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Leads to another API server from the next [`Link::up`] on.
    pub fn lead_to(&mut self, server: &ApiServer) {
        self.server = server.address();
    }

    fn serve(&mut self, listener: TcpListener) {
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
        self.connections.shutdown().await;
    }

    /// Forwards connections again.
    ///
    /// # Panics
    /// Somebody else has its port.
    pub async fn up(&mut self) {
        let listener = TcpListener::bind(self.address).await.unwrap();
        self.serve(listener);
    }

    /// Connections are neither refused nor answered, as on a link that drops packets.
    ///
    /// # Panics
    /// Somebody else has its port.
    pub async fn silent(&mut self) {
        self.down().await;
        let listener = TcpListener::bind(self.address).await.unwrap();
        self.connections.spawn(async move {
            let mut open = Vec::new();
            while let Ok((client, _)) = listener.accept().await {
                open.push(client);
            }
        });
    }
}
