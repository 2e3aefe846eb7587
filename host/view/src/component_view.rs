//! A view as one client component reads it.
//!
//! Components whose chains are the same, and have been so since the same time, share one view. When other filters apply to some of
//! them, the view is forked: these go on with a copy of its objects and its history, at the position where they are, and the copy
//! takes the change. So that nobody sees what others are shown, each look at the view is one under its lock, where the fork is
//! noted.

use std::ops::Deref;
use std::sync::{Arc, MutexGuard};

use tokio::sync::watch;
use weir_runtime::ChainVersion;

use super::readers::Component;
use super::state::{View, ViewSnapshot, ViewState};

/// A view that a component reads until this is dropped. It follows the component to the view that takes its place.
#[derive(Debug)]
pub struct ComponentView {
    view: Arc<View>,
    component: Component,
    /// Of that view, since before the first look at it.
    changes: watch::Receiver<Option<u64>>,
}

impl ComponentView {
    /// Begins to read a view. The lock of the registry is held, so that the view shows what this component's chain makes.
    pub(super) fn new(mut view: Arc<View>, component: &Component) -> Self {
        loop {
            // A watch of the component may not have gone on with the fork yet.
            let moved = view.state().readers.enter(component);
            let Some(next) = moved else {
                return Self { changes: view.subscribe(), view, component: component.clone() };
            };
            view = next;
        }
    }

    /// The view that the component has read last.
    #[must_use]
    pub fn view(&self) -> &Arc<View> {
        &self.view
    }

    /// The current objects.
    pub fn snapshot(&mut self) -> Arc<ViewSnapshot> {
        self.read(|view, _| view.snapshot())
    }

    /// The current objects, if they are what this chain version makes, or a later one. Without a chain they are all.
    pub fn snapshot_in_step(&mut self, chain: Option<ChainVersion>) -> Option<Arc<ViewSnapshot>> {
        Some(self.snapshot()).filter(|snapshot| snapshot.is_in_step(chain))
    }

    /// Whether all objects were filtered once.
    pub fn has_objects(&mut self) -> bool {
        self.read(|view, _| view.has_objects())
    }

    /// Waits until the view has its first objects; `None` if it is closed meanwhile. Cancel safe.
    pub async fn filled(&mut self) -> Option<()> {
        self.wait_for(|view| view.has_objects().then_some(())).await
    }

    /// Whether the view has reached this version. If not, the store asks for it: a client waits.
    pub(super) fn has_reached(&mut self, version: u64) -> bool {
        let reached = self.snapshot().version >= version;
        if !reached {
            self.view.store.want(version);
        }
        reached
    }

    /// Waits until the view has reached a version; `None` if it is closed meanwhile. Cancel safe.
    pub async fn reaches(&mut self, version: u64) -> Option<()> {
        self.wait_for(|view| view.has_reached(version).then_some(())).await
    }

    /// Waits until the view yields something, with a look at it after each event and each move; `None` if it is closed meanwhile.
    /// Cancel safe.
    pub async fn wait_for<T>(&mut self, mut found: impl FnMut(&mut Self) -> Option<T>) -> Option<T> {
        loop {
            self.changes.mark_unchanged();
            if let Some(found) = found(self) {
                return Some(found);
            }
            if !self.changed().await {
                return None;
            }
        }
    }

    /// Waits for an event or a move since the last one that was waited for. Returns false if the view is closed. Cancel safe.
    pub(super) async fn changed(&mut self) -> bool {
        let closed = self.view.closed().clone();
        tokio::select! {
            // A component that has moved goes on when the former view is closed.
            biased;
            changed = self.changes.changed() => changed.is_ok(),
            () = closed.cancelled() => false,
        }
    }

    /// Notes that the client was given this version as this chain version shows it, and not by the view; `None`: failure policies
    /// decided on some of it.
    pub fn end_stream(&mut self, version: u64, shown_by: Option<ChainVersion>) {
        self.read(|view, state| view.note_end(state, version, shown_by));
    }

    /// Looks at the view that shows what the component reads now.
    pub(super) fn read<T>(&mut self, look: impl FnOnce(&View, &mut ViewState) -> T) -> T {
        loop {
            let view = self.view.clone();
            let mut state = view.state();
            let Some(next) = state.readers.moved(&self.component).cloned() else { return look(&view, &mut state) };
            leave(state, &self.component);
            (self.changes, self.view) = (next.subscribe(), next);
        }
    }
}

/// Ends a read, and drops what it kept without the lock.
fn leave(mut state: MutexGuard<'_, ViewState>, component: &Component) {
    let kept = state.readers.leave(component);
    drop(state);
    drop(kept);
}

impl Deref for ComponentView {
    type Target = View;

    fn deref(&self) -> &View {
        &self.view
    }
}

impl Drop for ComponentView {
    fn drop(&mut self) {
        let mut next = Some(self.view.clone());
        while let Some(view) = next {
            let state = view.state();
            next = state.readers.moved(&self.component).cloned();
            leave(state, &self.component);
        }
    }
}
