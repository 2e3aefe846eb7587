//! The daemon's work outside its own memory: files, child processes, and what of both is shown. Beside it, the ledger of that memory.
//!
//! A file system may stop answering at any time (NFS, CephFS, a failing disk), so nothing that serves waits for one:
//! [`files`] is the one place from which the daemon reads, writes and stats, and [`WatchedFiles`] follows files for changes.
//!
//! Each module may use the modules of the lines below it:
//!
//! ```text
//! watched_files    what of a set of files has changed, by content, and never half a file
//! folder           the files of one folder, and the events of their file system
//! cgroup           the memory that the daemon may use, and a child
//! child            a process of the same binary, for work on what nobody trusts
//! ledger           the bytes that the daemon holds for each owner
//! sync             the locks of what is tested in all orders of threads
//! one_line         text that nobody trusts, as one line
//! log_limit        lines that clients without a credential can cause
//! time             times and durations on disk
//! trail, files     the links on the way to a file; file work with a deadline
//! ```

mod cgroup;
mod child;
pub mod files;
mod folder;
pub mod ledger;
mod log_limit;
mod one_line;
pub mod sync;
mod time;
mod trail;
mod watched_files;

pub use cgroup::memory_limit;
pub use child::{Child, ChildFailure, ChildLimits, MACHINE_LACKS};
pub use log_limit::LogLimit;
pub use one_line::one_line;
pub use time::read_time;
pub use watched_files::{FileRead, WatchedFiles};
