//! Warm instances of one filter, checked out per batch of objects and never for the life of a body or a watch.
//!
//! At most [`Pool::new`]'s number are checked out at once; as many are kept warm. The choice is random, so that no module
//! can rely on seeing the same objects twice. An instance that faulted, grew large or is old is not taken back.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::engine::Ticking;
use super::evaluate::Scope;
use super::fault::{FailureClass, Fault};
use super::instance::{Bounds, Instance, Linked, StartError};
use super::lookup::LookupContext;
use super::state::InstanceContext;
use super::view::ClusterView;

/// Objects after which an instance is replaced: nothing that leaks in a module lasts.
const OBJECTS: u64 = 100_000;

/// The instances of one filter.
#[derive(Debug)]
pub struct Pool {
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
    /// State of the random choice. Its quality does not matter, only that modules can not predict it.
    dice: u64,
}

/// An instance out of the pool. [`Pool::give_back`] takes it back; dropping it retires it.
pub struct Checkout {
    instance: Instance,
    _permit: OwnedSemaphorePermit,
    _ticking: Ticking,
}

impl Pool {
    /// A pool of instances of one module with one filter's settings; at most `most` are out at once.
    #[must_use]
    pub fn new(linked: Linked, context: Arc<InstanceContext>, bounds: Bounds, settings: String, most: usize) -> Self {
        let dice = foldhash::fast::RandomState::default();
        let dice = std::hash::BuildHasher::hash_one(&dice, &settings) | 1;
        let permits = Arc::new(Semaphore::new(most));
        Self { linked, context, bounds, settings, permits, warm: Mutex::new(Warm { idle: Vec::new(), dice }) }
    }

    /// A warm instance, or a fresh one. Waits while all are out. Cancel-safe.
    ///
    /// # Errors
    /// When a fresh instance does not come up.
    pub async fn check_out(&self) -> Result<Checkout, Fault> {
        let closed = |_| Fault::new(FailureClass::Host, "the filter's instances are closed");
        let permit = self.permits.clone().acquire_owned().await.map_err(closed)?;
        let warm = self.lock().draw();
        match warm {
            Some(instance) => Ok(Checkout { instance, _permit: permit, _ticking: self.linked.engine().ticking() }),
            None => self.make(permit).await,
        }
    }

    /// A fresh instance if one may be out now; for checks that can be left out. Never waits for others.
    pub async fn try_fresh(&self) -> Option<Checkout> {
        let permit = self.permits.clone().try_acquire_owned().ok()?;
        self.make(permit).await.ok()
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

    /// A scope for replays, with the lookups of the instances.
    #[must_use]
    pub fn scope(&self) -> Scope {
        Scope::new(LookupContext::new(self.context.clone()))
    }

    /// Answers the lookups of the instances.
    #[must_use]
    pub fn view(&self) -> &dyn ClusterView {
        &*self.context.view
    }

    /// Takes an instance back, if it is still good.
    pub fn give_back(&self, checkout: Checkout) {
        let instance = &checkout.instance;
        let worn =
            instance.objects() >= OBJECTS || instance.memory() > self.bounds.memory / 2 || instance.is_cluttered();
        if !worn {
            self.lock().idle.push(checkout.instance);
        }
    }

    /// Instances kept warm at this moment.
    #[must_use]
    pub fn idle(&self) -> usize {
        self.lock().idle.len()
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
        self.dice ^= self.dice << 13;
        self.dice ^= self.dice >> 7;
        self.dice ^= self.dice << 17;
        let index = usize::try_from(self.dice % self.idle.len() as u64).unwrap_or(0);
        Some(self.idle.swap_remove(index))
    }
}

impl Checkout {
    /// The instance.
    pub fn instance(&mut self) -> &mut Instance {
        &mut self.instance
    }
}

impl std::fmt::Debug for Checkout {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.instance.fmt(f)
    }
}
