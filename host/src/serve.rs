//! The handlers, which respond to a request with what the API server or a view has.
//!
//! All take one [`caller_request`]. [`route`] selects the handler. [`forward`] passes request and response on unchanged;
//! [`event_boundary`] ends a forwarded watch between two events. [`get`], [`list`] and [`watch`] filter the objects that a
//! [`read::ReadRequest`] reads from the API server, and [`cached`] serves informers from views. [`mod@write`] rejects writes that
//! would store the edits of a filter.
//! [`memory_budget`] bounds the responses that are buffered as a whole, and [`gzip`] compresses large ones. [`respond`] turns every
//! error into a Kubernetes `Status`. Nothing here knows WebAssembly: a chain maps documents to outcomes.

pub(crate) mod body;
pub(crate) mod cached;
pub(crate) mod caller_request;
mod event_boundary;
mod failure_log;
pub(crate) mod forward;
pub(crate) mod get;
pub(crate) mod gzip;
pub(crate) mod list;
mod list_version;
pub(crate) mod memory_budget;
mod metrics;
pub(crate) mod read;
pub(crate) mod respond;
pub(crate) mod route;
pub(crate) mod watch;
pub(crate) mod write;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use weir_access::{Access, Caller, Outage};
use weir_process::ledger::Ledger;
use weir_upstream::{DecodedBody, Tasks, Upstream};
use weir_view::Views;

use self::cached::list_memory::ListMemory;
pub(crate) use self::failure_log::{FailureLog, FailureStatus};
use self::memory_budget::{MemoryBudget, ObjectLease};
pub use self::metrics::ProxyMetrics;
pub(crate) use self::metrics::handler_of;
use self::read::ReadRequest;
use self::respond::StatusError;
use self::route::Chains;
use crate::config::{Compression, Resend};

/// What the handlers share.
pub(crate) struct Handlers {
    pub(crate) upstream: Arc<Upstream>,
    pub(crate) access: Arc<Access>,
    /// The filters in force.
    pub(crate) chains: Chains,
    /// All views, also those for one client alone.
    pub(crate) views: Arc<Views>,
    /// The time without an API server.
    pub(crate) outage: Arc<Outage>,
    pub(crate) ledger: Ledger,
    pub(crate) failures: FailureLog,
    pub(crate) metrics: Arc<ProxyMetrics>,
    pub(crate) tasks: Tasks,
    /// For responses that must be buffered.
    pub(crate) memory_budget: Arc<MemoryBudget>,
    /// Encoded lists of views.
    pub(crate) lists: Arc<ListMemory>,
    /// The clients whose large filtered responses are compressed.
    pub(crate) compression: Compression,
    /// How watches send what filters show in another state.
    pub(crate) resend: Resend,
    /// How long a request waits for the first filter set, and for the first objects of a view.
    pub(crate) start_wait: Duration,
}

impl Handlers {
    /// Reads a whole object for a client, with the memory that it takes.
    ///
    /// # Errors
    /// As [`MemoryBudget::collect`].
    pub(crate) async fn whole_object(
        &self,
        caller: &Caller,
        body: DecodedBody,
    ) -> Result<(Bytes, ObjectLease), StatusError> {
        self.memory_budget.collect(&self.access.owner(caller), body, get::LIMIT).await
    }

    /// The views that clients share. `None`: there are none.
    pub(crate) fn shared_views(&self) -> Option<&Arc<Views>> {
        self.views.are_shared().then_some(&self.views)
    }

    /// Notes the version to which a stream from the API server has brought its client: a change of outcomes concerns it, too, and
    /// the end of what failure policies decide is one.
    fn end_stream(&self, read: &ReadRequest, version: u64) {
        let (filtering, resource) = (&read.filtering, &read.resource.resource);
        // A Table is a screen.
        let is_degraded = filtering.is_degraded() && !read.is_table();
        if is_degraded {
            self.views.chain_stamps().degrade(filtering.version(), resource, version);
        }
        let shown_by = (!is_degraded).then(|| filtering.of_views());
        self.views.end_stream(&read.asked.component, resource, version, shown_by);
    }
}
