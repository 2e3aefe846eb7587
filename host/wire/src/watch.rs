//! The watch codec, for JSON lines and protobuf frames: [`WatchDecoder`] cuts the stream into events, and
//! [`WatchEncoder`] writes them in the form that the client requested.
//!
//! Memory: the decoder holds one frame and the bytes pushed last, the encoder the columns of a Table.

use bytes::Bytes;
use weir_document::json::{self, EventType};
use weir_document::{Document, protobuf};
use weir_kube::{Encoding, Transform};

use super::object::EncodedObject;
use super::table::{TableColumns, columns_of};
use super::{CodecError, ObjectType};

/// Cuts the bytes of a watch into events.
#[derive(Debug)]
pub struct WatchDecoder {
    frames: WatchFrames,
    transform: Transform,
    object_type: ObjectType,
}

#[derive(Debug)]
enum WatchFrames {
    Json(json::FrameSplitter),
    Protobuf(protobuf::FrameSplitter),
}

/// One event.
#[derive(Debug)]
pub struct WatchEvent {
    /// ADDED, MODIFIED, DELETED, BOOKMARK or ERROR.
    pub event_type: EventType,
    /// The received bytes of the whole event.
    whole: Bytes,
    /// None for an ERROR, whose object is a Status, and for a BOOKMARK that passes unchanged.
    object: Option<EncodedObject>,
    /// The columns of its Table, if it names them.
    columns: Option<Bytes>,
}

impl WatchDecoder {
    /// Decodes a watch of objects of this type. An event larger than `limit` bytes is an error.
    pub fn new(encoding: Encoding, transform: Transform, object_type: ObjectType, limit: usize) -> Self {
        let frames = match encoding {
            Encoding::Json => WatchFrames::Json(json::FrameSplitter::with_limit(limit)),
            Encoding::Protobuf => WatchFrames::Protobuf(protobuf::FrameSplitter::with_limit(limit)),
        };
        Self { frames, transform, object_type }
    }

    /// Takes the next bytes of the stream.
    pub fn push(&mut self, bytes: Bytes) {
        match &mut self.frames {
            WatchFrames::Json(splitter) => splitter.push(bytes),
            WatchFrames::Protobuf(splitter) => splitter.push(bytes),
        }
    }

    /// Marks the end of the stream: no bytes follow.
    pub fn finish(&mut self) {
        match &mut self.frames {
            WatchFrames::Json(splitter) => splitter.finish(),
            WatchFrames::Protobuf(splitter) => splitter.finish(),
        }
    }

    /// Returns the next event; none until more bytes are pushed, or at the end.
    ///
    /// # Errors
    /// The bytes are not an event, the event exceeds the limit, or filters cannot read its object.
    pub fn next_event(&mut self) -> Result<Option<WatchEvent>, CodecError> {
        let (event_type, whole, object) = match &mut self.frames {
            WatchFrames::Json(splitter) => match splitter.next()? {
                Some(frame) if frame.event == EventType::Error => (frame.event, frame.line(), None),
                Some(frame) => (frame.event, frame.line(), EncodedObject::from_json(self.transform, frame.document())?),
                None => return Ok(None),
            },
            WatchFrames::Protobuf(splitter) => match splitter.next()? {
                Some(frame) if frame.event == EventType::Error => (frame.event, frame.bytes.clone(), None),
                Some(frame) => {
                    let object = EncodedObject::decode(Encoding::Protobuf, self.transform, frame.object_bytes())?;
                    (frame.event, frame.bytes.clone(), object)
                }
                None => return Ok(None),
            },
        };
        let columns = object.as_ref().and_then(EncodedObject::table).map_or(Ok(None), columns_of)?;
        let mut event = WatchEvent { event_type, whole, object, columns };
        if event.is_filtered() {
            let object = event.object.take().filter(EncodedObject::is_complete).ok_or(CodecError::MissingObject)?;
            event.object = Some(object.typed(&self.object_type)?);
        }
        Ok(Some(event))
    }
}

impl WatchEvent {
    /// The size of the received event in bytes.
    pub fn size(&self) -> usize {
        self.whole.len()
    }

    /// Whether filters run on the event: not on BOOKMARK and ERROR.
    pub fn is_filtered(&self) -> bool {
        matches!(self.event_type, EventType::Added | EventType::Modified | EventType::Deleted)
    }

    /// The object, if the event has one.
    pub fn document(&self) -> Option<&Document> {
        self.object.as_ref().map(EncodedObject::document)
    }
}

/// Writes events in their own encoding and in the form that the client requested.
#[derive(Debug)]
pub struct WatchEncoder {
    encoding: Encoding,
    transform: Transform,
    columns: TableColumns,
}

impl WatchEncoder {
    /// Starts a watch.
    pub fn new(encoding: Encoding, transform: Transform) -> Self {
        Self { encoding, transform, columns: TableColumns::default() }
    }

    /// The encoding of the events.
    pub fn encoding(&self) -> Encoding {
        self.encoding
    }

    /// Notes the columns of an event. Call it for each event, also if it is not sent: only the first one names the columns.
    pub fn note(&mut self, event: &WatchEvent) {
        self.columns.note(event.columns.as_ref());
    }

    /// Encodes an event as one of this type, with its object unchanged or as filters edited it.
    ///
    /// # Errors
    /// The object is malformed.
    pub fn encode(
        &mut self,
        event: &WatchEvent,
        event_type: EventType,
        edited: Option<&Bytes>,
    ) -> Result<Bytes, CodecError> {
        let Some(object) = &event.object else { return Ok(event.whole.clone()) };
        if edited.is_none() && event_type == event.event_type && self.transform == Transform::None {
            return Ok(event.whole.clone());
        }
        let encoded = self.columns.add_to(object.encode(edited, self.transform)?)?;
        match self.encoding {
            Encoding::Json => Ok(json::event(event_type, &encoded)),
            Encoding::Protobuf => Ok(protobuf::event(event_type, &encoded)?),
        }
    }
}
