//! A watch of a component, from the view that shows its objects to the events that its client gets.
//!
//! It has no task and queues nothing: its owner takes events as the connection has room, and each look at the view is bounded by
//! [`BATCH`]. It goes on where it is when other filters apply to its component: its position is the same in the view that takes the
//! place of the former one.
//!
//! The events before the history come from the API server: its owner sends them where [`ComponentWatch::catch_up`] says so.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use tokio_util::sync::CancellationToken;
use weir_document::json::EventType;
use weir_document::{Error, TypeMeta};
use weir_kube::{ListOptions, MediaType, Transform};
use weir_runtime::{ChainVersion, Failure};
use weir_store::ReflectorError;
use weir_store::cache::ObjectFormat;
use weir_wire::partial;

use super::bookmark::bookmark;
use super::component_view::ComponentView;
use super::event::{EncodedAs, ViewEvent, WatchSelector, encode};
use super::object::ViewObject;
use super::request_selector::RequestSelector;
use super::state::{View, ViewState};
use super::watchers::{NOT_YET, OpenWatch};
use crate::machine::{Begin, CatchUp, CatchUpError, Frame, ViewWatch};

/// The most objects or events of the view that are looked at at once.
const BATCH: usize = 64;

/// What a client asks of its watch, and how it gets it.
#[derive(Debug, Clone)]
pub struct WatchOptions {
    /// Which objects.
    pub selector: RequestSelector,
    /// The parameters of the request.
    pub parameters: Arc<ListOptions>,
    /// The encoding and the transform.
    pub media_type: MediaType,
    /// Whether an object that changes at the resourceVersion that the client holds is DELETED, with the state before, and ADDED. Else
    /// it is MODIFIED.
    pub replaces: bool,
    /// Whether the view shows what the chain makes that was in force when the request arrived. If not, nothing is known of what the
    /// client was shown.
    pub is_in_step: bool,
    /// Closes the connection of the client.
    pub close: CancellationToken,
}

/// Why a watch ends.
#[derive(Debug)]
pub enum WatchError {
    /// The client reads too slowly for the history. It continues with another watch.
    TooSlow,
    /// The history does not reach back any more to where the events of the API server end. The client continues with another watch.
    Evicted,
    /// Of an object that is not shown any more, the client may hold one of several states, or one on which there was no verdict. It
    /// has to list again.
    Uncertain,
    /// It has waited for a version, and the history of the cluster is another one since.
    OtherHistory,
    /// There is no verdict on an object, and the client cannot go on without.
    Filter(Failure),
    /// An object is malformed.
    Invalid(Error),
}

/// An open watch. Its view counts it, and observes its position, until it is dropped.
pub struct ComponentWatch {
    view: ComponentView,
    options: WatchOptions,
    /// The view's, as of the look with which the watch begins. A view that changes it starts a new history, which ends its watches.
    format: ObjectFormat,
    phase: Phase,
    /// How often the view had restarted when the watch began.
    restarts: u64,
    /// What the client gets next.
    frames: VecDeque<Frame<ViewObject>>,
    /// Whether the client gets a BOOKMARK as soon as it lacks nothing.
    bookmark_due: bool,
    /// At the view that was read last, or the one of before.
    open: OpenWatch,
    /// Resolves when nothing follows from that view.
    ended: Pin<Box<dyn Future<Output = ()> + Send>>,
}

/// How far a watch is.
#[expect(
    clippy::large_enum_variant,
    reason = "almost all watches are in the large one, and there is one for each watch"
)]
enum Phase {
    /// Starts with all objects once the view has reached this version.
    NotOlderThan(u64),
    /// Continues after this version once the view has reached it.
    After(u64),
    /// Follows the view.
    Begun(ViewWatch<ViewObject>),
    /// Ends.
    Uncertain,
}

impl ComponentWatch {
    /// Begins with all objects.
    pub fn all(view: ComponentView, options: WatchOptions) -> Self {
        Self::new(view, options, |state| Phase::Begun(ViewWatch::all(&state.core)))
    }

    /// Begins with all objects, once the view has reached a version.
    pub fn not_older_than(view: ComponentView, version: u64, options: WatchOptions) -> Self {
        Self::new(view, options, |_| Phase::NotOlderThan(version))
    }

    /// Begins with the next event.
    pub fn now(view: ComponentView, options: WatchOptions) -> Self {
        Self::new(view, options, |state| Phase::Begun(ViewWatch::now(&state.core)))
    }

    /// Continues after a version, which the store asks for if the view has not reached it.
    pub fn after(view: ComponentView, version: u64, options: WatchOptions) -> Self {
        let mut watch = Self::new(view, options, |_| Phase::After(version));
        watch.begin_after(version);
        watch
    }

    fn new(mut view: ComponentView, options: WatchOptions, phase: impl FnOnce(&ViewState) -> Phase) -> Self {
        let begin = |view: &View, state: &mut ViewState| (phase(state), view.snapshot().format.clone(), state.restarts);
        let (phase, format, restarts) = view.read(begin);
        let open = view.open_watch(&options.selector, options.close.clone());
        let ended = Box::pin(ended(view.view()));
        Self { view, options, format, phase, restarts, frames: VecDeque::new(), bookmark_due: false, open, ended }
    }

