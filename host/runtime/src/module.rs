//! Makes filters from the bytes of modules: compiles them in a child process, links them and configures a first
//! instance.

mod compile;
mod load;

pub use compile::{ChildError, CompileError, Compiler, MAX_MODULE, code_cache, compile_child};
pub use load::{LoadError, Loader, LookupSource};
