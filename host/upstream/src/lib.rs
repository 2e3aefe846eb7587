//! The client side of Weir: connections to the API servers, fail-over, connectivity, credentials, and decoded bodies.
//!
//! It also holds the process-wide parts that all crates above need: background tasks, connection threads and back-off.
//!
//! Each module may use the modules of the lines below it. There are no cycles:
//!
//! ```text
//! daemon_client                          kube clients on top of Upstream
//! upstream                               server selection, fail-over, health probes, credential reload
//! transport, decoded_body                one identity's connections to all servers; gzip decoding
//! server, upstream_body                  the servers; response bodies with their stream permit
//! ways                                   which ways to the servers work, and what is published of that
//! h2_pool, server_address                connection pools with stream limits; the URL of a server
//! connection                             one HTTP connection and its tasks
//! tunnel                                 a connection through a peer
//! connect, replay_body                   TLS and credential headers; bodies for several attempts
//! dial                                   TCP, or a tunnel
//! back_off, tasks, server_source         retries; background tasks; the servers and a credential, from files
//! error                                  errors of requests
//! clock, connectivity, delegated_credential, error_report, gunzip, metrics, request, server_status, streams,
//! unanswered_probes, user_agent, workers                    no dependencies in this crate
//! ```

mod back_off;
mod certificates;
pub mod clock;
mod connect;
mod connection;
mod connectivity;
mod daemon_client;
mod decoded_body;
mod delegated_credential;
mod dial;
mod error;
mod error_report;
mod exec_plugin;
mod gunzip;
mod h2_pool;
mod metrics;
mod replay_body;
mod request;
mod server;
mod server_address;
mod server_source;
mod server_status;
mod streams;
mod tasks;
mod transport;
mod tunnel;
mod unanswered_probes;
mod upstream;
mod upstream_body;
mod user_agent;
mod ways;
mod workers;

pub use back_off::{BackOff, jitter};
pub use certificates::{CertificateInfo, CertificateValidity};
pub use connect::SetupError;
pub use connectivity::{Connectivity, Reconnects};
pub use decoded_body::{DecodedBody, ResponseBodyError};
pub use delegated_credential::{DelegatedCredential, Delegation, Refusal, RefusalSender, refusals};
pub use error::UpstreamError;
pub use error_report::error_report;
pub use exec_plugin::ExecPluginError;
pub use gunzip::{Gunzip, GunzipError};
pub use metrics::UpstreamMetrics;
pub use request::{AnsweredBy, Purpose, RequestBody, RequestHead, no_request_body};
pub use server::ServerMode;
pub use server_source::{ServerConfig, ServerSource, SourceError, client_certificate};
pub use server_status::{ServerState, ServerStatus};
pub use tasks::Tasks;
pub use upstream::{FirstLoad, Relay, RelayError, ReloadedCredential, ServerRole, Upstream, UpstreamConfig};
pub use upstream_body::UpstreamBody;
pub use user_agent::set_user_agent;
pub use workers::Workers;
