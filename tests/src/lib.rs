//! Helpers of the behaviour tests: the built daemon as a child process, a plain HTTP client that sees every byte, and
//! hostile guests built from text. The API server is the crate `weir-apiserver`.
//!
//! The tests run built files, `target/release/weir` and `target/modules/*.wasm`. `make test` builds both first. `WEIR_PROGRAMS`
//! names another folder of programs, as that of `make shipped`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "test support: a panic is the report"
)]

pub mod browser;
pub mod built;
pub mod chart;
pub mod client;
pub mod collector;
pub mod daemon;
pub mod edge;
pub mod guests;
pub mod hanging_folder;
pub mod link;
pub mod machine;
pub mod network;
pub mod node_reads;
pub mod pki;
pub mod plane;
pub mod protobuf;
pub mod registry;
pub mod rights;
pub mod wait;
pub mod watch_history;
