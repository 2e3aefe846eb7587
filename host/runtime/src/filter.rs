//! What filters make of documents: the live set, the chain of one (component, resource), outcomes and failure policy.

mod breaker;
mod chain;
#[allow(clippy::module_inception, reason = "a filter is the noun of this module")]
mod filter;
mod foresight;
mod outcome;
mod reads;
mod serving;
mod set;

pub use chain::{Chain, DocumentFilter, Judged, Stamp, Unwritable, Written};
pub use filter::{Filter, Lookups, Proven, RecordedReads};
pub use outcome::{Failure, FailureClass, Outcome};
pub use serving::{Serving, ServingReceiver, ServingSender};
pub use set::FilterSet;
