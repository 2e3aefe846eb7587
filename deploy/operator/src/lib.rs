//! The operator of Weir. It runs an ingress controller in each chosen node pool, and keeps the pods of offline nodes from
//! eviction.
//!
//! [`api`] is the custom resource, [`template`] renders the objects of a pool from manifests, [`ingress`] applies them, and
//! [`evictions`] sets the tolerations of pods. [`uninstall`] lets YurtIngresses go when no operator runs any more. [`app`] connects them. The operator runs on the cloud side and keeps no state:
//! everything is in the API server.

pub mod admin;
pub mod api;
pub mod app;
mod backoff;
mod changes;
pub mod client;
mod clock;
pub mod config;
mod events;
pub mod evictions;
#[cfg(test)]
mod fake_server;
mod follow;
pub mod health;
pub mod ingress;
pub mod leader;
pub mod metrics;
pub mod pools;
pub mod template;
pub mod uninstall;
