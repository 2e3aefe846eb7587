//! The vocabulary of the Kubernetes API: names of resources, requests, content negotiation, label selectors, the
//! patches of a pod's status, the credential of a request, quantities and durations, chains
//! of errors, what filters may edit, and YAML as `kubectl` reads it.
//!
//! This crate performs no I/O. Of the workspace it depends on `weir-document` alone. Its modules depend on each other in one
//! direction only:
//!
//! ```text
//! negotiation ─► request_info ─► verb, field_selector, label_selector, go_text
//! field_selector ─► group_resource
//! credential ─► go_text
//! impersonation ─► request_info
//! label_selector ─► names
//! amount, error_chain, filter_edits, node_user, pod_status, yaml
//! ```

#[cfg(doctest)]
// The example of the README is compiled and run.
#[doc = include_str!("../README.md")]
struct Readme;

mod amount;
mod credential;
mod error_chain;
mod field_selector;
mod filter_edits;
mod go_text;
mod group_resource;
mod identity;
mod impersonation;
mod label_selector;
mod names;
mod negotiation;
mod node_user;
mod pod_status;
mod request_info;
mod verb;
mod yaml;

pub use amount::{duration, quantity};
pub use credential::{Credential, CredentialError, Token, is_websocket};
pub use error_chain::error_chain;
pub use field_selector::{FieldSelector, FieldSelectorError, FieldSupport};
pub use filter_edits::FILTER_EDITS;
pub use group_resource::{GroupResource, ResourceNameError};
pub use identity::Identity;
pub use impersonation::{Impersonation, ImpersonationError};
pub use label_selector::{LabelSelector, SelectorError};
pub use names::{is_dns_subdomain, node_name};
pub use negotiation::{Accepted, Encoding, IncludeObject, MediaType, MetaVersion, Transform};
pub use node_user::{KUBELET, node_of_user};
pub use pod_status::{InvalidStatus, PodStatus, StatusPatch};
pub use request_info::{
    ListOptions, OptionsError, OptionsErrorKind, Query, RequestInfo, RequestInfoError, RequestKind, ResourceRequest,
    client_component,
};
pub use verb::{Verb, VerbClass};
pub use yaml::{utf8, yaml_document, yaml_documents};
