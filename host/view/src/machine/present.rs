//! The present state of a view, for a client that continues from a version up to which it may hold something else.
//!
//! 1. DELETED for each object that is not shown, also for those that were deleted since, and MODIFIED for each one that is shown
//!    and has not changed since. Nothing of this raises the client's version. A BOOKMARK of the version follows.
//! 2. What has changed since, in the order of versions, and a BOOKMARK of the view's version.
//!
//! Before a catch-up only what has not changed since is sent: the events of the API server bring the rest.
//!
//! Clients act on what a deletion carries (kube-proxy closes the ports that it names), so that it carries the state that the client
//! holds. That is the one at its version, unless there is a later one: what is sent again has an older version than other objects
//! that the client holds, and one that is cut off there continues from it. It lists again then.

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
    /// Its state at that version, or, where it came later, the first one.
    held: Arc<O>,
    /// Whether it has had another state since, which the client may hold instead.
    has_other: bool,
    /// Whether clients did not see it in between: one that is cut off before its present state comes holds the former one, at a version
    /// at which it was gone.
    has_left: bool,
}

impl<O: Object> PresentState<O> {
    /// The state of a view for a client of version `from`. `None`: of an object that is not shown any more, the client may hold one
    /// of several states.
    pub(crate) fn of(core: &ViewCore<O>, from: u64, end: End, selector: &impl Selector<O>) -> Option<Self> {
        let mut touched: BTreeMap<StoreKey, Touched<O>> = BTreeMap::new();
        for (_, event) in core.history().iter_from(core.position_after(from)) {
            let (Some(key), Some(first)) = (&event.key, event.old.as_ref().or(event.new.as_ref())) else { continue };
            let (old, new) = selector.of_event(event);
            let first = || Touched {
                is_selected: false,
                is_added: event.old.is_none(),
                held: first.clone(),
                has_other: false,
                has_left: false,
            };
            let is_seen = |object: &Option<Arc<O>>, selects: bool| {
                selects && object.as_ref().is_some_and(|object| object.is_shown())
            };
            let object = touched.entry(key.clone()).or_insert_with(first);
            object.is_selected |= old || new;
            object.has_left |= is_seen(&event.old, old) && !is_seen(&event.new, new);
            // What stands in for a failure shows the state of before, and what is hidden is in no stream of this view.
            let is_other = |new: &Arc<O>| new.is_shown() && !new.stands_in() && new.version() != object.held.version();
            object.has_other |= event.new.as_ref().is_some_and(is_other);
        }
        let objects = core.objects().clone();
        let state = Self { from, objects, touched, part: Part::Unchanged(None), has_sent: false, end };
        // What failed was not shown by this view, and a deletion would carry what no filter has seen.
        let has_several = |object: &Touched<O>| object.has_other || object.held.has_failed();
        let is_uncertain = state.touched.iter().filter(|(_, object)| has_several(object)).any(|(key, object)| {
            let now = state.objects.get(key);
            let is_selected = now.is_some_and(|now| selector.matches(now));
            let is_kept = is_selected && now.is_some_and(|now| now.is_shown() || now.has_failed());
            let is_kept = is_kept && (object.is_added || !object.has_left);
            !is_kept && state.to_delete(now, Some(object), is_selected).is_some()
        });
        (!is_uncertain).then_some(state)
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
                let gone = self.touched.iter().filter(|(key, _)| !self.objects.contains_key(*key));
                let gone = gone.filter_map(|(_, object)| self.to_delete(None, Some(object), false));
                frames.extend(gone.map(|held| self.deleted(held)));
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
        self.to_delete(Some(&object), touched, is_selected).map(|held| self.deleted(held))
    }

    /// The state that is deleted of an object that is not shown: what the client may hold, if nothing that follows says what has become
    /// of it. `now`: as it is, and whether that is selected.
    fn to_delete<'a>(
        &self,
        now: Option<&'a Arc<O>>,
        touched: Option<&'a Touched<O>>,
        is_selected: bool,
    ) -> Option<&'a Arc<O>> {
        let held = touched.map(|touched| &touched.held).or(now)?;
        let may_be_held = is_selected || touched.is_some_and(|touched| touched.is_selected);
        let is_brought = self.is_brought(held, touched.is_some_and(|touched| touched.is_added));
        (may_be_held && !is_brought).then_some(held)
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
