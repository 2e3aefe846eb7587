//! Filter modules in OCI registries: pulled by digest, verified by signature, pushed, and moved as files.
//!
//! ```text
//! Registries, Credentials ─► PullJob ─► a child process: pull ─► Layout in a file ─► SignaturePolicy ─► Module
//! push, push_layout ─► Registry                                   ▲ weir save, peers, the daemon's cache
//! ```
//!
//! A registry may answer anything. Its answers are read in a child process with limits ([`PullJob::run`]), and trusted
//! only as far as digests and signatures go. The file is an OCI layout as tar, the same for the cache, for peers, and for
//! people who carry it over an air gap.

mod artifact;
mod authorization;
mod child;
mod client;
mod credentials;
mod error;
mod hosts;
mod job;
mod layout;
mod manifest;
mod mapping;
mod pull;
mod push;
pub mod signature;

pub use self::artifact::{ArtifactError, Module};
pub use self::child::{PullChildError, pull_child};
pub use self::credentials::{Credentials, Login};
pub use self::error::RegistryError;
pub use self::hosts::{Endpoint, Registries, RegistriesError};
pub use self::job::PullJob;
pub use self::layout::{Layout, LayoutError, MAX_LAYOUT};
pub use self::pull::PullEvent;
pub use self::push::{Pushed, Target, push, push_layout, resolve};
