//! How pods of this node reach the daemon: at a local [`address`], with a serving [`certificate`] that the cluster's CA has
//! signed, so that their clients trust it as the API server.

mod address;
mod certificate;
mod issue;
mod kept;
mod metrics;

pub use self::address::PodAddress;
pub use self::certificate::ServingKeeper;
pub use self::metrics::PodMetrics;
