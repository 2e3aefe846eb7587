//! Weir: a Kubernetes API proxy whose response filters are WebAssembly components.
//!
//! A reader follows `main` → [`app`] → [`proxy`] → `weir_runtime::Chain` → the instance of a module. `host/README.md` lists the
//! stops of a list, a watch event and a reload.

pub mod admin;
pub mod app;
mod cache_wiring;
pub mod cli;
mod codec;
pub mod config;
mod disk_cache;
#[cfg(test)]
mod documents;
pub mod local_status;
mod logging;
pub mod lookups;
pub mod metrics;
mod peers;
pub mod pods;
pub mod proxy;
pub mod reload;
mod revalidate;
pub mod sockets;
mod time_file;
pub mod view;
