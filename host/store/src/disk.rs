//! Watch caches on disk: what the daemon knew outlives it, and a restart without the API server serves from there.
//!
//! One database file holds all stores and single values. One task writes them: it gathers the changes of all stores for an
//! interval, and commits them in one transaction. What is on disk is therefore always a state that each store had at one
//! resourceVersion. The bytes are those of the API server, unfiltered.
//!
//! A store on disk is a log of segments, see `persisted`: a commit costs what the changes weigh, not the pages
//! that they are spread over. Plain stores are compressed; stores of Secrets are encrypted.
//!
//! Everything is verified when it is read: the pages of the file by redb when it is opened, and each segment by a digest or
//! the tag of its encryption. A store that is not whole is dropped, reported once and fetched again. Without a usable file the
//! daemon runs from memory, and tries again later.
//!
//! Reads wait neither for a write nor for the verification of what they do not read, see `reading`: a disk that is slow to write,
//! or hangs, keeps no start from serving.
//!
//! Memory: redb's page cache (4 MiB), and per store the position of its segments. The objects are those of the store.
//!
//! ```text
//! cache ─► commit, limit, waiting, known_names, value_index ─► state ─► reading ─► recovery ─► database ─► storage
//!                             └─► persisted ─► segment, store_row, seal ─► config, error
//! ```

mod aside;
mod cache;
mod cluster;
mod commit;
mod commit_times;
mod conditions;
mod config;
mod copying;
mod database;
mod error;
mod keys;
mod known_names;
mod limit;
mod metrics;
mod overlay;
mod persisted;
mod predecessors;
mod reading;
mod ready_time;
mod recovery;
mod seal;
mod segment;
mod state;
mod storage;
mod store_row;
mod store_status;
mod value_class;
mod value_index;
mod values;
mod waiting;

pub use self::cache::DiskCache;
pub(crate) use self::cache::PersistHandle;
pub use self::conditions::DiskCondition;
pub use self::config::DiskConfig;
pub(crate) use self::config::{Confidentiality, StoreName};
pub use self::error::{DiskError, DiskUnusable};
pub use self::metrics::DiskMetrics;
pub use self::store_status::DiskStoreStatus;
pub use self::values::CachedValue;

#[cfg(test)]
mod tests;
