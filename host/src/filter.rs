//! What filters make of documents: the live set, the chain of one (component, resource), outcomes and failure policy.

mod chain;
mod outcome;
mod reads;
mod serving;
mod set;

pub use chain::{Chain, Stamp};
pub use outcome::{Failure, FailureClass, Outcome};
pub use serving::{Serving, ServingReceiver, ServingSender};
pub use set::{Filter, FilterSet};
