//! The admin port: liveness, readiness, metrics, the state of filters and watch caches, and the status page.

mod activity;
mod caches;
mod filter_change;
mod health;
mod metrics;
mod notices;
mod overview;
mod page;
mod port;
mod reload_history;
pub mod status;

pub use activity::{Activity, ActivitySources};
pub use caches::Caches;
pub use health::HealthSources;
pub(crate) use health::{HealthReport, NodeHealth};
pub use metrics::AdminMetrics;
pub(crate) use notices::HttpsPort;
pub use notices::Notices;
pub use port::{Admin, AdminParts};
