//! Reads whose responses are remembered for the time without an API server.

use std::sync::Arc;

use http::{Response, StatusCode};
use tokio::time::timeout;
use weir_runtime::Chain;

use crate::offline::KNOWN;
use crate::offline::Offline;
use crate::offline::discovery::{DiscoveryClient, DiscoveryRead};
use crate::offline::object_memory::{ObjectRead, decoded};
use crate::serve::body::ResponseBody;
use crate::serve::caller_request::CallerRequest;
use crate::serve::respond::ApiStatus as _;
use weir_access::Caller;
use weir_wire::headers::FromUpstream;

/// A read whose response is remembered for the time without an API server.
pub(crate) enum RememberedRead {
    /// Discovery, the version or OpenAPI: the same for all authenticated clients.
    Discovery(DiscoveryRead),
    /// One object that may be remembered: for the same client.
    Object(Box<ObjectRead>),
}

impl Offline {
    /// Returns a read whose response is remembered for the time without an API server.
    pub(crate) async fn remembered_read(&self, asked: &CallerRequest) -> Option<RememberedRead> {
        let views = self.handlers.shared_views()?;
        let CallerRequest { method, headers, parsed, component, caller, .. } = asked;
        if let Some(discovery) = DiscoveryRead::of(method, headers, caller, parsed) {
            return Some(RememberedRead::Discovery(discovery));
        }
        let resource =
            parsed.resource().filter(|resource| views.may_remember(caller.identity(), headers, component, resource))?;
        // Whose share it counts in. The request does not wait for long.
        let _ = timeout(KNOWN, self.handlers.access.authenticate(caller)).await;
        let mut read = self.object_read(asked)?;
        let reader = views.reader(caller.identity(), headers, component, resource, || caller.reader());
        read.is_held = reader.is_some_and(|reader| views.hold(&reader, resource));
        Some(RememberedRead::Object(Box::new(read)))
    }

    /// Responds with what is remembered of a read; `None` if that is nothing.
    pub(crate) async fn replay(
        &self,
        read: &RememberedRead,
        caller: &Caller,
        chain: Option<&Chain>,
    ) -> Option<Response<ResponseBody>> {
        let response = match read {
            RememberedRead::Discovery(read) if self.may_discover(read.client(), caller).await => {
                read.replay(&self.answers).await?
            }
            RememberedRead::Discovery(_) => return None,
            RememberedRead::Object(_) if !self.handlers.access.is_accepted(caller).await => return None,
            RememberedRead::Object(read) => {
                let answer = self.answers.get(&read.key()).await?;
                read.replay(&answer, chain).await.unwrap_or_else(|error| error.response(read.encoding()))
            }
        };
        self.handlers.metrics.offline_response();
        Some(response)
    }

    /// Remembers a response, or forgets the earlier ones. `is_own`: the API server itself has answered. `is_unfiltered`: no
    /// filter matches the read.
    pub(crate) fn record(
        self: &Arc<Self>,
        read: RememberedRead,
        caller: &Caller,
        response: Response<ResponseBody>,
        (is_own, is_unfiltered): (bool, bool),
    ) -> Response<ResponseBody> {
        match read {
            RememberedRead::Discovery(read) => match read.key_of(&response) {
                Some(key) if response.status() == StatusCode::OK => self.answers.record(key, response, Some),
                _ => response,
            },
            RememberedRead::Object(read) => {
                if is_from_upstream(&response) && is_gone(response.status()) {
                    read.keys().iter().for_each(|key| self.answers.forget(key));
                } else if read.is_held {
                    return response;
                } else if is_unfiltered && read.is_kept_as_forwarded(&response) {
                    return self.answers.record(read.key(), response, decoded);
                } else if is_own && read.is_partial() && response.status() == StatusCode::OK {
                    self.fetch_whole(caller, *read);
                }
                response
            }
        }
    }

    /// Whether a client may have remembered discovery: it is authenticated, or gets what clients without a credential got.
    async fn may_discover(&self, client: &DiscoveryClient, caller: &Caller) -> bool {
        match client {
            DiscoveryClient::Verified | DiscoveryClient::Anonymous => true,
            DiscoveryClient::Credential => self.handlers.access.is_accepted(caller).await,
        }
    }
}

/// Whether somebody upstream has answered: what a filter hides is still there.
fn is_from_upstream(response: &Response<ResponseBody>) -> bool {
    response.extensions().get::<FromUpstream>().is_some()
}

/// Whether an answer ends what was remembered of an object for this client: it may not read it any more, or it does not exist.
fn is_gone(status: StatusCode) -> bool {
    matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN | StatusCode::NOT_FOUND)
}
