//! What filters make of documents: the live set, the chain of one (component, resource), outcomes and failure policy.

mod breaker;
mod chain;
#[allow(clippy::module_inception, reason = "a filter is the noun of this module")]
mod filter;
mod foresight;
mod outcome;
mod reads;
#[cfg(test)]
mod script;
mod serving;
mod set;
mod validate;

pub use chain::{Chain, Stamp, Unwritable, Written};
pub use filter::{Filter, Lookups, Proven, RecordedReads};
pub use outcome::{Failure, FailureClass, Outcome};
#[cfg(test)]
pub(crate) use script::Script;
pub use serving::{Serving, ServingReceiver, ServingSender};
pub use set::FilterSet;
pub use validate::validate_reads;
