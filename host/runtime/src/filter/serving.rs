//! What is in force: one pointer, swapped whole. Requests borrow it; waiting ones are woken by the swap.

use std::sync::Arc;

use tokio::sync::watch;

use super::set::FilterSet;
use crate::MatchRule;

/// What the daemon may serve at this moment.
#[derive(Debug, Clone)]
pub enum Serving {
    /// No configuration was read yet: every read of a resource waits.
    Unknown,
    /// A configuration is known but its filters are not ready: reads that one of these rules matches wait.
    /// `None`: some filter takes its rules from its module, which could not be loaded, so every read waits.
    Pending(Option<Arc<[MatchRule]>>),
    /// This set is in force.
    Live(Arc<FilterSet>),
}

/// Where the one reloader puts what is in force.
pub type ServingSender = watch::Sender<Serving>;
/// Where requests see it; `changed()` wakes the waiting ones and the open watches.
pub type ServingReceiver = watch::Receiver<Serving>;
