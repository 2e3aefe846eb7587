//! From a module's bytes to a filter: compiled in a child process, linked, probed with its settings.

mod compile;
mod load;

pub use compile::{ChildError, CompileError, Compiler, MAX_MODULE, code_cache, compile_child};
pub use load::{LoadError, Loader, LookupSource};
