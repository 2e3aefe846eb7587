//! The idle instances of one filter. A batch of objects checks one out. A body or a watch never holds one for its
//! lifetime.
//!
//! [`Pool::new`] bounds the number of checked-out instances and thereby that of idle ones. The choice is random, so
//! that no module can rely on seeing the same objects again. The pool does not take back an instance that faulted, grew
//! large or is old.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::engine::Ticking;
use super::evaluate::Scope;
use super::fault::{FailureClass, Fault};
use super::instance::{Bounds, Instance, Linked, StartError};
use super::long_work::MANY;
use super::lookup::LookupContext;
use super::state::InstanceContext;
use super::view::ClusterView;

/// The number of objects after which an instance is replaced. It bounds leaks in modules.
pub(super) const OBJECTS: u64 = 100_000;

/// The instances of one filter.
#[derive(Debug)]
pub(crate) struct Pool {
    linked: Linked,
    context: Arc<InstanceContext>,
    bounds: Bounds,
    settings: String,
    permits: Arc<Semaphore>,
    warm: Mutex<Warm>,
}

#[derive(Debug)]
struct Warm {
    idle: Vec<Instance>,
    /// The state of the random choice. Modules must not be able to predict it.
    rng: u64,
}

/// A checked-out instance. [`Pool::give_back`] returns it to the pool. Dropping it discards the instance.
pub(crate) struct Checkout {
    instance: Instance,
    _permit: OwnedSemaphorePermit,
    _ticking: Ticking,
}

impl Pool {
    /// Creates a pool of instances of one module with one filter's settings. At most `most` are checked out at once.
    #[must_use]
    pub(crate) fn new(
        linked: Linked,
        context: Arc<InstanceContext>,
        bounds: Bounds,
        settings: String,
        most: usize,
    ) -> Self {
        let rng = foldhash::fast::RandomState::default();
        let rng = std::hash::BuildHasher::hash_one(&rng, &settings) | 1;
        let permits = Arc::new(Semaphore::new(most));
        Self { linked, context, bounds, settings, permits, warm: Mutex::new(Warm { idle: Vec::new(), rng }) }
    }

    /// Checks out an idle instance, or a fresh one. Waits while all are checked out. Cancel-safe.
    ///
    /// # Errors
    /// If a fresh instance cannot be started.
    pub(crate) async fn check_out(&self) -> Result<Checkout, Fault> {
        let permit = self.permit().await?;
        let warm = self.lock().draw();
        match warm {
            Some(instance) => Ok(Checkout { instance, _permit: permit, _ticking: self.linked.engine().ticking() }),
            None => self.make(permit).await,
        }
    }

    /// Checks out a fresh instance, which remembers nothing. Waits while all are checked out. Cancel-safe.
    ///
    /// # Errors
    /// If it cannot be started.
    pub(crate) async fn fresh(&self) -> Result<Checkout, Fault> {
        self.make(self.permit().await?).await
    }

    /// Checks out a fresh instance, or returns none if all are checked out. Never waits. For optional checks.
    pub(crate) async fn try_fresh(&self) -> Option<Checkout> {
        let permit = self.permits.clone().try_acquire_owned().ok()?;
        self.make(permit).await.ok()
    }

    async fn permit(&self) -> Result<OwnedSemaphorePermit, Fault> {
        let closed = |_| Fault::new(FailureClass::Host, "the filter's instances are closed");
        self.permits.clone().acquire_owned().await.map_err(closed)
    }

    async fn make(&self, permit: OwnedSemaphorePermit) -> Result<Checkout, Fault> {
        let ticking = self.linked.engine().ticking();
        let made = self.linked.instance(self.context.clone(), self.bounds, &self.settings).await;
        let (instance, _plan) = made.map_err(|error| match error {
            StartError::Fault(fault) => fault,
            refused @ StartError::Settings(_) => Fault::new(FailureClass::Host, &refused.to_string()),
        })?;
        Ok(Checkout { instance, _permit: permit, _ticking: ticking })
    }

    /// Creates a scope for replays, with the lookups of the instances.
    #[must_use]
    pub(crate) fn scope(&self) -> Scope {
        Scope::new(LookupContext::new(self.context.clone()))
    }

    /// Returns the view that lookups read from.
    #[must_use]
    pub(crate) fn view(&self) -> &dyn ClusterView {
        &*self.context.view
    }

    /// Returns whether a call may look up so many objects that this is long work.
    #[must_use]
    pub(crate) fn looks_up_many(&self) -> bool {
        let mut lookups = self.context.lookups.iter().filter(|lookup| lookup.name.is_none()).peekable();
        if lookups.peek().is_none() {
            return false;
        }
        let snapshot = self.context.view.snapshot();
        lookups.any(|lookup| snapshot.count(lookup) >= MANY)
    }

    /// Returns an instance to the pool, unless it is worn out.
    pub(crate) fn give_back(&self, checkout: Checkout) {
        let instance = &checkout.instance;
        let worn =
            instance.objects() >= OBJECTS || instance.memory() > self.bounds.memory / 2 || instance.is_cluttered();
        if !worn {
            self.lock().idle.push(checkout.instance);
        }
    }

    /// Returns the number of idle instances.
    #[must_use]
    pub(crate) fn idle(&self) -> usize {
        self.lock().idle.len()
    }

    /// Returns the linear memory of the largest idle instance in bytes.
    #[must_use]
    pub(crate) fn largest(&self) -> usize {
        self.lock().idle.iter().map(Instance::memory).max().unwrap_or_default()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Warm> {
        self.warm.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Warm {
    fn draw(&mut self) -> Option<Instance> {
        if self.idle.is_empty() {
            return None;
        }
        self.rng ^= self.rng << 13;
        self.rng ^= self.rng >> 7;
        self.rng ^= self.rng << 17;
        let index = usize::try_from(self.rng % self.idle.len() as u64).unwrap_or(0);
        Some(self.idle.swap_remove(index))
    }
}

impl Checkout {
    /// Returns the instance.
    pub(crate) fn instance(&mut self) -> &mut Instance {
        &mut self.instance
    }
}

impl std::fmt::Debug for Checkout {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.instance.fmt(f)
    }
}
