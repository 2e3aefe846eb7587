//! The vocabulary of the Kubernetes API that the rest of Weir speaks: names of resources, what a request asks for, content
//! negotiation and selectors. No I/O, and nothing of Weir's own below it.

mod accept;
mod class;
mod lookup;
mod node;
mod request;
mod resource;
mod selector;

pub use accept::{Encoding, Form, Include, MetaVersion, Shape};
pub use class::Class;
pub use lookup::Lookup;
pub use node::Address;
pub use request::{Malformed, Query, Request, ResourceRequest, Target, Verb, component};
pub use resource::{GroupResource, ResourceNameError};
pub use selector::{Selector, SelectorError};
