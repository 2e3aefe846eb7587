//! Filtered watches that no shared view serves: of resources that are not cached, of aggregated APIs, too wide ones, and with
//! selectors that only the API server evaluates.
//!
//! A view serves them, too, with all that it promises. Its store is private: read with exactly the client's credential and in its
//! words, so that the API server itself decides what is in it. It is in memory only, in the share of the client's user, and lasts as
//! long as a watch of it is open and a minute longer, for the same credential and request. What cannot be served so gets what the API
//! server says of it, or an error, never a watch without filters.

use std::sync::Arc;
use std::time::Duration;

use http::{Response, StatusCode, header};
use tokio::time::timeout;
use weir_kube::{ListOptions, OptionsErrorKind, RequestInfo, RequestKind};
use weir_store::ReflectorError;
use weir_upstream::ResponseBodyError;

use super::start::is_consistent;
use super::{CachedRead, Unserved, fresh, in_step, share, watch};
use crate::serve::Handlers;
use crate::serve::body::{AbortError, ResponseBody, guarded};
use crate::serve::caller_request::CallerRequest;
use crate::serve::read::{ReadRequest, ReadResponse};
use crate::serve::respond::{ApiStatus as _, StatusError};
use weir_view::{ComponentView, RequestSelector};
use weir_wire::headers::FromUpstream;

/// How long the first list of a store may take.
const FIRST_LIST: Duration = Duration::from_secs(300);

/// Responds to a filtered watch.
///
/// # Errors
/// The watch cannot be served, and the API server does not say why.
pub(crate) async fn watch(handlers: &Arc<Handlers>, read: &ReadRequest) -> Result<Response<ResponseBody>, StatusError> {
    let reason = match respond(handlers, read).await {
        Ok(response) => return Ok(response),
        Err(why) => why.reason()?,
    };
    if let Some(ReadResponse::Other(mut refusal)) = read.first(handlers).await.transpose()? {
        // It says nothing of the permission to watch, but for a token that is refused altogether.
        if refusal.status() != StatusCode::UNAUTHORIZED {
            refusal.extensions_mut().remove::<FromUpstream>();
        }
        return Ok(refusal);
    }
    match read.send(handlers, read.upstream_path()).await? {
        ReadResponse::Other(refusal) => Ok(refusal),
        ReadResponse::Objects(_) => Err(StatusError::InvalidResponse(reason)),
    }
}

/// Responds to a watch that filters matched before and no longer do. `None`: it is forwarded.
pub(crate) async fn continued(handlers: &Arc<Handlers>, read: &ReadRequest) -> Option<Response<ResponseBody>> {
    let encoding = read.media_type.encoding;
    let is_local = || handlers.views.is_known_local(&read.resource.resource.group, &read.resource.version);
    let reason = match respond(handlers, read).await {
        Ok(response) => return Some(response),
        Err(why) if why.is_for_api_server(is_local) => return None,
        Err(why) => match why.reason() {
            Ok(reason) => reason,
            Err(error) => return Some(error.response(encoding)),
        },
    };
    // Such a fault passes. Forwarded, the watch would lack what the former filters have made, and nothing would bring it.
    Some(match read.send(handlers, read.upstream_path()).await {
        Ok(ReadResponse::Other(refusal)) => refusal,
        Ok(ReadResponse::Objects(_)) => StatusError::InvalidResponse(reason).response(encoding),
        Err(error) => error.response(encoding),
    })
}

/// Why no private view serves a watch.
enum NoPrivate {
    /// As with a shared view.
    Unserved(Unserved),
    /// Its store cannot be filled.
    Store(ReflectorError),
    /// The API server does not say how new it is, or refuses to.
    Unsaid,
    /// It does not send the events from before the history of the view.
    Older,
}

impl NoPrivate {
    /// Whether only the API server can serve the watch. `is_local`: whether it serves the resource itself; other APIs may have versions
    /// that are no numbers.
    fn is_for_api_server(&self, is_local: impl FnOnce() -> bool) -> bool {
        match self {
            Self::Unserved(Unserved::AskUpstream) => true,
            Self::Unserved(Unserved::Refused(_)) | Self::Store(ReflectorError::NoRoom { .. }) | Self::Older => false,
            Self::Store(error) => error.needs_operator_action(),
            Self::Unsaid => !is_local(),
        }
    }

    /// Why the watch is not served.
    ///
    /// # Errors
    /// The client gets this error.
    fn reason(self) -> Result<String, StatusError> {
        Ok(match self {
            Self::Unserved(Unserved::Refused(error)) => return Err(error),
            Self::Store(error @ ReflectorError::NoRoom { .. }) => return Err(StatusError::NoRoom(error.to_string())),
            Self::Unserved(Unserved::AskUpstream) => "Weir cannot filter a watch in this form".to_owned(),
            Self::Store(error) => error.to_string(),
            Self::Unsaid => "it does not report its newest version".to_owned(),
            Self::Older => "it does not send the events from before the history of the view".to_owned(),
        })
    }
}

impl From<Unserved> for NoPrivate {
    fn from(reason: Unserved) -> Self {
        Self::Unserved(reason)
    }
}

impl From<StatusError> for NoPrivate {
    fn from(error: StatusError) -> Self {
        Self::Unserved(error.into())
    }
}

