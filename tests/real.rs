//! Tests of Weir between a real kube-apiserver and real clients, one file per kind of client. Needs `make
//! controlplane`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "tests and their helpers: a panic is the report"
)]

mod real {
    mod chart;
    mod clients;
    mod config;
    mod converge;
    mod differential;
    mod dry_run;
    mod kubectl;
    mod node_report;
    mod offline;
    mod permissions;
    mod pod_security;
    mod prints;
    mod random;
    mod registry;
    mod restored;
    mod secure;
    mod signed;
    mod streams;
    mod uninstall;
    mod wire;
    mod without_openyurt;
    mod writes;
}
