//! What the API server's answer to a client's own request says of its credential and its permissions.

use std::sync::Arc;

use http::{Method, StatusCode, Uri};
use k8s_openapi::api::authorization::v1::ResourceAttributes;
use tokio::sync::mpsc;
use weir_kube::{Identity, RequestInfo, ResourceRequest, Verb};
use weir_upstream::Refusal;

use super::attributes::attributes;
use crate::Access;
use crate::caller::Caller;

/// The answer to a client's own request.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// Whose request it was.
    pub caller: Caller,
    /// The client component that its User-Agent names.
    pub component: String,
    /// The method of the request.
    pub method: Method,
    /// What it asked for.
    pub request: RequestInfo,
    /// The status of the answer.
    pub status: StatusCode,
}

impl Access {
    /// Notes the answer to a read of a cached resource once the API server has said that it serves the resource's group itself,
    /// which Weir asks once. It is not asked for a refusal of a credential that it has never accepted, because such a
    /// client could name any version of a group.
    pub fn note_later(self: &Arc<Self>, outcome: &Outcome) {
        let Outcome { component, request, .. } = outcome;
        let is_answered_by_group = |asked: &&ResourceRequest| asked.verb != Verb::Proxy && asked.subresource.is_none();
        let Some(views) = &self.views else { return };
        let Some(asked) = request.resource().filter(is_answered_by_group) else { return };
        if !views.serve(component, asked) {
            return;
        }
        let (access, views, asked, outcome) = (self.clone(), views.clone(), asked.clone(), outcome.clone());
        self.tasks.spawn_until_stop(async move {
            let is_denied = matches!(outcome.status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN);
            let is_worth_it = outcome.status.is_success() || (is_denied && access.is_accepted(&outcome.caller).await);
            if is_worth_it && views.is_found_local(&asked).await {
                access.note_outcome(&outcome).await;
            }
        });
    }

    /// Notes what the API server refuses to the credentials of clients with which Weir itself reads. It ends with the daemon.
    pub fn note_refusals(self: &Arc<Self>, mut refused: mpsc::Receiver<Refusal>) {
        let access = self.clone();
        self.tasks.spawn_until_stop(async move {
            while let Some(refusal) = refused.recv().await {
                access.note_refusal(refusal).await;
            }
        });
    }

    /// Notes one of them.
    async fn note_refusal(&self, refusal: Refusal) {
        let Refusal { credential, path, status } = refusal;
        let Ok(request) = RequestInfo::parse(&Method::GET, &Uri::from(path)) else { return };
        let (Some(views), Some(resource)) = (&self.views, request.resource()) else { return };
        if !self.is_answered_by_server(&request) && !views.is_found_local(resource).await {
            return;
        }
        let caller = Caller::of_delegated(&credential);
        if status == StatusCode::UNAUTHORIZED {
            return self.revoke(&caller).await;
        }
        self.note_denial(&caller, &attributes(&Method::GET, resource)).await;
    }

    /// Notes that the API server denied exactly this, against what its review of before said.
    async fn note_denial(&self, caller: &Caller, asked: &ResourceAttributes) {
        self.read_reviews.end(caller.key()).await;
        self.note_permission(caller, asked, false).await;
    }

    /// Notes the status of an answer that the API server itself has sent: never one of a backend behind it, or of Weir.
    ///
    /// A 401 of a read ends what was remembered of the credential at once. A write may be answered so by an admission webhook:
    /// the credential is asked for again. A 403 of a read denies it. A 2xx of a read of a cached resource is a permission for
    /// exactly what was authorized.
    pub async fn note_outcome(self: &Arc<Self>, outcome: &Outcome) {
        let Outcome { caller, component, method, request, status } = outcome;
        let is_read = *method == Method::GET;
        if caller.identity() == Identity::Client && *status == StatusCode::UNAUTHORIZED {
            match is_read {
                true => self.revoke(caller).await,
                false => self.ask_again(caller).await,
            }
            return;
        }
        let is_cached = |views: &Arc<weir_view::Views>| {
            request.resource().is_some_and(|asked| asked.subresource.is_none() && views.serve(component, asked))
        };
        let is_noted = is_read && self.views.as_ref().is_some_and(is_cached);
        let Some(resource) = request.resource().filter(|_| is_noted) else { return };
        let asked = attributes(method, resource);
        if *status == StatusCode::FORBIDDEN {
            self.note_denial(caller, &asked).await;
        } else if status.is_success() || *status == StatusCode::NOT_FOUND {
            if status.is_success() {
                self.note_permission(caller, &asked, true).await;
            }
            let (access, outcome) = (self.clone(), outcome.clone());
            // The client does not wait for that.
            self.tasks.spawn_until_stop(async move {
                let Outcome { caller, component, request, status, .. } = &outcome;
                if status.is_success() && !access.is_accepted(caller).await {
                    access.authenticate(caller).await;
                    // A denial that has come since holds.
                    if !access.was_denied(caller, &asked).await {
                        access.note_permission(caller, &asked, true).await;
                    }
                }
                access.review_kinds(caller, component, request).await;
            });
        }
    }
}
