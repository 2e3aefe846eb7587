//! Flags and the filters' configuration: parsed and validated here once, into types that are valid by construction.

mod disk;
mod entry;
mod error;
mod flags;
mod keys;
mod manifest;
mod memory;
mod model;
mod peers;
mod registry;
mod resend;
mod secure;
mod serve;
mod upstream;

pub use disk::DiskCacheConfig;
pub use error::{ConfigurationError, KeyError};
#[cfg(test)]
pub(crate) use flags::definition;
pub use flags::{Command, CompileFlags, UsageMessage, author, cluster, operator, parse};
#[cfg(test)]
pub(crate) use keys::{ConfigKey, FILTER_KEYS, NESTED_KEYS};
pub use memory::MemoryParts;
pub(crate) use model::OFF;
pub use model::{Configuration, KeptModule, as_manifest};
pub use peers::{PEER_PATH, PeersConfig};
pub use registry::{RegistryFlags, TrustFlags};
pub use resend::{Resend, ResendMode};
pub use secure::{PodsConfig, SecureConfig};
pub use serve::{Compression, ConfigSource, LogConfig, LogFormat, NodeConditionMode, ServeConfig};
pub use weir_view::CachedResources;
