//! Background reviews of what else a client may read, so that it can read it offline.
//!
//! When a client such as kubectl reads a cached resource upstream, Weir sends a SelfSubjectAccessReview for each cached resource
//! and each of list and watch: at cluster scope, and if that is denied in the namespaces that the client has used. One
//! SelfSubjectRulesReview would do, but mixes scopes and is empty for nodes. The collection that the client has just read is
//! listed once more for the view that serves it offline.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::api::authorization::v1::ResourceAttributes;
use moka::sync::Cache;
use tokio::sync::Semaphore;
use weir_kube::{GroupResource, RequestInfo, Verb};
use weir_upstream::Delegation;

use crate::Access;
use crate::caller::Caller;
use weir_view::Opener;

/// The most reviews of one user in an [`HOUR`].
const REVIEWS: usize = 240;
const HOUR: Duration = Duration::from_secs(3600);
/// The most namespaces of one user.
const NAMESPACES: usize = 8;
/// The most users at a time.
const USERS: u64 = 1024;
/// The most background tasks of one user.
const TASKS: usize = 64;
/// How long a view follows the API server after what was read for it, if it is read with a delegated credential.
const FOLLOWED: Duration = Duration::from_secs(2);
/// How long a background list may take.
const FILL: Duration = Duration::from_secs(30);

/// The reviews of each user in the last hour.
#[derive(Debug)]
pub(crate) struct KindReviews(Cache<Arc<str>, Arc<ReviewedUser>>);

/// One user.
#[derive(Debug)]
struct ReviewedUser {
    reviews: Mutex<UserReviews>,
    /// Held by the one task that sends reviews.
    asking: tokio::sync::Mutex<()>,
    /// Permits for background tasks. Further reads start none.
    tasks: Semaphore,
}

#[derive(Debug, Default)]
struct UserReviews {
    /// The credentials, verbs, resources and namespaces of the reviews.
    asked: BTreeSet<(Arc<str>, &'static str, GroupResource, String)>,
    namespaces: BTreeSet<String>,
}

impl Default for ReviewedUser {
    fn default() -> Self {
        Self { reviews: Mutex::default(), asking: tokio::sync::Mutex::default(), tasks: Semaphore::new(TASKS) }
    }
}

impl Default for KindReviews {
    fn default() -> Self {
        Self(Cache::builder().max_capacity(USERS).time_to_live(HOUR).build())
    }
}

impl UserReviews {
    /// Whether a review may be sent now. It counts.
    fn begin(&mut self, credential: &Arc<str>, verb: &'static str, resource: &GroupResource, namespace: &str) -> bool {
        self.asked.len() < REVIEWS
            && self.asked.insert((credential.clone(), verb, resource.clone(), namespace.to_owned()))
    }

    /// Records a namespace that the user has used.
    fn uses(&mut self, namespace: Option<&str>) {
        if let Some(namespace) = namespace.filter(|_| self.namespaces.len() < NAMESPACES) {
            self.namespaces.insert(namespace.to_owned());
        }
    }
}

impl Access {
    /// Reviews what else a caller may read. Components of the node read the same objects at each start, from views: they are not
    /// reviewed unless they list upstream, as the administrator's kubectl does with the node credential.
    pub(super) async fn review_kinds(self: &Arc<Self>, caller: &Caller, component: &str, request: &RequestInfo) {
        let is_list = request.resource().is_some_and(|resource| resource.verb == Verb::List);
        let asks = is_list || !caller.is_node_component(&self.node_service_accounts);
        let Some(views) = self.views.as_ref().filter(|_| asks) else { return };
        if !self.is_accepted(caller).await {
            return;
        }
        let user = self.kind_reviews.0.get_with(caller.owner(), Arc::default);
        let Ok(_task) = user.tasks.try_acquire() else { return };
        locked(&user.reviews).uses(request.resource().and_then(|resource| resource.namespace.as_deref()));
        let followed = self.fill(caller, component, request).await;
        let asking = user.asking.lock().await;
        for resource in views.named_resources() {
            for verb in ["list", "watch"] {
                if self.review_kind(caller, &user.reviews, verb, &resource, "").await {
                    continue;
                }
                let namespaces = locked(&user.reviews).namespaces.clone();
                for namespace in namespaces {
                    self.review_kind(caller, &user.reviews, verb, &resource, &namespace).await;
                }
            }
        }
        drop(asking);
        let path = request.forward.path();
        tracing::debug!(component, path, "asked what else the user may read, for the time without an API server");
        if followed.is_some() {
            tokio::time::sleep(FOLLOWED).await;
        }
    }

    /// Reviews one permission, unless that was done in this hour or it is known. Returns whether it is granted.
    async fn review_kind(
        &self,
        caller: &Caller,
        reviews: &Mutex<UserReviews>,
        verb: &'static str,
        resource: &GroupResource,
        namespace: &str,
    ) -> bool {
        let text = |text: &str| Some(text.to_owned());
        let asked = ResourceAttributes {
            verb: text(verb),
            group: text(&resource.group),
            resource: text(&resource.resource),
            subresource: text(""),
            namespace: text(namespace),
            name: text(""),
            ..ResourceAttributes::default()
        };
        if !locked(reviews).begin(caller.key(), verb, resource, namespace) {
            return self.was_granted(caller, &asked).await;
        }
        self.may(caller, &asked).await.unwrap_or(false)
    }

    /// Fills the view that serves offline what a caller has just read upstream: with all of the collection in its scope, if it
    /// may list that. A view that was filled before follows the changes and deletions since.
    ///
    /// Returns the delegation of the credential for it: events of what the client has read may still be on their way.
    async fn fill(self: &Arc<Self>, caller: &Caller, component: &str, request: &RequestInfo) -> Option<Delegation> {
        let request = request.unselected_list()?;
        let permit = self.permit(caller, component, &request).await?;
        let views = self.views.as_ref()?;
        let delegation = caller.authorization().and_then(|own| views.delegate(permit.reader(), own));
        let owner = self.owner(caller);
        let opener = Opener { component, owner: &owner, opens: true };
        let Ok(Some(view)) = views.view(&permit, opener) else { return None };
        let mut reflector = view.reflector_state();
        let is_refused = |error: &weir_store::ReflectorError| error.needs_operator_action();
        let filled = reflector.wait_for(|state| {
            (state.synced && view.follows_api_server()) || state.error.as_ref().is_some_and(is_refused)
        });
        if tokio::time::timeout(FILL, filled).await.is_err() {
            tracing::debug!(resource = %permit.resource().resource, component, "a list for the time without an API server takes too long");
        }
        delegation
    }
}

fn locked(reviews: &Mutex<UserReviews>) -> std::sync::MutexGuard<'_, UserReviews> {
    reviews.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_asked_about_so_often_an_hour() {
        let mut reviews = UserReviews::default();
        let resource = GroupResource::new("services", "");
        let (one, other): (Arc<str>, Arc<str>) = ("a".into(), "b".into());
        assert!(reviews.begin(&one, "list", &resource, ""));
        assert!(!reviews.begin(&one, "list", &resource, ""), "once");
        assert!(reviews.begin(&one, "list", &resource, "a") && reviews.begin(&one, "watch", &resource, ""));
        assert!(reviews.begin(&other, "list", &resource, ""), "each credential by itself");
        let begun = (0..2 * REVIEWS).filter(|n| reviews.begin(&one, "list", &resource, &n.to_string())).count();
        assert_eq!(begun, REVIEWS - 4);
        (0..100).for_each(|n| reviews.uses(Some(&n.to_string())));
        assert_eq!(reviews.namespaces.len(), NAMESPACES);
    }
}
