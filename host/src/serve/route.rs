//! Selects the handler of a request: forward it, or run the chain of filters that matches its client and resource.
//!
//! While the daemon starts, the filters are not known yet. Then requests that a filter may match wait, up to
//! `--start-wait`, and get 503 afterwards. Weir never forwards them unfiltered.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http::Method;
use weir_document::Document;
use weir_kube::{GroupResource, RequestInfo, ResourceRequest, VerbClass};
use weir_runtime::{Chain, ChainVersion, FilterSet, Outcome, Serving, ServingReceiver};

use super::respond::StatusError;

/// The handler of a request.
pub(crate) enum Route {
    /// No filter matches: the request and its response pass unchanged.
    Forward,
    /// A get, list or watch. The chain filters its objects.
    Read { resource: ResourceRequest, chain: Chain },
    /// A write. The chain decides whether it is safe, and filters the objects in its response.
    Write { resource: ResourceRequest, chain: Chain },
}

/// The filters of a read, and the version of what they show.
#[derive(Debug, Clone)]
pub(crate) struct Filtering {
    /// `None` filters nothing.
    chain: Option<Chain>,
    version: ChainVersion,
    /// Whether a failure policy has taken the place of a verdict. Clones share it.
    is_degraded: Arc<AtomicBool>,
}

impl Filtering {
    /// The filters of this chain, as it is now.
    pub(crate) fn of(chain: Option<Chain>) -> Self {
        let version = chain.as_ref().map_or(ChainVersion::UNFILTERED, Chain::version);
        Self { chain, version, is_degraded: Arc::default() }
    }

    /// The chain.
    pub(crate) fn chain(&self) -> Option<&Chain> {
        self.chain.as_ref()
    }

    /// The version of what they show, as it was when they were taken.
    pub(crate) fn version(&self) -> ChainVersion {
        self.version
    }

    /// The same as views have it, which have no chain where nothing is filtered.
    pub(crate) fn of_views(&self) -> ChainVersion {
        self.chain.as_ref().map_or(ChainVersion::UNFILTERED, |_| self.version)
    }

    /// One outcome for each object.
    pub(crate) async fn run(&self, documents: Vec<Document>) -> Vec<Outcome> {
        let Some(chain) = &self.chain else { return vec![Outcome::Unchanged; documents.len()] };
        let outcomes = chain.run(documents).await;
        if outcomes.are_degraded() {
            self.is_degraded.store(true, Ordering::Relaxed);
        }
        outcomes.into_iter().collect()
    }

    /// Whether a failure policy has taken the place of a verdict in one of these outcomes.
    pub(crate) fn is_degraded(&self) -> bool {
        self.is_degraded.load(Ordering::Relaxed)
    }
}

/// The filters in force.
pub(crate) struct Chains {
    serving: ServingReceiver,
}

impl Chains {
    pub(crate) fn new(serving: ServingReceiver) -> Self {
        Self { serving }
    }

    /// What is active, and changes of it.
    pub(crate) fn serving(&self) -> &ServingReceiver {
        &self.serving
    }

    /// The active filter set; `None` before the first.
    pub(crate) fn active(&self) -> Option<Arc<FilterSet>> {
        self.serving.borrow().live().cloned()
    }

    /// Selects the route of a request. Cancel-safe.
    ///
    /// # Errors
    /// [`StatusError::Starting`]: a filter may match, and the filters were not ready within `start_wait`.
    pub(crate) async fn route(
        &self,
        method: &Method,
        parsed: &RequestInfo,
        component: &str,
        start_wait: Duration,
    ) -> Result<Route, StatusError> {
        let reads = matches!(*method, Method::GET | Method::HEAD);
        // With the legacy path prefix `watch/`, the verb is watch for every method.
        let is_filtered = |resource: &&ResourceRequest| {
            resource.verb_class().is_some_and(|class| (class == VerbClass::Read) == reads)
        };
        let Some(resource) = parsed.resource().filter(is_filtered) else { return Ok(Route::Forward) };
        let resource = resource.clone();
        let chain = self.chain(component, &resource, start_wait).await?;
        if chain.is_some()
            && let Some(set) = self.serving.borrow().live()
        {
            set.filters().iter().for_each(|filter| filter.note_request(component, &resource.resource, VerbClass::Read));
        }
        Ok(match chain {
            None => Route::Forward,
            Some(chain) if reads => Route::Read { resource, chain },
            Some(chain) => Route::Write { resource, chain },
        })
    }

    /// Returns the chain for a component and a resource, for reads and for the responses to writes; none if no filter
    /// matches. Waits for the first filter set, for at most `start_wait`, if a filter may match. Cancel-safe.
    pub(crate) async fn chain(
        &self,
        component: &str,
        resource: &ResourceRequest,
        start_wait: Duration,
    ) -> Result<Option<Chain>, StatusError> {
        let decided = |serving: &Serving| match serving {
            Serving::Unknown | Serving::Pending(None) => None,
            Serving::Pending(Some(rules)) => {
                let waits = rules.iter().any(|rule| rule.matches(component, &resource.resource, VerbClass::Read));
                (!waits).then_some(None)
            }
            Serving::Live(set) => Some(set.chain(component, &resource.resource, VerbClass::Read)),
        };
        self.wait_for(decided, start_wait).await.ok_or(StatusError::Starting)
    }

    /// Waits for the first filter set, for at most `start_wait`: views show what a set makes. Cancel-safe.
    pub(crate) async fn first_set(&self, start_wait: Duration) -> Option<()> {
        self.wait_for(|serving| serving.live().map(drop), start_wait).await
    }

    async fn wait_for<T>(&self, decided: impl Fn(&Serving) -> Option<T>, start_wait: Duration) -> Option<T> {
        if let Some(decided) = decided(&self.serving.borrow()) {
            return Some(decided);
        }
        let mut serving = self.serving.clone();
        let waited = async {
            loop {
                if let Some(decided) = decided(&serving.borrow_and_update()) {
                    return Some(decided);
                }
                serving.changed().await.ok()?;
            }
        };
        tokio::time::timeout(start_wait, waited).await.ok().flatten()
    }

    /// The filters in force for a component and a resource.
    pub(crate) fn filtering(&self, component: &str, resource: &GroupResource) -> Filtering {
        let serving = self.serving.borrow();
        let Some(set) = serving.live() else { return Filtering::of(None) };
        match set.chain(component, resource, VerbClass::Read) {
            Some(chain) => Filtering::of(Some(chain)),
            None => Filtering { version: set.unfiltered_since(component, resource), ..Filtering::of(None) },
        }
    }

    /// Whether a client of this component may hold what filters have made of a resource; false before the first set.
    pub(crate) fn has_filtered(&self, component: &str, resource: &GroupResource) -> bool {
        self.serving.borrow().live().is_some_and(|set| set.has_filtered(component, resource))
    }

    /// Whether the active filter set matches reads of a resource by a component; false before the first set.
    pub(crate) fn is_filtered_now(&self, component: &str, resource: &ResourceRequest) -> bool {
        self.serving
            .borrow()
            .live()
            .is_some_and(|set| set.chain(component, &resource.resource, VerbClass::Read).is_some())
    }
}
