//! Tests of what operators install: the Helm chart, the image, the alerts and the dashboard, and modules that were built for
//! earlier daemons.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "tests and their helpers: a panic is the report"
)]

mod deploy {
    mod chart;
    mod contract;
    mod given;
    mod image;
    mod monitoring;
    mod nodes;
    mod refused;
    mod release;
    mod upgrade;
    mod values;
    mod yurthub;
}
