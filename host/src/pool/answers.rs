//! Answers to other Weirs of the pool, below [`PEER_PATH`]: lists and watches of shared resources, unfiltered; reports of pods;
//! modules by digest.
//!
//! A peer is recognized by the client certificate of its node. It gets only what each node's Weir may read by itself, and
//! only while this node follows the API server: what a third node sent, or what is on disk, is not passed on.

use std::io::Read as _;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use http::{Method, Request, Response, Uri};
use http_body::Frame;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::Incoming;
use weir_kube::{Encoding, Identity, RequestInfo, ResourceRequest, Verb};
use weir_process::files;
use weir_store::Peers;

use super::{PeerError, Pool};
use crate::config::PEER_PATH;
use crate::local_status::PEER_REPORTS;
use crate::modules::{Arrival, PEER_MODULES, WAIT};
use crate::serve::Handlers;
use crate::serve::body::{AbortError, Meter, ResponseBody, full};
use crate::serve::cached::{CachedRead, Unserved, fresh, list, ready, watch};
use crate::serve::caller_request::CallerRequest;
use crate::serve::read::negotiate;
use crate::serve::respond::{ApiStatus as _, StatusError};
use weir_access::Caller;
use weir_front::Peer;
use weir_view::{RequestSelector, View};

/// How much of a file is read at once.
const CHUNK: usize = 64 << 10;

impl Pool {
    /// Responds to another Weir of the pool; `None` if the path is not one for peers.
    pub(crate) async fn respond_to_peer(
        &self,
        request: &Request<Incoming>,
        peer: &Peer,
        started: Instant,
    ) -> Option<Response<ResponseBody>> {
        let path = request.uri().path().strip_prefix(PEER_PATH).filter(|rest| rest.starts_with('/'))?;
        if self.peer_nodes.is_empty() {
            return None;
        }
        let meter = Meter::new(self.handlers.metrics.clone(), "peer", started);
        let response = self.answer_peer(request, peer, path, started).await;
        let response = response.unwrap_or_else(|error| {
            tracing::debug!(peer = %peer.address, uri = %request.uri(), %error, "peer refused");
            error.response(Encoding::for_errors(request.headers()))
        });
        Some(meter.attach(response))
    }

    async fn answer_peer(
        &self,
        request: &Request<Incoming>,
        peer: &Peer,
        path: &str,
        started: Instant,
    ) -> Result<Response<ResponseBody>, PeerError> {
        self.node_of(peer)?;
        if path == "/readyz" {
            return match self.handlers.upstream.responds().await {
                true => Ok(Response::new(full("ok".into()))),
                false => Err(PeerError::Unavailable("it cannot reach the API server")),
            };
        }
        if path == PEER_REPORTS && *request.method() == Method::GET {
            return self.answer_reports(request.uri().query().unwrap_or_default());
        }
        if let Some(artifact) = path.strip_prefix(PEER_MODULES).filter(|_| *request.method() == Method::GET) {
            return self.answer_module(artifact, request.uri().query() == Some(WAIT)).await;
        }
        let uri = match request.uri().query() {
            Some(query) => format!("{path}?{query}").parse::<Uri>(),
            None => path.parse::<Uri>(),
        };
        let parsed =
            RequestInfo::parse(request.method(), &uri.map_err(|_| PeerError::NotShared)?).map_err(StatusError::from)?;
        let resource = parsed.resource().filter(|resource| is_shared_read(request.method(), resource));
        let resource = resource.ok_or(PeerError::NotShared)?.clone();
        let caller = Caller::of(Identity::Daemon, request.headers());
        let read = Arc::new(CallerRequest::new(request, parsed, String::new(), caller, (peer, started)));
        self.answer_shared_read(read, &resource).await
    }

    /// Answers with what this node shows of its pods, until the peer leaves or the daemon stops.
    fn answer_reports(&self, query: &str) -> Result<Response<ResponseBody>, PeerError> {
        let status = self.local_status.as_ref().ok_or(PeerError::NotShared)?;
        let known = query.strip_prefix("version=").and_then(|version| version.parse().ok());
        let tasks = self.handlers.tasks.clone();
        let messages = status.messages(known).take_until(async move { tasks.stopping().await });
        let frames = messages.map(|line| Ok::<_, AbortError>(Frame::data(line)));
        Ok(Response::new(StreamBody::new(Box::pin(frames)).boxed_unsync()))
    }

