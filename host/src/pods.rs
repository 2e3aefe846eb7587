//! Makes the daemon reachable for pods of this node.
//!
//! It keeps a local [`address`] on an interface. It also obtains a [`serving_certificate`] signed by the cluster's CA, so
//! that clients in pods trust the daemon as the API server.

mod address;
pub(crate) mod cert_store;
mod certificate_request;
mod metrics;
mod serving_certificate;

pub use self::address::PodAddress;
pub use self::metrics::PodMetrics;
pub use self::serving_certificate::CertificateManager;