    /// The view that shows what the component reads.
    pub fn view(&mut self) -> &mut ComponentView {
        &mut self.view
    }

    /// Whether its objects are read for its client alone.
    #[must_use]
    pub fn is_private(&self) -> bool {
        self.view.is_private()
    }

    /// What comes from the API server; `None` if the history has all events, or the view has not reached the version.
    pub fn catch_up(&self) -> Option<CatchUp> {
        self.begun()?.catch_up()
    }

    /// The client has got the events of the API server.
    ///
    /// # Errors
    /// The watch ends, or the client lists again.
    pub fn caught_up(&mut self) -> Result<(), WatchError> {
        let Phase::Begun(watch) = &mut self.phase else { return Ok(()) };
        let selector = selector(&self.format, &self.options, &self.open);
        let caught_up = self.view.read(|_, state| watch.caught_up(&state.core, state.last(), &selector));
        caught_up.map_err(|error| match error {
            CatchUpError::Evicted => WatchError::Evicted,
            CatchUpError::Uncertain => WatchError::Uncertain,
        })
    }

    /// Takes what follows, once the connection has all that was there before. Returns false if nothing does yet: the events of
    /// [`Self::catch_up`] come next, or [`Self::changed`] waits.
    ///
    /// # Errors
    /// The watch ends.
    pub fn advance(&mut self) -> Result<bool, WatchError> {
        let position = self.begun().map_or(NOT_YET, ViewWatch::position);
        self.open.at(position);
        let advanced = self.step();
        if !self.view.counts(&self.open) {
            self.open = self.view.open_watch(&self.options.selector, self.options.close.clone());
            self.open.at(position);
            self.ended = Box::pin(ended(self.view.view()));
        }
        advanced
    }

    fn step(&mut self) -> Result<bool, WatchError> {
        // One that has begun has its position in the history.
        if self.begun().is_none() && self.view.read(|_, state| state.restarts) != self.restarts {
            return Err(WatchError::OtherHistory);
        }
        match &mut self.phase {
            Phase::NotOlderThan(version) => {
                let reached = self.view.has_reached(*version);
                if reached {
                    let begin = |view: &View, state: &mut ViewState| {
                        (ViewWatch::all(&state.core), view.snapshot().format.clone())
                    };
                    let (watch, format) = self.view.read(begin);
                    (self.phase, self.format) = (Phase::Begun(watch), format);
                }
                Ok(reached)
            }
            Phase::After(version) => {
                let version = *version;
                Ok(self.begin_after(version))
            }
            Phase::Uncertain => Err(WatchError::Uncertain),
            Phase::Begun(watch) => {
                let selector = selector(&self.format, &self.options, &self.open);
                let view = &mut self.view;
                let events = |position, limit| {
                    view.read(|_, state| Ok((state.core.events_from(position, limit)?, state.last())))
                };
                let mut next = Vec::new();
                let advanced = watch.step(events, BATCH, &selector, &mut next);
                let advanced = advanced.map_err(|_| {
                    self.view.counters().slow.inc();
                    WatchError::TooSlow
                })?;
                self.frames.extend(next);
                if !advanced && self.bookmark_due && !watch.is_catching_up() {
                    self.bookmark();
                    return Ok(true);
                }
                Ok(advanced)
            }
        }
    }

    /// Begins after a version. Returns false if the view has not reached it.
    fn begin_after(&mut self, version: u64) -> bool {
        let (options, open) = (&self.options, &self.open);
        let (begin, format) = self.view.read(|view, state| {
            let format = view.snapshot().format.clone();
            let last = if options.is_in_step { state.last() } else { u64::MAX };
            (ViewWatch::after(&state.core, version, last, &selector(&format, options, open)), format)
        });
        self.format = format;
        self.phase = match begin {
            Begin::Ahead => {
                self.view.store.want(version);
                return false;
            }
            Begin::Watch(watch) | Begin::Below(watch) => Phase::Begun(watch),
            Begin::Uncertain => Phase::Uncertain,
        };
        true
    }

    fn begun(&self) -> Option<&ViewWatch<ViewObject>> {
        match &self.phase {
            Phase::Begun(watch) => Some(watch),
            Phase::NotOlderThan(_) | Phase::After(_) | Phase::Uncertain => None,
        }
    }

    /// Waits for what [`Self::advance`] has not taken. Returns false if nothing follows. Cancel safe.
    pub async fn changed(&mut self) -> bool {
        tokio::select! {
            is_open = self.view.changed() => is_open,
            () = &mut self.ended => false,
        }
    }

    /// Waits until the view has taken another chain than this one, or nothing follows from it. Cancel safe.
    pub async fn takes_other_chain(&mut self, chain: ChainVersion) {
        let is_other = |view: &mut ComponentView| view.snapshot().chain.unwrap_or(ChainVersion::UNFILTERED) != chain;
        tokio::select! {
            _ = self.view.wait_for(|view| is_other(view).then_some(())) => {}
            () = &mut self.ended => {}
        }
    }