/// Responds from a private view.
async fn respond(handlers: &Arc<Handlers>, read: &ReadRequest) -> Result<Response<ResponseBody>, NoPrivate> {
    if !handlers.upstream.is_reachable() || !read.is_served() {
        return Err(Unserved::AskUpstream.into());
    }
    let (request, media_type) = (&read.asked, read.media_type);
    let CallerRequest { headers, parsed, component, caller, .. } = &**request;
    let views = &handlers.views;
    let parsed = with_known_options(parsed).ok_or(Unserved::AskUpstream)?;
    let read = CachedRead::of(media_type, &parsed, RequestSelector::default(), true);
    let mut read = read.ok_or(Unserved::AskUpstream)?;
    let own = handlers.access.own(caller, headers, &parsed, media_type.encoding).await;
    let (permit, credential) = own.ok_or(Unserved::AskUpstream)?;
    if !views.can_read_as(permit.reader()) {
        return Err(Unserved::AskUpstream.into());
    }
    read.delegation = views.delegate(permit.reader(), credential);
    let (mut view, charge) = match share::open(handlers, views, request, &permit, true) {
        Err(Unserved::AskUpstream) => return Err(StatusError::NoRoom("too many of them are open".to_owned()).into()),
        opened => opened?,
    };
    // A list that began after the request is as new as it asks for, and the API server has allowed it since.
    let is_new = view.store_opened() >= request.started;
    filled(handlers, &mut view, read.delegation.is_some()).await?;
    if !is_new {
        let newest = timeout(handlers.start_wait, view.newest_version()).await;
        let slow = |_| StatusError::Interrupted(AbortError::Upstream(ResponseBodyError::Stalled(handlers.start_wait)));
        let version = newest.map_err(slow)?.ok_or(NoPrivate::Unsaid)?;
        // Only a BOOKMARK shows it then.
        let within = if view.can_reach() { fresh::FRESH } else { handlers.start_wait };
        if is_consistent(&read.resource, &read.options) {
            let reached = timeout(within, view.reaches(version)).await;
            let current = view.snapshot().version;
            reached.map_err(|_| StatusError::TooLargeVersion { version, current })?.ok_or_else(closed)?;
        }
    }
    fresh::is_of_this_cluster(read.start, &mut view).await?;
    let is_in_step = in_step(handlers, (component, &read.resource), &mut view).await.is_some();
    let warnings = view.warnings();
    let response = watch::watch(handlers, request, CachedRead { is_in_step, ..read }, view, true).await;
    let mut response = response.map_err(|reason| match reason {
        Unserved::AskUpstream => NoPrivate::Older,
        refused => refused.into(),
    })?;
    for warning in warnings.iter() {
        response.headers_mut().append(header::WARNING, warning.clone());
    }
    Ok(match charge {
        Some(charge) => guarded(response, charge),
        None => response,
    })
}

/// The request without the parameters that only the API server knows: they are in the store's requests.
fn with_known_options(parsed: &RequestInfo) -> Option<RequestInfo> {
    let resource = parsed.resource().filter(|resource| resource.subresource.is_none())?;
    match &resource.options {
        Ok(_) => Some(parsed.clone()),
        Err(error) if error.kind == OptionsErrorKind::Unknown => {
            let mut known = resource.clone();
            known.options = Ok(Arc::new(ListOptions::decode(&parsed.query).ok()?));
            Some(RequestInfo { kind: RequestKind::Resource(Box::new(known)), ..parsed.clone() })
        }
        Err(_) => None,
    }
}

/// Waits until a view has its objects, and its client may read them. A store that is read with a delegated credential follows the API
/// server again before anything of it is shown.
async fn filled(handlers: &Handlers, view: &mut ComponentView, is_delegated: bool) -> Result<(), NoPrivate> {
    let store = view.view().clone();
    let (mut followed, mut refused) = (store.reflector_state(), store.reflector_state());
    let ready = async {
        view.filled().await?;
        followed.wait_for(|_| !is_delegated || store.follows_api_server()).await.ok().map(drop)
    };
    // What passes by itself, such as 503, is waited for a while.
    let failing = async {
        loop {
            tokio::time::sleep(handlers.start_wait).await;
            if let Some(error) = &store.reflector_state().borrow().error {
                return error.clone();
            }
            // Where the API server does not say enough to compare, a list is certain.
            if store.awaits_history() {
                store.list_again();
            }
        }
    };
    tokio::select! {
        biased;
        state = refused.wait_for(|state| state.error.as_ref().is_some_and(ReflectorError::needs_operator_action)) => {
            let error = state.ok().and_then(|state| state.error.clone());
            Err(error.map_or(Unserved::AskUpstream.into(), NoPrivate::Store))
        }
        // Without its view, its list would go on in nobody's share.
        ready = ready => ready.ok_or_else(|| closed().into()),
        () = store.closed().cancelled() => Err(closed().into()),
        error = failing => Err(NoPrivate::Store(error)),
        () = tokio::time::sleep(FIRST_LIST) => {
            Err(StatusError::Interrupted(AbortError::Upstream(ResponseBodyError::Stalled(FIRST_LIST))).into())
        }
        () = handlers.tasks.stopping() => Err(StatusError::Stopping.into()),
    }
}

fn closed() -> StatusError {
    StatusError::NoRoom("it was closed to make room for others".to_owned())
}
