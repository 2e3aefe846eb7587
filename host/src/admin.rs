//! The admin port: is the daemon alive, is it ready, what does it measure, which filters are in force.

mod port;
pub mod status;

pub use port::Admin;
