//! The filter set in force, behind one pointer. A reload swaps the pointer and wakes waiting requests.

use std::sync::Arc;

use tokio::sync::watch;

use super::set::FilterSet;
use weir_spec::MatchRule;

/// The state of the configuration, which decides which requests can be served.
#[derive(Debug, Clone)]
pub enum Serving {
    /// No configuration has been read yet. Every read of a resource waits.
    Unknown,
    /// The configuration has been read, but its filters are not ready. Reads that match one of these rules wait.
    /// `None`: a filter takes its rules from its module, which is not loaded yet, so every read waits.
    Pending(Option<Arc<[MatchRule]>>),
    /// This filter set is in force.
    Live(Arc<FilterSet>),
}

impl Serving {
    /// The filter set in force; `None` before the first.
    #[must_use]
    pub fn live(&self) -> Option<&Arc<FilterSet>> {
        match self {
            Self::Live(set) => Some(set),
            Self::Unknown | Self::Pending(_) => None,
        }
    }
}

/// The receiver of the state. `changed()` wakes waiting requests and open watches.
pub type ServingReceiver = watch::Receiver<Serving>;
