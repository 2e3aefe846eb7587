//! What one watch gets of a view.

use std::sync::Arc;

use weir_store::cache::HistoryGap;

use crate::machine::core::{Events, ViewCore};
use crate::machine::event::{Cause, Event, Object, Selector};
use crate::machine::frame::Frame;
use crate::machine::present::{End, PresentState};
use crate::machine::version_order::InVersionOrder;

/// How a watch from a version begins.
#[derive(Debug)]
pub(crate) enum Begin<O: Object> {
    /// It goes on.
    Watch(ViewWatch<O>),
    /// The version is above that of the view: the watch waits.
    Ahead,
    /// The version is below the history. The watch sends what comes first; then the events of the API server follow, up to
    /// [`ViewWatch::catch_up`].
    Below(ViewWatch<O>),
    /// The client has to list again: of an object that is not shown any more, it may hold one of several states, and a deletion
    /// carries the one that it holds.
    Uncertain,
}

/// Why a watch cannot go on from where its history began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CatchUpError {
    /// The history does not reach back to there any more.
    Evicted,
    /// As [`Begin::Uncertain`].
    Uncertain,
}

/// One watch.
#[derive(Debug)]
pub(crate) struct ViewWatch<O: Object> {
    phase: Phase<O>,
    /// The newest version that the stream has sent.
    sent: u64,
    /// Whether a BOOKMARK follows the difference that a change has published.
    bookmark_due: bool,
}

#[derive(Debug)]
enum Phase<O: Object> {
    /// ADDED of each object, then the events from the position on.
    All {
        objects: InVersionOrder<O>,
        version: u64,
        position: u64,
    },
    Present {
        state: PresentState<O>,
        next: NextPhase,
    },
    /// Events of the API server up to a version, then those from the position on.
    CatchUp(CatchUp),
    Events {
        position: u64,
    },
}

/// The phase after the present state.
#[derive(Debug, Clone, Copy)]
enum NextPhase {
    CatchUp(CatchUp),
    Events { position: u64 },
}

/// The events of the API server up to where the history begins.
#[derive(Debug, Clone, Copy)]
pub struct CatchUp {
    /// The version at which it begins.
    pub to: u64,
    /// Whether the client may hold something else than the view has shown, of a later version, too.
    pub is_repeated: bool,
    position: u64,
}

impl<O: Object> ViewWatch<O> {
    /// Begins with all objects.
    #[must_use]
    pub(crate) fn all(core: &ViewCore<O>) -> Self {
        let objects = InVersionOrder::new(core.objects().clone(), 0);
        let (version, position) = (core.version(), core.history().end());
        Self::in_phase(Phase::All { objects, version, position }, 0)
    }

    /// Begins with the next event.
    #[must_use]
    pub(crate) fn now(core: &ViewCore<O>) -> Self {
        Self::in_phase(Phase::Events { position: core.history().end() }, core.version())
    }

    /// Continues from a version. `last` is the version up to which clients may hold something else than the view has shown.
    pub(crate) fn after(core: &ViewCore<O>, version: u64, last: u64, selector: &impl Selector<O>) -> Begin<O> {
        if version > core.version() {
            return Begin::Ahead;
        }
        if version >= core.start() {
            return Self::in_history(core, version, last, selector).map_or(Begin::Uncertain, Begin::Watch);
        }
        let catch_up = CatchUp { to: core.start(), position: core.first(), is_repeated: version <= last };
        let phase = match catch_up.is_repeated {
            true => PresentState::of(core, version, End::CatchUp, selector)
                .map(|state| Phase::Present { state, next: NextPhase::CatchUp(catch_up) }),
            false => Some(Phase::CatchUp(catch_up)),
        };
        phase.map_or(Begin::Uncertain, |phase| Begin::Below(Self::in_phase(phase, version)))
    }

    fn in_history(core: &ViewCore<O>, version: u64, last: u64, selector: &impl Selector<O>) -> Option<Self> {
        let phase = match version <= last {
            true => Phase::Present {
                state: PresentState::of(core, version, End::View(core.version()), selector)?,
                next: NextPhase::Events { position: core.history().end() },
            },
            false => Phase::Events { position: core.position_after(version) },
        };
        Some(Self::in_phase(phase, version))
    }

    fn in_phase(phase: Phase<O>, sent: u64) -> Self {
        Self { phase, sent, bookmark_due: false }
    }

    /// What comes from the API server; `None` if the history has all events.
    #[must_use]
    pub(crate) fn catch_up(&self) -> Option<CatchUp> {
        match self.phase {
            Phase::CatchUp(catch_up) | Phase::Present { next: NextPhase::CatchUp(catch_up), .. } => Some(catch_up),
            _ => None,
        }
    }

    /// Whether the events of the API server are what comes next.
    #[must_use]
    pub(crate) fn is_catching_up(&self) -> bool {
        matches!(self.phase, Phase::CatchUp(_))
    }

    /// The client has got the events of the API server up to where the history began.
    ///
    /// # Errors
    /// The watch ends, or the client lists again.
    pub(crate) fn caught_up(
        &mut self,
        core: &ViewCore<O>,
        last: u64,
        selector: &impl Selector<O>,
    ) -> Result<(), CatchUpError> {
        let Phase::CatchUp(CatchUp { to, position, .. }) = self.phase else { return Ok(()) };
        if core.history().start() > position || core.start() > to {
            return Err(CatchUpError::Evicted);
        }
        *self = Self::in_history(core, to, last, selector).ok_or(CatchUpError::Uncertain)?;
        Ok(())
    }

