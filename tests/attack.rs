//! Attacks on the built daemon, by theme, after the threat model of SECURITY.md.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "tests and their helpers: a panic is the report"
)]

mod attack {
    mod certificates;
    mod clients;
    mod clock;
    mod compiled_code;
    mod credentials;
    mod documents;
    mod exec_plugins;
    mod exhaustion;
    mod modules;
    mod parsers;
    mod peers;
    mod request_heads;
    mod shares;
    mod smuggling;
    mod starvation;
    mod upgrades;
}
