//! Lists and watches that are answered from a view, without a request to the API server.
//!
//! Informers are served from views: lists at `resourceVersion` 0 or N, watches, and watch-lists. All other reads go
//! upstream while the API server can be reached: gets, lists without a version, pages, and Tables. Offline, views answer
//! gets and lists, too, with a `Warning` header. Other Weirs of the pool read from unfiltered views (`pool/answers.rs`).

pub(crate) mod fresh;
mod get;
pub(crate) mod list;
pub(crate) mod list_memory;
mod list_writer;
mod older;
pub(crate) mod private;
mod share;
mod start;
mod table;
pub(crate) mod watch;

use std::sync::Arc;

use http::{HeaderValue, Response, StatusCode, header};
use weir_kube::{
    Accepted, Encoding, IncludeObject, ListOptions, MediaType, OptionsErrorKind, RequestInfo, ResourceRequest,
    Transform, Verb, VerbClass,
};
use weir_upstream::Delegation;

pub(crate) use self::start::Start;
use self::start::is_consistent;
use super::gzip::compressed;
use super::read::negotiate;
use crate::serve::Handlers;
use crate::serve::body::{Meter, ResponseBody, guarded};
use crate::serve::caller_request::CallerRequest;
use crate::serve::metrics::handler_of;
use crate::serve::respond::{ApiStatus as _, StatusError};
use weir_view::{ComponentView, Permit, RequestSelector, View, ViewSnapshot};
use weir_wire::headers;

/// The warning on every answer that may be stale.
pub(crate) const OFFLINE: HeaderValue =
    HeaderValue::from_static("299 - \"weir: the API server cannot be reached, this is the node's cached state\"");

/// A list or watch that a view may answer.
pub(crate) struct CachedRead {
    pub(crate) resource: ResourceRequest,
    options: Arc<ListOptions>,
    media_type: MediaType,
    selector: RequestSelector,
    pub(crate) start: Start,
    /// Whether the view shows what the chain makes that was in force when the request arrived.
    is_in_step: bool,
    /// The delegation of the client's own credential to the view's reflector, while the response is open.
    delegation: Option<Delegation>,
}

impl CachedRead {
    /// Returns the read; `None` if only the API server can answer it.
    pub(crate) fn of(
        mut media_type: MediaType,
        request: &RequestInfo,
        selector: RequestSelector,
        online: bool,
    ) -> Option<Self> {
        let resource = request.resource()?;
        if matches!(media_type.transform, Transform::Table(..)) {
            if online {
                return None;
            }
            if resource.verb == Verb::Watch || media_type.encoding != Encoding::Json {
                media_type.transform = Transform::None;
            }
        }
        // Only the API server answers requests that Weir does not read exactly as it does.
        let options = resource.options.as_ref().ok()?;
        let start = Start::of(resource, options, online)?;
        Some(Self {
            selector,
            delegation: None,
            resource: resource.clone(),
            options: options.clone(),
            media_type,
            start,
            is_in_step: true,
        })
    }
}

/// Why a view does not serve a read.
pub(crate) enum Unserved {
    /// Only the API server can answer it, or its own answer is the best.
    AskUpstream,
    /// Its client gets this error.
    Refused(StatusError),
}

impl From<StatusError> for Unserved {
    fn from(error: StatusError) -> Self {
        Self::Refused(error)
    }
}

