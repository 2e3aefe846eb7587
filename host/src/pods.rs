//! How pods of this node reach the daemon: an [`address`] that is there for them, and a [`certificate`] of the cluster's
//! own CA, by which their clients know the API server.

mod address;
mod certificate;
mod issue;
mod kept;
mod metrics;

pub use self::address::PodAddress;
pub use self::certificate::ServingKeeper;
pub use self::metrics::PodMetrics;
