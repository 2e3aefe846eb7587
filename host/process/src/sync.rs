//! The locks of what is found, changed and published by several threads at once.
//!
//! The files that use them are compiled again in `tests/schedules`, with the locks of a model checker in their place, which tries
//! the orders in which threads may take them.

pub use std::sync::{Mutex, MutexGuard, PoisonError, atomic};

pub use tokio::sync::watch;