    /// Sends a BOOKMARK as soon as the client lacks nothing.
    pub fn request_bookmark(&mut self) {
        self.bookmark_due = true;
    }

    /// Sends a BOOKMARK now, unless the client lacks something.
    pub fn bookmark(&mut self) {
        self.bookmark_due = false;
        if let Phase::Begun(watch) = &self.phase {
            let version = self.view.read(|_, state| watch.bookmark(&state.core));
            self.frames.extend(version.map(Frame::Bookmark));
        }
    }

    /// Returns the next event as the client gets it; `None` if [`Self::advance`] has taken no more.
    ///
    /// # Errors
    /// The watch ends.
    pub fn next_event(&mut self) -> Result<Option<Bytes>, WatchError> {
        while let Some(frame) = self.frames.pop_front() {
            if let Some(event) = self.encoded(frame).inspect_err(|_| self.frames.clear())? {
                self.view.counters().sent.inc();
                return Ok(Some(event));
            }
        }
        Ok(None)
    }

    /// Encodes what the client gets of a frame.
    fn encoded(&mut self, frame: Frame<ViewObject>) -> Result<Option<Bytes>, WatchError> {
        let parameters = &self.options.parameters;
        let is_marked = parameters.send_initial_events == Some(true);
        let encoded = match frame {
            Frame::Added { object, event } => self.event(EventType::Added, &object, None, event.as_deref()),
            Frame::Modified { object, is_again: true, event } if self.options.replaces => {
                let before = event.as_ref().and_then(|event| event.old.clone());
                let before = before.unwrap_or_else(|| object.clone());
                let deleted = self.event(EventType::Deleted, &before, None, event.as_deref());
                self.frames.push_front(Frame::Added { object, event });
                deleted
            }
            Frame::Modified { object, event, .. } => self.event(EventType::Modified, &object, None, event.as_deref()),
            Frame::Deleted { object, event, version } => {
                self.event(EventType::Deleted, &object, version, event.as_deref())
            }
            Frame::Bookmark(version) if parameters.allow_watch_bookmarks => self.bookmark_of(version, false),
            Frame::InitialEnd(version) if parameters.allow_watch_bookmarks && is_marked => {
                self.bookmark_of(version, true)
            }
            Frame::Bookmark(_) | Frame::InitialEnd(_) => return Ok(None),
            Frame::Failed(object) => {
                let failure = object.failure().filter(|_| self.still_fails(&object));
                return failure.map_or(Ok(None), |failure| Err(WatchError::Filter(failure.clone())));
            }
            Frame::Uncertain => return Err(WatchError::Uncertain),
        };
        encoded.map(Some).map_err(WatchError::Invalid)
    }

    /// Whether there is no verdict yet on an object. If there is one by now, an event that follows shows it. A client that retries
    /// from before the failure must get there.
    fn still_fails(&mut self, object: &ViewObject) -> bool {
        let snapshot = self.view.snapshot();
        snapshot.objects.get(&object.source.key).is_some_and(|object| object.failure().is_some())
    }

    /// Encodes an event. What no other watch shares counts as used memory until it is sent.
    fn event(
        &self,
        event_type: EventType,
        object: &ViewObject,
        version: Option<u64>,
        event: Option<&ViewEvent>,
    ) -> Result<Bytes, Error> {
        let MediaType { encoding, transform } = self.options.media_type;
        let of = EncodedAs { event_type, object, version, event };
        let encoded = encode(of, &self.format, encoding, transform)?;
        Ok(if of.is_shared(transform) { encoded } else { self.view.counted(encoded) })
    }

    /// Encodes a BOOKMARK. `initial`: it marks the end of the initial state.
    fn bookmark_of(&self, version: u64, initial: bool) -> Result<Bytes, Error> {
        let type_meta = match self.options.media_type.transform {
            Transform::Metadata(version) => partial(version),
            Transform::None | Transform::Table(..) => TypeMeta::clone(&self.format.type_meta),
        };
        bookmark(&type_meta, version, initial, self.options.media_type.encoding)
    }
}

/// What a watch selects.
fn selector<'a>(format: &'a ObjectFormat, options: &'a WatchOptions, open: &OpenWatch) -> WatchSelector<'a> {
    WatchSelector { format, selector: &options.selector, index: open.selector }
}

/// Resolves when nothing follows from a view: it is closed, or it is private, and the API server refuses what it shows. The client
/// learns why from its next watch.
fn ended(view: &View) -> impl Future<Output = ()> + Send + use<> {
    let closed = view.closed().clone();
    let private = view.is_private().then(|| view.reflector_state());
    let refused = async move {
        let is_final = |error: &ReflectorError| error.needs_operator_action();
        match private {
            Some(mut state) => {
                drop(state.wait_for(|state| state.error.as_ref().is_some_and(is_final)).await);
            }
            None => std::future::pending().await,
        }
    };
    async move {
        tokio::select! {
            () = closed.cancelled_owned() => {}
            () = refused => {}
        }
    }
}

impl std::fmt::Debug for ComponentWatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ComponentWatch").field("view", &self.view).finish_non_exhaustive()
    }
}
