//! Behaviour tests: the built daemon in front of an in-memory API server, one file per feature.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "tests and their helpers: a panic is the report"
)]

mod behaviour {
    mod absence;
    mod authors;
    mod bad_input;
    mod bundled;
    mod clocks;
    mod commands;
    mod compiled_code;
    mod connections;
    mod credentials;
    mod deploy;
    mod diff;
    mod discovery;
    mod disk;
    mod documents;
    mod drain;
    mod explain;
    mod faults;
    mod forms;
    mod forward;
    mod freshness;
    mod get;
    mod hanging_files;
    mod history_cost;
    mod identity;
    mod kills;
    mod kubelet_offline;
    mod last_good;
    mod list;
    mod lives;
    mod local_status;
    mod lookups;
    mod misfits;
    mod node;
    mod node_report;
    mod offline;
    mod offline_credentials;
    mod offline_grace;
    mod own_credentials;
    mod page;
    mod peers;
    mod pods;
    mod pool_memory;
    mod registries;
    mod relays;
    mod reload;
    mod reload_files;
    mod reload_random;
    mod resend;
    mod roll_out;
    mod secure;
    mod servers;
    mod set_aside;
    mod silent_link;
    mod soak;
    mod start;
    mod start_traffic;
    mod status;
    mod streams;
    mod tls;
    mod traces;
    mod upgrade;
    mod uplinks;
    mod watch;
    mod watch_promises;
    mod websocket;
    mod writes;

    pub(crate) use weir_tests::edge::{NO_LOAD_BALANCERS, edge, only, service};
}
