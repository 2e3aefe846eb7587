//! Modules: where they come from, how they are compiled and proven, and how a change of them goes live.

mod compile;
mod load;
mod notice;
mod prove;
mod reload;
mod source;

pub use compile::{ChildError, CompileError, Compiler, MAX_MODULE, code_cache, compile_child};
pub use load::{LoadError, Loader, LookupSource};
pub use notice::Notices;
pub use prove::prove;
pub use reload::Reloader;
pub use source::{Found, Place};
