//! Tests of `weir-operator` against a real kube-apiserver. Needs `make build` and `make controlplane`.
//!
//! The operator runs as its built program, with the token and the permissions of its own ServiceAccount.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "tests and their helpers: a panic is the report"
)]

mod operator {
    mod bad_input;
    mod cluster;
    mod evictions;
    mod failures;
    mod ingresses;
    mod manifests;
    mod migration;
    mod policy;
    mod process;
    mod refusals;
    mod renames;
    mod rollout;
    mod scale;
    mod traefik;
}
