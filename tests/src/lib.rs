//! What the tests by behaviour stand on: the built daemon as a child process, a plain HTTP client that sees every
//! byte, hostile guests made from text. The API server is the crate `weir-apiserver`.
//!
//! The tests run what is shipped: `target/release/weir` and `target/modules/*.wasm`. `make test` builds both first.

pub mod built;
pub mod client;
pub mod daemon;
pub mod guests;
