//! Filters and chains: the filter set in force, chains by component and resource, outcomes, failure policies, trace
//! caches and dependencies.

mod breaker;
mod chain;
mod dependency_set;
mod explanation;
mod failure_share;
#[allow(clippy::module_inception, reason = "a filter is the noun of this module")]
mod filter;
mod guards;
mod in_force;
mod observation;
mod outcome;
mod rule_use;
mod serving;
mod set;
mod set_aside;
mod tally;
#[cfg(test)]
mod test_filter;
mod trace_cache;
mod version;

pub use chain::{Chain, DocumentFilter, Unwritable, Written};
pub use dependency_set::ChangeSet;
pub(crate) use dependency_set::DependencySet;
pub use explanation::{Decision, FilterExplanation};
pub(crate) use filter::FilterParts;
pub use filter::{Filter, Lookups};
pub use outcome::{Failure, Filtered, Outcome, Outcomes, Slot};
pub use serving::{Serving, ServingReceiver};
pub use set::FilterSet;
pub use set_aside::SetAsideObject;
pub use version::{ChainPeriod, ChainVersion};
