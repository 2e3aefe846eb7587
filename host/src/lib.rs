//! Weir: a Kubernetes API proxy whose response filters are WebAssembly components.
//!
//! The road of a request, in five hops: `main` → [`app`] → [`proxy`] → [`filter`] (the chain) → [`wasm`] (the instance).

pub mod admin;
pub mod app;
pub mod author;
pub mod config;
pub mod feed;
pub mod files;
pub mod filter;
pub mod module;
pub mod pods;
pub mod problem;
pub mod proxy;
pub mod resource;
pub mod sockets;
pub mod tasks;
pub mod wasm;
pub mod workers;
