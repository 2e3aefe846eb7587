//! What a watch from a view sends: the client's form of an event, or a BOOKMARK.

use std::sync::Arc;

use weir_document::json::EventType;
use weir_document::{Error, TypeMeta};
use weir_kube::Transform;
use weir_view::machine::{Event, Frame};

use super::bookmark::bookmark;
use super::watch::{CachedWatch, Phase};
use crate::config::ResendMode;
use crate::serve::respond::StatusError;
use weir_view::{EncodedAs, ViewObject, encode};
use weir_wire::partial;

type SharedEvent = Option<Arc<Event<ViewObject>>>;

impl CachedWatch {
    /// Encodes what the client gets next.
    pub(super) fn frame(&mut self, frame: Frame<ViewObject>) -> Result<(), StatusError> {
        match frame {
            Frame::Added { object, event } => self.send(EventType::Added, &object, None, &event),
            Frame::Modified { object, is_again, event } => self.modified(&object, is_again, &event),
            Frame::Deleted { object, event, version } => self.send(EventType::Deleted, &object, version, &event),
            Frame::Bookmark(version) => self.send_bookmark(version, false),
            Frame::InitialEnd(version) if self.read.is_marked_watch_list() => self.send_bookmark(version, true),
            Frame::InitialEnd(_) => Ok(()),
            Frame::Failed(object) => match self.still_fails(&object) {
                true => object.failure().map_or(Ok(()), |failure| Err(StatusError::Filter(failure.clone()))),
                false => Ok(()),
            },
        }
    }

    /// An object at a resourceVersion that the client may hold replaces what it holds, if its component asks for that.
    fn modified(&mut self, object: &Arc<ViewObject>, is_again: bool, event: &SharedEvent) -> Result<(), StatusError> {
        if self.resend == ResendMode::Replace && is_again {
            let before = event.as_ref().and_then(|event| event.old.clone());
            self.send(EventType::Deleted, before.as_ref().unwrap_or(object), None, event)?;
            return self.send(EventType::Added, object, None, event);
        }
        self.send(EventType::Modified, object, None, event)
    }

    /// Whether there is no verdict yet on an object. If there is one by now, an event that follows shows it. A client that retries
    /// from before the failure must get there.
    fn still_fails(&mut self, object: &ViewObject) -> bool {
        let snapshot = self.view.snapshot();
        snapshot.objects.get(&object.source.key).is_some_and(|object| object.failure().is_some())
    }

    fn send(
        &mut self,
        event_type: EventType,
        object: &ViewObject,
        version: Option<u64>,
        event: &SharedEvent,
    ) -> Result<(), StatusError> {
        let (encoding, transform) = (self.read.media_type.encoding, self.read.media_type.transform);
        let of = EncodedAs { event_type, object, version, event: event.as_deref() };
        let encoded = encode(of, &self.format, encoding, transform).map_err(invalid)?;
        let is_shared = event.is_some() && transform == Transform::None;
        self.view.counters().sent.inc();
        self.ready.push_back(if is_shared { encoded } else { self.view.counted(encoded) });
        Ok(())
    }

    /// Sends a BOOKMARK as soon as the client lacks nothing.
    pub(super) fn bookmark(&mut self) -> Result<(), StatusError> {
        self.bookmark_due = false;
        match &self.phase {
            Phase::View(watch) | Phase::Older { watch, .. } => match self.view.bookmark(watch) {
                Some(version) => self.send_bookmark(version, false),
                None => Ok(()),
            },
            Phase::NotOlderThan(_) | Phase::Ahead | Phase::Uncertain => Ok(()),
        }
    }

    /// Sends a BOOKMARK, if the client takes them. `initial`: it marks the end of the initial state.
    fn send_bookmark(&mut self, version: u64, initial: bool) -> Result<(), StatusError> {
        if self.read.takes_bookmarks() {
            let type_meta = match self.read.media_type.transform {
                Transform::Metadata(version) => partial(version),
                _ => TypeMeta::clone(&self.format.type_meta),
            };
            let encoded = bookmark(&type_meta, version, initial, self.read.media_type.encoding).map_err(invalid)?;
            self.view.counters().sent.inc();
            self.ready.push_back(encoded);
        }
        Ok(())
    }
}

fn invalid(error: Error) -> StatusError {
    StatusError::InvalidResponse(error.to_string())
}