    /// The events from here on are still to be sent.
    #[must_use]
    pub(crate) fn position(&self) -> u64 {
        match self.phase {
            Phase::All { position, .. }
            | Phase::Events { position }
            | Phase::CatchUp(CatchUp { position, .. })
            | Phase::Present {
                next: NextPhase::Events { position } | NextPhase::CatchUp(CatchUp { position, .. }),
                ..
            } => position,
        }
    }

    /// The version of a BOOKMARK that a client can have now; `None` while it lacks something.
    #[must_use]
    pub(crate) fn bookmark(&self, core: &ViewCore<O>) -> Option<u64> {
        match self.phase {
            Phase::Events { position } if position == core.history().end() => Some(self.sent.max(core.version())),
            _ => None,
        }
    }

    /// Sends what comes next, after a look at so many objects or events at most. Returns whether it did anything. `events` are the
    /// view's from a position on, with the version up to which clients may hold something else than the view has shown.
    ///
    /// # Errors
    /// [`HistoryGap`] if the history has moved on: the client is too slow.
    pub(crate) fn step(
        &mut self,
        events: impl FnOnce(u64, usize) -> Result<(Events<O>, u64), HistoryGap>,
        limit: usize,
        selector: &impl Selector<O>,
        frames: &mut Vec<Frame<O>>,
    ) -> Result<bool, HistoryGap> {
        match &mut self.phase {
            Phase::CatchUp(_) => return Ok(false),
            Phase::All { objects, version, position } => {
                let (version, position) = (*version, *position);
                let mut is_over = true;
                for (_, object) in objects.take(limit) {
                    is_over = false;
                    if !selector.matches(&object) {
                    } else if object.has_failed() {
                        frames.push(Frame::Failed(object));
                    } else if object.is_shown() {
                        frames.push(Frame::Added { object, event: None });
                    }
                }
                if is_over {
                    frames.push(Frame::InitialEnd(version));
                    self.sent = version;
                    self.phase = Phase::Events { position };
                }
            }
            Phase::Present { state, next } => {
                let (has_more, next) = (state.step(limit, selector, frames), *next);
                if let Some(Frame::Bookmark(version)) = frames.last() {
                    self.sent = self.sent.max(*version);
                }
                if !has_more {
                    self.phase = match next {
                        NextPhase::CatchUp(catch_up) => Phase::CatchUp(catch_up),
                        NextPhase::Events { position } => Phase::Events { position },
                    };
                }
            }
            Phase::Events { position } => {
                let (Events { events, is_end }, last) = events(*position, limit)?;
                *position += events.len() as u64;
                let Some(newest) = events.last() else { return Ok(false) };
                // The events of one change are published at once.
                let is_whole = is_end || newest.cause != Cause::Change;
                for event in &events {
                    if event.cause != Cause::Change {
                        self.end_change(frames);
                    }
                    self.event(event, last, selector, frames);
                }
                if is_whole {
                    self.end_change(frames);
                }
            }
        }
        Ok(true)
    }

    fn end_change(&mut self, frames: &mut Vec<Frame<O>>) {
        if std::mem::take(&mut self.bookmark_due) {
            frames.push(Frame::Bookmark(self.sent));
        }
    }

    fn event(&mut self, event: &Arc<Event<O>>, last: u64, selector: &impl Selector<O>, frames: &mut Vec<Frame<O>>) {
        self.sent = self.sent.max(event.version);
        let (selects_old, selects_new) = selector.of_event(event);
        let shows = |object: &Option<Arc<O>>| object.as_ref().filter(|object| object.is_shown()).cloned();
        let (old, new) = (shows(&event.old).filter(|_| selects_old), shows(&event.new).filter(|_| selects_new));
        // A client of such a version may hold outcomes of another chain.
        let may_be_held = event.version <= last && (selects_old || selects_new);
        let shared = Some(event.clone());
        let failed = event.new.as_ref().filter(|new| selects_new && new.has_failed());
        let frame = match (old, new) {
            (_, None) if let Some(failed) = failed => Frame::Failed(failed.clone()),
            // It is what the client has.
            (Some(_), Some(object)) if object.stands_in() && event.version > last => return,
            (Some(_), Some(object)) => Frame::Modified { object, is_again: event.keeps_version(), event: shared },
            (None, Some(object)) => Frame::Added { object, event: shared },
            (Some(object), None) => Self::deleted(object, event),
            // Nobody got it from this view, and a deletion would carry what no filter has seen.
            (None, None) if selects_old && event.old.as_ref().is_some_and(|old| old.has_failed()) => Frame::Uncertain,
            (None, None) if may_be_held => {
                // A state that the selector matches.
                let old = event.old.as_ref().filter(|_| selects_old);
                let Some(object) = old.or(event.new.as_ref()) else { return };
                Self::deleted(object.clone(), event)
            }
            (None, None) => return,
        };
        // Of an object that was there before a list, the deletion comes first, and the rest in its turn.
        let is_deletion = matches!(frame, Frame::Deleted { .. } | Frame::Uncertain);
        match event.cause {
            Cause::Left if !is_deletion => return,
            Cause::Listed if is_deletion && event.old.is_some() => return,
            _ => {}
        }
        frames.push(frame);
        self.bookmark_due |= event.cause == Cause::Change;
    }

    fn deleted(object: Arc<O>, event: &Arc<Event<O>>) -> Frame<O> {
        let version = match event.cause {
            Cause::Change => None,
            Cause::Upstream | Cause::Left | Cause::Listed => Some(event.version),
        };
        Frame::Deleted { object, event: Some(event.clone()), version }
    }
}
