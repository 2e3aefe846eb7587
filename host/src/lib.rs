//! Weir: a Kubernetes API proxy whose response filters are WebAssembly components.
//!
//! A reader follows `main` → [`app`] → [`proxy`] → `weir_runtime::Chain` → the instance of a module. `host/README.md` lists the
//! stops of a list, a watch event and a reload.

pub mod admin;
mod api_servers;
pub mod app;
mod cache_directory;
mod cache_wiring;
pub mod cli;
pub mod client_table;
pub mod config;
mod disk_cache;
#[cfg(test)]
mod documents;
pub mod explanation;
mod file_limit;
#[cfg(test)]
mod health_places;
pub mod local_status;
mod logging;
pub mod lookups;
pub mod metrics;
pub mod modules;
pub mod node_facts;
mod node_name;
pub mod node_report;
mod offline;
mod peers;
pub mod pods;
pub mod pool;
pub mod proxy;
pub mod reload;
mod revalidate;
pub mod serve;
mod server_addresses;
mod server_file;
mod time_file;
pub mod traces;
mod unpack;
