//! Makes filters from the bytes of modules: compiles them in a child process, links them and configures a first
//! instance.

mod code;
mod code_in_memory;
mod compile;
mod load;

pub use compile::{ChildError, Compiler};
pub use load::{LoadError, Loader, LookupSource, Probe};
