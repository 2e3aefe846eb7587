//! Weir: a Kubernetes API proxy whose response filters are WebAssembly components.
//!
//! The road of a request, in five hops: `main` → [`app`] → [`proxy`] → `weir_runtime::Chain` → its instance.

pub mod admin;
pub mod app;
pub mod cli;
mod codec;
pub mod config;
pub mod lookups;
pub mod pods;
pub mod proxy;
pub mod reload;
mod revalidate;
pub mod sockets;
