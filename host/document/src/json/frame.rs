//! Watch streams: JSON documents `{"type":…,"object":…}` one after another, with or without newlines.
//!
//! Memory: one frame and one chunk. As API servers write it, `{"type":"…","object":{…}}` without a blank, a frame is scanned
//! once, and what is seen of its object goes with it; written otherwise, once for its end and once for its members.

use super::{
    Seen,
    marked::Marked,
    object::Object,
    scan::{Marks, Reached, Skip},
    splice::Splices,
    string, table, token,
};
use crate::{
    Document, Error, TypeMeta,
    split::{Pending, SplitError},
};
use bytes::Bytes;
use std::{fmt, ops::Range};

/// The largest frame unless told otherwise.
const LIMIT: usize = 64 << 20;

/// What a watch event tells about its object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EventType {
    /// The object is new to this watch.
    Added,
    /// The object has changed.
    Modified,
    /// The object is gone; it is given as it was last.
    Deleted,
    /// Only the object's `metadata.resourceVersion` (and annotations) mean something.
    Bookmark,
    /// The object is a Status; the watch ends.
    Error,
}

/// One event of a watch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// The document as it came, with the newline if it came along.
    pub bytes: Bytes,
    /// Its `type`.
    pub event: EventType,
    /// Where its `object` is in the bytes.
    pub object: Range<usize>,
    /// What was seen of the object.
    seen: Seen,
}

/// Splits a watch stream: [`push`](FrameSplitter::push) what has arrived, then [`next`](FrameSplitter::next) until it
/// returns none; [`finish`](FrameSplitter::finish) at the end and drain once more. After an error it is of no more use.
#[derive(Debug)]
pub struct FrameSplitter {
    pending: Pending,
    state: State,
    /// How far the pending bytes are scanned.
    at: usize,
    /// What was seen of the object that is being stepped over.
    marks: Marks,
    limit: usize,
    ended: bool,
}

/// What is being stepped over.
#[derive(Debug)]
enum State {
    Between,
    /// The object of a frame as API servers write it, from `start` on, or what comes after its `end`.
    Object {
        event: EventType,
        start: usize,
        skip: Skip,
        end: Option<usize>,
    },
    /// A frame written in any way.
    Frame(Skip),
}

/// How a frame begins.
enum Beginning {
    /// As API servers write it: the object begins at this position.
    Usual(EventType, usize),
    /// Perhaps so: more has to be there.
    Short,
    Other,
}

const TYPES: [EventType; 5] =
    [EventType::Modified, EventType::Added, EventType::Deleted, EventType::Bookmark, EventType::Error];

impl Beginning {
    fn of(bytes: &[u8]) -> Beginning {
        let mut short = false;
        for event in TYPES {
            let parts: [&[u8]; 3] = [b"{\"type\":\"", event.as_str().as_bytes(), b"\",\"object\":{"];
            let mut rest = bytes;
            let whole = parts.into_iter().all(|part| match rest.strip_prefix(part) {
                Some(after) => {
                    rest = after;
                    true
                }
                None => {
                    short |= part.starts_with(rest);
                    false
                }
            });
            if whole {
                return Beginning::Usual(event, bytes.len() - rest.len() - 1);
            }
        }
        if short { Beginning::Short } else { Beginning::Other }
    }
}

impl EventType {
    /// As it stands in `type`.
    pub fn as_str(self) -> &'static str {
        match self {
            EventType::Added => "ADDED",
            EventType::Modified => "MODIFIED",
            EventType::Deleted => "DELETED",
            EventType::Bookmark => "BOOKMARK",
            EventType::Error => "ERROR",
        }
    }

    /// From `type`; none for what Kubernetes does not send.
    pub fn parse(text: &str) -> Option<EventType> {
        TYPES.into_iter().find(|event| event.as_str() == text)
    }
}

impl fmt::Display for EventType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Frame {
    /// The object's bytes.
    pub fn object_bytes(&self) -> Bytes {
        let end = self.object.end.min(self.bytes.len());
        self.bytes.slice(self.object.start.min(end)..end)
    }

    /// The object as a document, which need not look again at what the split has seen.
    pub fn document(&self) -> Document {
        Document::seen(self.object_bytes(), self.seen.clone())
    }

    /// The frame as a line: the bytes as they came, with a newline after them.
    pub fn line(&self) -> Bytes {
        if self.bytes.ends_with(b"\n") {
            return self.bytes.clone();
        }
        [&self.bytes, b"\n".as_slice()].concat().into()
    }
}

impl Default for FrameSplitter {
    fn default() -> Self {
        FrameSplitter::new()
    }
}

impl FrameSplitter {
    /// A splitter that takes frames of up to 64 MiB.
    pub fn new() -> Self {
        FrameSplitter::with_limit(LIMIT)
    }

    /// A splitter that refuses frames larger than this.
    pub fn with_limit(limit: usize) -> Self {
        FrameSplitter {
            pending: Pending::default(),
            state: State::Between,
            at: 0,
            marks: Marks::default(),
            limit,
            ended: false,
        }
    }

    /// The next bytes of the stream.
    pub fn push(&mut self, chunk: impl Into<Bytes>) {
        self.pending.push(chunk.into());
    }

    /// The stream has ended. Half a frame becomes an error.
    pub fn finish(&mut self) {
        self.ended = true;
    }

    /// The next frame, or none until more is pushed.
    #[expect(clippy::should_implement_trait, reason = "not an iterator: none means not yet, and it can fail")]
    pub fn next(&mut self) -> Result<Option<Frame>, SplitError> {
        loop {
            if let Some(frame) = self.whole()? {
                return Ok(Some(frame));
            }
            if !self.pending.more() {
                break;
            }
        }
        if self.ended && !self.pending.bytes().is_empty() { Err(SplitError::Truncated) } else { Ok(None) }
    }

