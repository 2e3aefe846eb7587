//! A view as one client component reads it.
//!
//! Components whose chains are the same, and have been so since the same time, share one view. When other filters apply to some of
//! them, the view is forked: these go on with a copy of its objects and its history, at the position where they are, and the copy
//! takes the change. So that nobody sees what others are shown, each look at the view is one under its lock, where the fork is
//! noted.

use std::collections::VecDeque;
use std::ops::Deref;
use std::sync::{Arc, MutexGuard};

use weir_runtime::ChainVersion;
use weir_store::cache::HistoryGap;

use super::event::WatchSelector;
use super::object::ViewObject;
use super::readers::Component;
use super::state::{View, ViewSnapshot, ViewState};
use crate::machine::{Begin, CatchUpError, Frame, ViewWatch};

/// A view that a component reads until this is dropped. It follows the component to the view that takes its place.
#[derive(Debug)]
pub struct ComponentView {
    view: Arc<View>,
    component: Component,
}

impl ComponentView {
    /// Begins to read a view. The lock of the registry is held, so that the view shows what this component's chain makes.
    pub(super) fn new(mut view: Arc<View>, component: &Component) -> Self {
        loop {
            // A watch of the component may not have gone on with the fork yet.
            let moved = view.state().readers.enter(component);
            let Some(next) = moved else { return Self { view, component: component.clone() } };
            view = next;
        }
    }

    /// The view that the component has read last.
    #[must_use]
    pub fn view(&self) -> &Arc<View> {
        &self.view
    }

    /// Begins a watch with all objects.
    pub fn watch_all(&mut self) -> ViewWatch<ViewObject> {
        self.read(|_, state| ViewWatch::all(&state.core))
    }

    /// Begins a watch with the next event.
    pub fn watch_now(&mut self) -> ViewWatch<ViewObject> {
        self.read(|_, state| ViewWatch::now(&state.core))
    }

    /// Begins a watch that continues from a version. The store asks for a version that the view has not reached. Nothing is known
    /// of what a client was shown whose request is not in step.
    pub fn watch_after(&mut self, version: u64, is_in_step: bool, selector: &WatchSelector<'_>) -> Begin<ViewObject> {
        let begin = self.read(|_, state| {
            let last = if is_in_step { state.last() } else { u64::MAX };
            ViewWatch::after(&state.core, version, last, selector)
        });
        if matches!(begin, Begin::Ahead) {
            self.view.store.want(version);
        }
        begin
    }

    /// Takes what a watch sends next, after a look at so many objects or events. Returns whether there was anything to do.
    ///
    /// # Errors
    /// [`HistoryGap`]: the client is too slow for the history.
    pub fn step(
        &mut self,
        watch: &mut ViewWatch<ViewObject>,
        selector: &WatchSelector<'_>,
        limit: usize,
        frames: &mut VecDeque<Frame<ViewObject>>,
    ) -> Result<bool, HistoryGap> {
        let mut next = Vec::new();
        let events =
            |position, limit| self.read(|_, state| Ok((state.core.events_from(position, limit)?, state.last())));
        let advanced = watch.step(events, limit, selector, &mut next)?;
        frames.extend(next);
        Ok(advanced)
    }

    /// A watch has got the events of before the history.
    ///
    /// # Errors
    /// The watch ends, or the client lists again.
    pub fn caught_up(
        &mut self,
        watch: &mut ViewWatch<ViewObject>,
        selector: &WatchSelector<'_>,
    ) -> Result<(), CatchUpError> {
        self.read(|_, state| watch.caught_up(&state.core, state.last(), selector))
    }

    /// The version of a BOOKMARK that a client can have now; `None` while it lacks something.
    pub fn bookmark(&mut self, watch: &ViewWatch<ViewObject>) -> Option<u64> {
        self.read(|_, state| watch.bookmark(&state.core))
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
        self.read(|view, _| view.subscribe().borrow().is_some())
    }

    /// Waits until the view has its first objects; `None` if it is closed meanwhile. Cancel safe.
    pub async fn filled(&mut self) -> Option<()> {
        self.wait_for(|view| view.has_objects().then_some(())).await
    }

    /// Whether the view has reached this version. If not, the store asks for it: a client waits.
    pub fn has_reached(&mut self, version: u64) -> bool {
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
            let mut changes = self.view.subscribe();
            let before = self.view.clone();
            if let Some(found) = found(self) {
                return Some(found);
            }
            // Only what the view of before publishes is awaited.
            if Arc::ptr_eq(&before, &self.view) {
                drop(before);
                changes.changed().await.ok()?;
            }
        }
    }

    /// Notes that the client was given this version as this chain version shows it, and not by the view; `None`: failure policies
    /// decided on some of it.
    pub fn end_stream(&mut self, version: u64, shown_by: Option<ChainVersion>) {
        self.read(|view, state| view.note_end(state, version, shown_by));
    }

    /// Looks at the view that shows what the component reads now.
    fn read<T>(&mut self, look: impl FnOnce(&View, &mut ViewState) -> T) -> T {
        loop {
            let view = self.view.clone();
            let mut state = view.state();
            let Some(next) = state.readers.moved(&self.component).cloned() else { return look(&view, &mut state) };
            leave(state, &self.component);
            self.view = next;
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
