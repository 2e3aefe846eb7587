//! What the node keeps for the time without an API server, beside the views: the responses that clients need again, and what
//! kubelet reports.
//!
//! [`remembered`] decides of each read whether its response is kept: [`discovery`], or a single object ([`object_memory`]).
//! [`token_request`] keeps the tokens of pods. All of them are in the [`answer_memory`]. [`status_report`] keeps what kubelet
//! reports of its pods while the API server is out of reach.

mod answer_memory;
mod discovery;
mod fetch;
mod object_memory;
mod remembered;
mod status_report;
pub(crate) mod token_request;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;

use self::answer_memory::AnswerMemory;
pub(crate) use self::object_memory::ObjectRead;
pub(crate) use self::remembered::RememberedRead;
use crate::local_status::LocalStatus;
use crate::serve::Handlers;

/// How long a response waits for the answer whose credential its request has. Both are asked for at the same time.
pub(crate) const KNOWN: Duration = Duration::from_secs(1);

/// What is kept for the time without an API server.
pub(crate) struct Offline {
    handlers: Arc<Handlers>,
    answers: AnswerMemory,
    /// `None`: nothing stands in for the API server's objects.
    local_status: Option<Arc<LocalStatus>>,
    /// The places of [`Offline::fetch_whole`].
    fetches: Arc<Semaphore>,
}

/// The most objects that are fetched at a time for clients that have read a part of them.
const FETCHES: usize = 16;

impl Offline {
    /// Responses are in memory, and on the disk of the shared views, if they have one.
    pub(crate) fn new(handlers: Arc<Handlers>, local_status: Option<Arc<LocalStatus>>) -> Arc<Self> {
        let disk = handlers.shared_views().and_then(|views| views.disk());
        let answers = AnswerMemory::new(disk, handlers.ledger.clone());
        Arc::new(Self { handlers, answers, local_status, fetches: Arc::new(Semaphore::new(FETCHES)) })
    }

    /// Forgets the responses in memory. Those on disk are set aside with their cluster.
    pub(crate) fn forget(&self) {
        self.answers.forget_all();
    }
}