/// Responds to a read from a view; `None` if only the API server can answer it.
pub(crate) async fn respond(
    handlers: &Arc<Handlers>,
    request: &Arc<CallerRequest>,
    online: bool,
) -> Option<Response<ResponseBody>> {
    let CallerRequest { headers, parsed, component, caller, .. } = &**request;
    let views = handlers.shared_views()?;
    // The API server answers subresources, some of them in other media types.
    let resource = parsed.resource().filter(|resource| resource.subresource.is_none())?;
    let options = match &resource.options {
        Ok(options) => options,
        // A parameter that Weir does not know, the API server may.
        Err(error) if !online && error.kind != OptionsErrorKind::Unknown => {
            return Some(StatusError::Options(error.clone()).response(Encoding::for_errors(headers)));
        }
        Err(_) => return None,
    };
    Start::of(resource, options, online)?;
    let Accepted { media_type, is_served, .. } = negotiate(headers, resource, &parsed.query);
    match (is_served, online) {
        (true, _) => {}
        // Its error is the API server's.
        (false, true) => return None,
        (false, false) => return Some(StatusError::NotAcceptable.response(Encoding::for_errors(headers))),
    }
    if !online
        && matches!(media_type.transform, Transform::Table(..))
        && let Err(error) = IncludeObject::validate(&parsed.query)
    {
        return Some(StatusError::Options(error).response(media_type.encoding));
    }
    // Checked first: a client without permission opens no view. It also identifies the owner of the credential for the keys of
    // the read.
    let permit = handlers.access.permit(caller, component, parsed).await?;
    let own = respond_from(handlers, request, &permit, media_type, online).await;
    if online || own.is_some() || views.is_refused(&permit) {
        return own;
    }
    for wider in permit.of_wider() {
        if let Some(response) = respond_from(handlers, request, &wider, media_type, online).await {
            return Some(response);
        }
    }
    None
}

/// Responds from the view that a permit opens.
async fn respond_from(
    handlers: &Arc<Handlers>,
    request: &Arc<CallerRequest>,
    permit: &Permit,
    media_type: MediaType,
    online: bool,
) -> Option<Response<ResponseBody>> {
    let CallerRequest { headers, parsed, caller, client, started, .. } = &**request;
    let (views, verb) = (handlers.shared_views()?, permit.resource().verb);
    let mut read = CachedRead::of(media_type, parsed, permit.selector().clone(), online)?;
    read.delegation = caller.authorization().and_then(|own| views.delegate(permit.reader(), own));
    let encoding = read.media_type.encoding;
    // Which view it is, the filters say.
    handlers.chains.first_set(handlers.start_wait).await?;
    let (view, charge) = match share::open(handlers, views, request, permit, online) {
        Ok(opened) => opened,
        Err(Unserved::AskUpstream) => return None,
        Err(Unserved::Refused(error)) => {
            return Some(Meter::new(handlers.metrics.clone(), "refused", *started).attach(error.response(encoding)));
        }
    };
    let response = match read_view(handlers, request, read, view, online).await {
        Ok(response) => response,
        Err(Unserved::AskUpstream) => return None,
        Err(Unserved::Refused(error)) => error.response(encoding),
    };
    let compress = verb == Verb::List && headers::accepts_gzip(headers) && handlers.compression.is_for(*client);
    let response = if compress { compressed(response) } else { response };
    let response = match charge {
        Some(charge) => guarded(response, charge),
        None => response,
    };
    Some(Meter::new(handlers.metrics.clone(), handler_of(verb), *started).attach(response))
}

