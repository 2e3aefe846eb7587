//! The server as a plain HTTP client sees it: one file per group of rules.

mod access;
mod client;
mod discovery;
mod faults;
mod lists;
mod shapes;
mod streams;
mod tls;
mod watches;
mod writes;