    /// Answers with the file of a module and its signatures, which the peer verifies.
    async fn answer_module(&self, artifact: &str, waits: bool) -> Result<Response<ResponseBody>, PeerError> {
        let artifact = artifact.parse().map_err(|_| PeerError::NotShared)?;
        let modules = self.modules.as_ref().ok_or(PeerError::NoModule)?;
        let file = match modules.arrival(artifact, waits).await {
            Arrival::Here(file) => file,
            Arrival::Pulling => return Err(PeerError::Unavailable("it is pulling the module")),
            Arrival::Absent => return Err(PeerError::NoModule),
        };
        let folder = files::folder_of(&file).to_owned();
        let open = move || std::fs::File::open(file);
        let file = files::at(&folder, files::DEADLINE, open).await.map_err(|_| PeerError::NoModule)?;
        let chunks = stream::try_unfold((file, folder), |(file, folder)| async move {
            let read = move || {
                let mut chunk = Vec::with_capacity(CHUNK);
                (&file).take(CHUNK as u64).read_to_end(&mut chunk)?;
                Ok((chunk, file))
            };
            let read = files::at(&folder, files::DEADLINE, read).await;
            let (chunk, file) = read.map_err(|error| AbortError::InvalidResponse(error.to_string()))?;
            Ok((!chunk.is_empty()).then(|| (Frame::data(Bytes::from(chunk)), (file, folder))))
        });
        Ok(Response::new(StreamBody::new(chunks).boxed_unsync()))
    }

    /// Answers from the unfiltered view of a shared resource.
    async fn answer_shared_read(
        &self,
        request: Arc<CallerRequest>,
        resource: &ResourceRequest,
    ) -> Result<Response<ResponseBody>, PeerError> {
        let CallerRequest { headers, parsed, .. } = &*request;
        let selector = RequestSelector::of(resource).ok_or(PeerError::NotShared)?;
        let media_type = negotiate(headers, resource, &parsed.query).media_type;
        let read = CachedRead::of(media_type, parsed, selector, false).ok_or(PeerError::NotShared)?;
        let mut view =
            self.handlers.shared_views().and_then(|views| views.unfiltered(resource)).ok_or(PeerError::NotShared)?;
        ready(&self.handlers, &mut view, true)
            .await
            .ok_or(PeerError::Unavailable("it has not listed the resource yet"))?;
        if !view.follows_api_server() || view.is_refused() || !self.handlers.upstream.is_reachable() {
            return Err(PeerError::Unavailable("it does not follow the API server itself"));
        }
        match resource.verb {
            Verb::Watch => {
                let followed = view.view().clone();
                let watch = watch::watch_within_history(&self.handlers, &request, read, view);
                let response = watch.ok_or(StatusError::Expired("the peer's history begins later"))?;
                Ok(response.map(|body| while_reachable(self.handlers.clone(), followed, body)))
            }
            _ => {
                fresh::is_not_older(read.start, &mut view).await.map_err(|reason| match reason {
                    Unserved::Refused(error) => error.into(),
                    Unserved::AskUpstream => PeerError::Unavailable("its view of the resource was closed"),
                })?;
                let present = view.snapshot();
                Ok(list::list(&self.handlers, &read, view.view(), &present)?)
            }
        }
    }
}

/// Whether a request is a list or a watch of a resource that peers share.
fn is_shared_read(method: &Method, resource: &ResourceRequest) -> bool {
    *method == Method::GET
        && matches!(resource.verb, Verb::List | Verb::Watch)
        && resource.name.is_none()
        && resource.subresource.is_none()
        && Peers::share(&resource.resource)
}

/// Ends a watch when the API server cannot be reached, so that the peer goes on elsewhere.
fn while_reachable(handlers: Arc<Handlers>, view: Arc<View>, body: ResponseBody) -> ResponseBody {
    let frames = stream::unfold((handlers, view, body), |(handlers, view, mut body)| async move {
        if !view.follows_api_server() || view.is_refused() {
            return None;
        }
        let frame: Result<Frame<_>, AbortError> = tokio::select! {
            frame = body.frame() => frame?,
            () = handlers.upstream.unreachable() => return None,
        };
        Some((frame, (handlers, view, body)))
    });
    StreamBody::new(frames).boxed_unsync()
}