/// Reads a view.
///
/// # Errors
/// The view cannot answer, and the API server must, or the client gets an error.
async fn read_view(
    handlers: &Arc<Handlers>,
    request: &Arc<CallerRequest>,
    read: CachedRead,
    mut view: ComponentView,
    online: bool,
) -> Result<Response<ResponseBody>, Unserved> {
    // Right after a start, the objects are on their way from disk.
    let _ = tokio::time::timeout(handlers.start_wait, view.restored()).await;
    // The API server refuses objects that its reader may not read any more, now and offline.
    if view.is_refused() {
        return Err(Unserved::AskUpstream);
    }
    let is_synced = view.reflector_state().borrow().synced;
    // Offline, a store without objects does not get any.
    if !online && !is_synced {
        return Err(Unserved::AskUpstream);
    }
    ready(handlers, &mut view, online).await.ok_or(Unserved::AskUpstream)?;
    // Until the API server has answered anything since the start, the objects on disk are the latest known ones.
    if online && read.delegation.is_some() && handlers.upstream.has_answered() {
        confirmed(handlers, &view).await.ok_or(Unserved::AskUpstream)?;
    }
    if online && is_consistent(&read.resource, &read.options) {
        fresh::is_as_new_as_now(&mut view).await.ok_or(Unserved::AskUpstream)?;
    }
    if online {
        fresh::is_of_this_cluster(read.start, &mut view).await?;
    }
    // First, so that what a list gets at its version is in step. A watch begins before it, and gets the events.
    if read.resource.verb == Verb::List {
        fresh::is_not_older(read.start, &mut view).await?;
    }
    let shown = in_step(handlers, (&request.component, &read.resource), &mut view).await;
    let read = CachedRead { is_in_step: shown.is_some(), ..read };
    let warnings = view.warnings();
    let response = match read.resource.verb {
        Verb::Watch => {
            // It may wait for the API server, and reads the view by itself.
            drop(shown);
            watch::watch(handlers, request, read, view, online).await
        }
        verb => {
            let present = shown.unwrap_or_else(|| view.snapshot());
            match verb {
                Verb::List => list::list(handlers, &read, view.view(), &present).map_err(Unserved::from),
                _ => get::get(&read, &present, &view),
            }
        }
    };
    if !online && !matches!(response, Err(Unserved::AskUpstream)) {
        handlers.metrics.offline_response();
    }
    response.map(|mut response| {
        for warning in warnings.iter().chain((!online).then_some(&OFFLINE)) {
            response.headers_mut().append(header::WARNING, warning.clone());
        }
        response
    })
}

/// Waits until a view has its first objects. `None`: it does not get any, for a reason that the API server's own response
/// explains best, such as RBAC that does not let the daemon read the resource.
pub(crate) async fn ready(handlers: &Handlers, view: &mut ComponentView, online: bool) -> Option<()> {
    let mut reflector = view.reflector_state();
    // Objects that the reader may not read any more do not change in the view.
    let refused = reflector.borrow().error.as_ref().is_some_and(|error| error.needs_operator_action());
    if view.has_objects() {
        return (!online || !refused).then_some(());
    }
    let refused = reflector.wait_for(|state| {
        let is_final = |error: &weir_store::ReflectorError| online || error.needs_operator_action();
        state.error.as_ref().is_some_and(is_final)
    });
    tokio::select! {
        ready = view.filled() => ready,
        _ = refused => None,
        () = tokio::time::sleep(handlers.start_wait) => None,
    }
}

/// Waits until a view shows what the chain makes that was in force when the request arrived, or that is now, and returns these
/// objects: the view may still take a chain of between. One that takes longer shows it in events, or in the next list.
async fn in_step(
    handlers: &Handlers,
    (component, resource): (&str, &ResourceRequest),
    view: &mut ComponentView,
) -> Option<Arc<ViewSnapshot>> {
    let in_force = || {
        let chain = handlers.chains.active()?.chain(component, &resource.resource, VerbClass::Read);
        Some(chain.map(|chain| chain.version()))
    };
    let at_first = in_force()?;
    let shown = view.wait_for(|view| view.snapshot_in_step(at_first).or_else(|| view.snapshot_in_step(in_force()?)));
    tokio::time::timeout(fresh::FRESH, shown).await.ok().flatten()
}

/// Waits until the API server has confirmed the objects of a view whose reflector was paused. `None`: it does not, or not soon,
/// and the read goes to the API server itself.
async fn confirmed(handlers: &Handlers, view: &View) -> Option<()> {
    let mut reflector = view.reflector_state();
    let confirmed =
        reflector.wait_for(|state| view.follows_api_server() || state.error.is_some() || view.awaits_history());
    let confirmed = tokio::time::timeout(handlers.start_wait, confirmed).await;
    (confirmed.is_ok() && view.follows_api_server()).then_some(())
}

/// The head of an answer from a view.
fn head(encoding: Encoding, verb: Verb) -> http::response::Builder {
    Response::builder()
        .status(StatusCode::OK)
        .header(header::CONTENT_TYPE, encoding.content_type(verb))
        .header(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, private"))
}
