//! Configuration: flags, the filters' ConfigMap, match rules. Everything is parsed here, at the edge, into types that
//! need no second look.

mod entry;
mod flags;
mod manifest;
mod model;
mod problem;
mod secure;
mod serve;
mod upstream;

pub use flags::{CheckFlags, Command, CompileFlags, Refusal, RunFlags, parse};
pub use model::Configuration;
pub use problem::{ConfigurationError, Problem};
pub use secure::{PodsConfig, SecureConfig, ServingCertificate};
pub use serve::{Compression, ConfigSource, LogConfig, LogFormat, ServeConfig};
