//! From sockets to requests: the ports of the proxy, and who is at the other end of each connection.
//!
//! A connection is plain HTTP or HTTPS, HTTP/1.1 or HTTP/2. A [`Front`] accepts it, and passes each of its requests to the
//! [`Handler`] with its [`Peer`]: address, uid of a local process, and client certificate. What a request asks for, and what a
//! response contains, is not known here.
//!
//! ```text
//! listener ─► handler ─► peer ─► client_trust ─► client_certificate
//!   │            ├─────────┴──► connections
//!   │            └────────────► head_guard
//!   ├──► tls ─► metrics, client_trust, client_verifier
//!   ├──► shut_down ─► connections, head_guard
//!   ├──► waiting_clients ─► connections
//!   └──► drain, sockets, write_coalescer
//! ```

mod client_certificate;
mod client_trust;
mod client_verifier;
mod connections;
mod drain;
mod handler;
mod head_guard;
mod listener;
mod metrics;
mod peer;
mod shut_down;
mod sockets;
mod tls;
mod waiting_clients;
mod write_coalescer;

pub use self::client_certificate::Subject;
pub use self::connections::{ActiveRequest, Connection, ConnectionPeer, Connections};
pub use self::handler::Handler;
pub use self::head_guard::HeadError;
pub use self::listener::Front;
pub use self::metrics::ServingCertificateMetrics;
pub use self::peer::Peer;
pub use self::sockets::{ListenSockets, Listener};
pub use self::tls::{ServerTls, ServerTlsError, ServingCertificate};
