//! The way to the API servers: which identity travels on which connection, which server is asked, whether any is reached,
//! and credentials that change while the daemon runs.
//!
//! Also the process's own means that everything above needs: the owner of background tasks, back-off, file notices.

mod back_off;
mod base;
mod body;
mod connect;
mod decoded;
mod error;
mod files;
mod health;
mod identity;
mod kept;
mod lane;
mod metrics;
mod notice;
mod own;
mod problem;
mod reach;
mod renew;
mod server;
mod settings;
mod silence;
mod source;
mod tasks;
mod upstream;
mod wire;
mod workers;

pub use back_off::{BackOff, spread};
pub use body::{RequestBody, no_request_body};
pub use connect::SetupError;
pub use decoded::{AnswerError, Gunzip, GunzipError, Plain};
pub use error::UpstreamError;
pub use files::Files;
pub use identity::Identity;
pub use lane::UpstreamBody;
pub use metrics::UpstreamMetrics;
pub use notice::Notices;
pub use problem::in_full;
pub use reach::{Reach, Returns};
pub use renew::Renewal;
pub use server::ServerMode;
pub use source::{Loaded, ServerSource, SourceError};
pub use tasks::Tasks;
pub use upstream::{Head, Purpose, Upstream, UpstreamConfig};
pub use workers::Workers;
