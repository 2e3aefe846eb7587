//! Configuration: flags, the filters' ConfigMap, match rules. Everything is parsed here, at the edge, into types that
//! need no second look.

mod digest;
mod entry;
mod flags;
mod limits;
mod manifest;
mod model;
mod name;
mod problem;
mod rule;
mod secure;
mod serve;
mod upstream;

pub use digest::{Digest, DigestError};
pub use flags::{CheckFlags, Command, CompileFlags, Refusal, RunFlags, parse};
pub use limits::{Limits, MemoryLimit, TimeLimit};
pub use model::{Configuration, FailurePolicy, FilterEntry, Writes, default_grants};
pub use name::{FilterName, ModuleFile};
pub use problem::{ConfigurationError, Problem};
pub use rule::{Class, MatchRule, RuleError};
pub use secure::{PodsConfig, SecureConfig, ServingCertificate};
pub use serve::{Compression, ConfigSource, LogConfig, LogFormat, ServeConfig, ServerMode};
pub use upstream::{Loaded, Upstream, UpstreamError};
