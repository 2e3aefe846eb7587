//! What a cached read makes the daemon hold: its view, and the watch itself, in the share of its owner.

use std::net::IpAddr;
use std::sync::Arc;

use weir_kube::{RequestInfo, Verb};
use weir_store::StoreReader;

use super::Unserved;
use crate::serve::Handlers;
use crate::serve::caller_request::CallerRequest;
use crate::serve::respond::StatusError;
use weir_process::ledger::{Charge, OverShare, Owner, Use};
use weir_view::{ComponentView, Opener, Permit, Views};

/// What an open watch costs beside the names in its request: its task, its buffers, its stream.
const WATCH: u64 = 16 << 10;
/// How often the selector of a watch is in memory: in its request, and in what it reads.
const SELECTORS: u64 = 3;

/// The view of a read, and the charge of its watch.
type Opened = (ComponentView, Option<Charge>);

/// The view of a read, and what is charged while its response is sent.
///
/// # Errors
/// Only the API server can answer the read, or both would exceed a share. The log says so once a minute for each owner.
pub(super) fn open(
    handlers: &Handlers,
    views: &Arc<Views>,
    request: &CallerRequest,
    permit: &Permit,
    online: bool,
) -> Result<Opened, Unserved> {
    let CallerRequest { parsed, component, caller, client, .. } = request;
    let owner = handlers.access.owner(caller);
    let opened = views.view(permit, Opener { component, owner: &owner, opens: opens(permit, parsed, online) });
    match opened.and_then(|view| Ok((view, charge_watch(handlers, &owner, parsed, permit)?))) {
        Ok((view, charge)) => Ok((view.ok_or(Unserved::AskUpstream)?, charge)),
        // The API server has its own bounds for lists. A watch would only be another way to the same memory.
        Err(_) if online && permit.resource().verb != Verb::Watch => Err(Unserved::AskUpstream),
        // What is remembered of the object needs no view.
        Err(_) if permit.resource().verb == Verb::Get => Err(Unserved::AskUpstream),
        Err(over) => {
            let error = StatusError::OverShare(over);
            handlers.log_over_share(&owner, *client, component, parsed, &error);
            Err(error.into())
        }
    }
}

impl Handlers {
    /// Logs that a request is refused for its owner's share, once a minute for each owner.
    pub(crate) fn log_over_share(
        &self,
        owner: &Owner,
        client: IpAddr,
        component: &str,
        request: &RequestInfo,
        error: &dyn std::error::Error,
    ) {
        if self.ledger.should_log(owner) {
            tracing::warn!(%client, component, path = request.forward.path(), %error, "request refused");
        }
    }
}

/// Whether a read opens a view that is not open. One list with a selector is no reason to follow what it selects: a client that
/// goes on with a watch opens the view with that.
fn opens(permit: &Permit, request: &RequestInfo, online: bool) -> bool {
    let is_list = permit.resource().verb == Verb::List;
    let is_private = matches!(permit.reader(), StoreReader::Client(_));
    let selects = |key| request.query.first(key).is_some_and(|selector| !selector.is_empty());
    !(online && is_list && is_private && (selects("labelSelector") || selects("fieldSelector")))
}

/// Charges the owner of a watch for it, as long as it is open.
fn charge_watch(
    handlers: &Handlers,
    owner: &Owner,
    request: &RequestInfo,
    permit: &Permit,
) -> Result<Option<Charge>, OverShare> {
    let is_watch = request.resource().is_some_and(|resource| resource.verb == Verb::Watch);
    let names = 4 * request.forward.as_str().len() as u64;
    let selectors = SELECTORS * permit.selector().size() as u64;
    is_watch.then(|| handlers.ledger.charge(owner, Use::Views, WATCH + names + selectors)).transpose()
}
