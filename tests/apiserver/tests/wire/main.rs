//! Tests of the server with a plain HTTP client, one file per group of rules.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a helper that fails is a test that fails; clippy.toml relaxes these inside tests only"
)]

mod access;
mod client;
mod discovery;
mod faults;
mod lists;
mod protobuf;
mod shapes;
mod streams;
mod tls;
mod watches;
mod writes;
