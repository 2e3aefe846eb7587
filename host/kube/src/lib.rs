//! The vocabulary of the Kubernetes API: names of resources, requests, content negotiation, label selectors, and the patches
//! of a pod's status.
//!
//! This crate performs no I/O and depends on no other crate of the workspace. Its modules depend on each other in one
//! direction only:
//!
//! ```text
//! negotiation ─► request_info ─► verb, group_resource
//! lookup ─► group_resource
//! label_selector, interface_address, node_user, pod_status
//! ```

mod field_selector;
mod group_resource;
mod interface_address;
mod label_selector;
mod lookup;
mod negotiation;
mod node_user;
mod pod_status;
mod request_info;
mod verb;

pub use field_selector::{FieldSelector, FieldSelectorError};
pub use group_resource::{GroupResource, ResourceNameError};
pub use interface_address::InterfaceAddress;
pub use label_selector::{LabelSelector, SelectorError};
pub use lookup::LookupSpec;
pub use negotiation::{Encoding, IncludeObject, MediaType, MetaVersion, Transform, accepts_only_tables};
pub use node_user::{KUBELET, node_of_user};
pub use pod_status::{InvalidStatus, PodStatus, StatusPatch};
pub use request_info::{Query, RequestInfo, RequestInfoError, RequestKind, ResourceRequest, client_component};
pub use verb::{Verb, VerbClass};
