//! What a watch from a view sends: the client's part of an event, an object, or a BOOKMARK.

use std::sync::Arc;

use bytes::Bytes;
use weir_document::json::EventType;
use weir_document::{Error, TypeMeta};
use weir_kube::Transform;

use super::bookmark::bookmark;
use super::watch::CachedWatch;
use crate::codec::object::partial;
use crate::config::ResendMode;
use crate::proxy::respond::StatusError;
use crate::view::{Cause, LackingObject, ViewEvent, ViewObject, frame};

impl CachedWatch {
    /// Sends an object of a snapshot, if it is selected. The deletion of a hidden one carries the unfiltered object: what
    /// the client was shown of it is not known.
    pub(super) fn object(&mut self, event_type: EventType, object: &ViewObject) -> Result<(), StatusError> {
        if !self.selects(object) {
            return Ok(());
        }
        let bytes = match (object.shown(), event_type, object.failure()) {
            (Some(bytes), ..) => bytes.clone(),
            (None, EventType::Deleted, _) => object.source.bytes.clone(),
            (None, _, Some(failure)) => return Err(StatusError::Filter(failure.clone())),
            (None, _, None) => return Ok(()),
        };
        let media_type = self.read.media_type;
        let encoded = frame(event_type, &self.format, bytes, media_type.encoding, media_type.transform);
        let encoded = self.view.counted(encoded.map_err(invalid)?);
        self.send(encoded);
        Ok(())
    }

    /// Sends the latest state of objects that the client may hold as another chain has shown them.
    pub(super) fn catch_up(&mut self, objects: &[LackingObject]) -> Result<(), StatusError> {
        for LackingObject { before, latest, changed } in objects {
            let shows = |object: &&Arc<ViewObject>| object.shown().is_some() && self.selects(object);
            let new = latest.new.as_ref();
            if new.filter(shows).is_some() {
                // Whether the client holds this version of the object is not known.
                self.resend(latest)?;
            } else if let Some(hidden) = new.filter(|_| *changed) {
                // Its version is not above the client's: the client may hold it, and no earlier state of it.
                self.object(EventType::Deleted, hidden)?;
            } else if latest.old.as_ref().filter(shows).is_some() {
                self.encode(latest, EventType::Deleted)?;
            } else if let Some(before) = before.as_ref().filter(shows) {
                self.object(EventType::Deleted, before)?;
            } else {
                continue;
            }
            self.bookmark_due = true;
        }
        Ok(())
    }

    /// Sends an event of the history as far as it concerns the client.
    pub(super) fn event(&mut self, event: &ViewEvent) -> Result<(), StatusError> {
        let (selects_old, selects_new) = event.selected(&self.format, &self.read.selector, self.open.selector);
        if let Some(failure) = event.new.as_ref().and_then(|new| new.failure())
            && selects_new
            && self.still_fails(event)
        {
            return Err(StatusError::Filter(failure.clone()));
        }
        let shown = |object: &Option<Arc<ViewObject>>| object.as_ref().is_some_and(|object| object.shown().is_some());
        let event_type = match (selects_old && shown(&event.old), selects_new && shown(&event.new)) {
            (false, true) => Some(EventType::Added),
            (true, true) => Some(EventType::Modified),
            (true, false) => Some(EventType::Deleted),
            (false, false) => None,
        };
        self.version = self.version.max(event.version);
        if let Some(event_type) = event_type {
            match event_type {
                EventType::Modified if event.keeps_version() => self.resend(event)?,
                _ => self.encode(event, event_type)?,
            }
            self.bookmark_due |= event.cause != Cause::Upstream;
        }
        Ok(())
    }

    /// Whether there is no verdict yet on the object of an event. If there is one by now, an event that follows shows it. A client
    /// that retries from before the failure must get there.
    fn still_fails(&self, event: &ViewEvent) -> bool {
        let snapshot = self.view.snapshot();
        let object = event.key().and_then(|key| snapshot.objects.get(key));
        object.is_some_and(|object| object.failure().is_some())
    }

    /// The events that replace an object by its state at the same resourceVersion.
    pub(super) fn resent(&self) -> &'static [EventType] {
        match self.resend {
            ResendMode::Modified => &[EventType::Modified],
            ResendMode::Replace => &[EventType::Deleted, EventType::Added],
        }
    }

    fn resend(&mut self, event: &ViewEvent) -> Result<(), StatusError> {
        self.resent().iter().try_for_each(|event_type| self.encode(event, *event_type))
    }

    fn encode(&mut self, event: &ViewEvent, event_type: EventType) -> Result<(), StatusError> {
        let media_type = self.read.media_type;
        let encoded = event.encode(event_type, &self.format, media_type.encoding, media_type.transform);
        self.send(encoded.map_err(invalid)?);
        Ok(())
    }

    fn send(&mut self, encoded: Bytes) {
        self.view.counters().sent.inc();
        self.ready.push_back(encoded);
    }

    fn selects(&self, object: &ViewObject) -> bool {
        self.read.selector.matches(&self.format, &object.source)
    }

    /// Sends a BOOKMARK of the client's version, if the client takes them. `initial`: it marks the end of the initial state.
    pub(super) fn bookmark(&mut self, initial: bool) -> Result<(), StatusError> {
        self.bookmark_due = false;
        if self.read.takes_bookmarks() {
            let type_meta = match self.read.media_type.transform {
                Transform::Metadata(version) => partial(version),
                _ => TypeMeta::clone(&self.format.type_meta),
            };
            let encoded = bookmark(&type_meta, self.version, initial, self.read.media_type.encoding);
            self.send(encoded.map_err(invalid)?);
        }
        Ok(())
    }
}

fn invalid(error: Error) -> StatusError {
    StatusError::InvalidResponse(error.to_string())
}
