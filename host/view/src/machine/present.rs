//! The present state of a view, for a client that continues from a version up to which it may hold something else.
//!
//! 1. DELETED for each object that is not shown, also for those that were deleted since, and MODIFIED for each one that is shown
//!    and has not changed since. Nothing of this raises the client's version. A BOOKMARK of the version follows.
//! 2. What has changed since, in the order of versions, and a BOOKMARK of the view's version.
//!
//! Before a catch-up only what has not changed since is sent: the events of the API server bring the rest.
//!
//! Clients act on what a deletion carries (kube-proxy closes the ports that it names), so that it carries the state at the
//! client's version.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use weir_store::StoreKey;

use crate::machine::core::{Objects, ViewCore};
use crate::machine::event::{Object, Selector};
use crate::machine::frame::Frame;
use crate::machine::version_order::InVersionOrder;

/// What is left to send.
#[derive(Debug)]
pub(crate) struct PresentState<O: Object> {
    /// That of the client.
    from: u64,
    objects: Objects<O>,
    /// The objects that have events after the client's version.
    touched: BTreeMap<StoreKey, Touched<O>>,
    part: Part<O>,
    has_sent: bool,
    /// The end of the state.
    end: End,
}

/// The end of a present state.
#[derive(Debug, Clone, Copy)]
pub(crate) enum End {
    /// Part 1 alone: a catch-up follows.
    CatchUp,
    /// The version of the view.
    View(u64),
}

#[derive(Debug)]
enum Part<O: Object> {
    /// Objects that exist, after this key.
    Unchanged(Option<StoreKey>),
    /// Objects that were deleted.
    Deleted,
    Changed(InVersionOrder<O>),
    Over,
}

/// An object with events after the client's version.
#[derive(Debug)]
struct Touched<O> {
    /// Whether the client may hold it: a state of it matches the selector.
    is_selected: bool,
    /// Whether it came after that version.
    is_added: bool,
    /// Its state at that version, or, where it came later, the last one.
    held: Arc<O>,
}

impl<O: Object> PresentState<O> {
    /// The state of a view for a client of version `from`. `position`: the first event that the client may lack.
    pub(crate) fn of(core: &ViewCore<O>, from: u64, position: u64, end: End, selector: &impl Selector<O>) -> Self {
        let mut touched: BTreeMap<StoreKey, Touched<O>> = BTreeMap::new();
        for (_, event) in core.history().iter_from(position) {
            let (Some(key), Some(last)) = (&event.key, event.new.as_ref().or(event.old.as_ref())) else { continue };
            let (old, new) = selector.of_event(event);
            let held = event.old.as_ref().unwrap_or(last).clone();
            let first = || Touched { is_selected: false, is_added: event.old.is_none(), held };
            let object = touched.entry(key.clone()).or_insert_with(first);
            object.is_selected |= old || new;
            if object.is_added {
                object.held = last.clone();
            }
        }
        let objects = core.objects().clone();
        Self { from, objects, touched, part: Part::Unchanged(None), has_sent: false, end }
    }

    /// Sends what comes next, after a look at so many objects at most. Returns whether more follows.
    pub(crate) fn step(&mut self, limit: usize, selector: &impl Selector<O>, frames: &mut Vec<Frame<O>>) -> bool {
        match &mut self.part {
            Part::Unchanged(after) => {
                let from = after.take().map_or(Bound::Unbounded, Bound::Excluded);
                let next: Vec<_> = self
                    .objects
                    .range((from, Bound::Unbounded))
                    .take(limit)
                    .map(|(key, object)| (key.clone(), object.clone()))
                    .collect();
                self.part = match next.last() {
                    Some((key, _)) => Part::Unchanged(Some(key.clone())),
                    None => Part::Deleted,
                };
                for (key, object) in next {
                    frames.extend(self.unchanged(&key, object, selector));
                }
                self.has_sent |= !frames.is_empty();
            }
            Part::Deleted => {
                let gone = self.touched.iter().filter(|(key, object)| {
                    object.is_selected
                        && !self.objects.contains_key(*key)
                        && !self.is_brought(&object.held, object.is_added)
                });
                frames.extend(gone.map(|(_, object)| self.deleted(&object.held)));
                if self.has_sent || !frames.is_empty() {
                    frames.push(Frame::Bookmark(self.from));
                }
                self.part = match self.end {
                    End::CatchUp => Part::Over,
                    End::View(_) => Part::Changed(InVersionOrder::new(self.objects.clone(), self.from)),
                };
            }
            Part::Changed(changed) => {
                let next: Vec<_> = changed.take(limit).collect();
                if next.is_empty() {
                    self.part = Part::Over;
                    if let End::View(version) = self.end
                        && version > self.from
                    {
                        frames.push(Frame::Bookmark(version));
                    }
                }
                for (key, object) in next {
                    if selector.matches(&object) {
                        frames.extend(self.changed(&key, object));
                    }
                }
            }
            Part::Over => {}
        }
        !matches!(self.part, Part::Over)
    }

    fn unchanged(&self, key: &StoreKey, object: Arc<O>, selector: &impl Selector<O>) -> Option<Frame<O>> {
        let touched = self.touched.get(key);
        let is_unchanged = object.version() <= self.from;
        let is_selected = selector.matches(&object);
        if is_selected && object.has_failed() {
            return Some(Frame::Failed(object));
        }
        if is_selected && object.is_shown() {
            return is_unchanged.then(|| Frame::Modified { object, is_again: true, event: None });
        }
        let may_be_held = is_selected || touched.is_some_and(|touched| touched.is_selected);
        let held = touched.map_or(&object, |touched| &touched.held);
        let is_brought = self.is_brought(held, touched.is_some_and(|touched| touched.is_added));
        (may_be_held && !is_brought).then(|| self.deleted(held))
    }

    /// Whether a catch-up, or what follows it, brings what has become of an object: it has changed since the client's version.
    fn is_brought(&self, held: &O, is_added: bool) -> bool {
        matches!(self.end, End::CatchUp) && (is_added || held.version() > self.from)
    }

    fn deleted(&self, object: &Arc<O>) -> Frame<O> {
        Frame::Deleted { object: object.clone(), event: None, version: Some(self.from) }
    }

    fn changed(&self, key: &StoreKey, object: Arc<O>) -> Option<Frame<O>> {
        if !object.is_shown() {
            return None;
        }
        let is_added = self.touched.get(key).is_some_and(|touched| touched.is_added);
        Some(if is_added {
            Frame::Added { object, event: None }
        } else {
            Frame::Modified { object, is_again: false, event: None }
        })
    }
}