    /// The next frame, if all of it can be looked at.
    fn whole(&mut self) -> Result<Option<Frame>, SplitError> {
        if let State::Between = self.state {
            let blank = token::space(self.pending.bytes(), 0);
            self.pending.take(blank);
            let bytes = self.pending.bytes();
            if bytes.first().is_some_and(|first| *first != b'{') {
                return Err(self.pending.malformed(0, "expected a watch event"));
            }
            (self.state, self.at) = match Beginning::of(bytes) {
                Beginning::Usual(event, start) => {
                    self.marks.blocks.clear();
                    (State::Object { event, start, skip: Skip::new(), end: None }, start)
                }
                Beginning::Short => return Ok(None),
                Beginning::Other => (State::Frame(Skip::new()), 0),
            };
        }
        if let State::Object { skip, end: end @ None, .. } = &mut self.state {
            let bytes = self.pending.bytes();
            match skip.run(bytes, self.at, Some(&mut self.marks)) {
                Ok(Reached::End(found)) => (*end, self.at) = (Some(found), found),
                Ok(Reached::More(at)) => self.at = at,
                // Said of the frame.
                Err(_) => (self.state, self.at) = (State::Frame(Skip::new()), 0),
            }
        }
        if let State::Object { end: Some(end), .. } = self.state
            && self.pending.bytes().get(end).is_some_and(|byte| *byte != b'}')
        {
            (self.state, self.at) = (State::Frame(Skip::new()), 0);
        }
        let bytes = self.pending.bytes();
        let end = match &mut self.state {
            State::Frame(skip) => match skip.run(bytes, self.at, None).map_err(|error| self.pending.placed(error))? {
                Reached::End(end) => Some(end),
                Reached::More(at) => {
                    self.at = at;
                    None
                }
            },
            State::Object { end: Some(end), .. } if *end < bytes.len() => Some(*end + 1),
            State::Object { .. } | State::Between => None,
        };
        if end.unwrap_or(bytes.len()) > self.limit {
            return Err(SplitError::TooLarge { limit: self.limit });
        }
        let Some(end) = end else { return Ok(None) };
        let length = end + usize::from(bytes.get(end) == Some(&b'\n'));
        match std::mem::replace(&mut self.state, State::Between) {
            State::Object { event, start, .. } => {
                let object = start..end - 1;
                self.marks.end_text(0, object.len());
                let seen = Seen::new(self.marks.cut(usize::MAX));
                Ok(Some(Frame { bytes: self.pending.take(length), event, object, seen }))
            }
            _ => self.frame(length).map(Some),
        }
    }

    /// A frame written in any way.
    fn frame(&mut self, length: usize) -> Result<Frame, SplitError> {
        let bytes = self.pending.bytes();
        let marks = Marks::of(bytes.get(..length).unwrap_or_default());
        let slots = table::slots(Marked::new(bytes, &marks), 0).map_err(|error| self.pending.placed(error))?;
        let find = |key: &'static str| match table::find(slots.iter().copied(), bytes, key) {
            Ok(found) => found.map(|(_, slot)| slot).ok_or(SplitError::Missing { key }),
            Err(Error::DuplicateKey { .. }) => Err(SplitError::Repeated { key }),
            Err(error) => Err(self.pending.placed(error)),
        };
        let (kind, object) = (find("type")?.value(), find("object")?);
        let text = token::quoted(bytes, kind)
            .and_then(|quoted| string::text(bytes, quoted))
            .map_err(|error| self.pending.placed(error))?;
        let event = EventType::parse(&text).ok_or_else(|| self.pending.malformed(kind, "an unknown type of event"))?;
        if bytes.get(object.value()) != Some(&b'{') {
            return Err(self.pending.malformed(object.value(), "the object of an event is none"));
        }
        let object = object.value()..object.value_end();
        Ok(Frame { bytes: self.pending.take(length), event, object, seen: Seen::default() })
    }
}

/// A watch event as a line.
pub fn event(event: EventType, object: &[u8]) -> Bytes {
    let kind = event.as_str().as_bytes();
    [b"{\"type\":\"", kind, b"\",\"object\":", object, b"}\n"].concat().into()
}

/// The object with apiVersion and kind, which watch events must carry: what is missing or null is written in, at the
/// front. An object that has both is returned as it is.
pub fn with_type_meta(object: &Bytes, type_meta: &TypeMeta) -> Result<Bytes, Error> {
    let object = Object::new(object.clone());
    let bytes = object.bytes();
    let index = object.index()?;
    let mut splices = Splices::default();
    let mut front = Vec::new();
    let mut nulls = Vec::new();
    for (name, text) in [("kind", &type_meta.kind), ("apiVersion", &type_meta.api_version)] {
        let mut written = Vec::new();
        string::write_string(text, &mut written);
        match table::find(index.top(), bytes, name)? {
            None => {
                string::write_string(name, &mut front);
                front.push(b':');
                front.extend_from_slice(&written);
                front.push(b',');
            }
            Some((_, slot)) if bytes.get(slot.value()) == Some(&b'n') => {
                nulls.push((slot.value()..slot.value_end(), written));
            }
            Some(_) => {}
        }
    }
    if !front.is_empty() {
        if index.top().len() == 0 {
            front.pop();
        }
        let start = object.start() + 1;
        let text = splices.text(front);
        splices.put(start..start, text);
    }
    nulls.sort_unstable_by_key(|(at, _)| at.start);
    for (at, written) in nulls {
        let text = splices.text(written);
        splices.put(at, text);
    }
    if splices.is_empty() { Ok(bytes.clone()) } else { splices.apply(bytes) }
}

#[cfg(test)]
mod tests;
