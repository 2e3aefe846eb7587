//! Watch streams: a sequence of JSON documents `{"type":…,"object":{…}}`, with or without newlines.
//!
//! Memory: one frame and one chunk. API servers write `{"type":"…","object":{…}}` without white space. The splitter
//! scans such a frame once, and keeps the structural marks of its object. It scans a frame in any other form twice, for
//! its end and for its members.

use super::{
    marked::Marked,
    object::Object,
    scan::{Marks, Reached, Skip},
    splice::Splices,
    string, table, token,
};
use crate::{
    Error, TypeMeta,
    marks::ItemMarks,
    split::{Pending, SplitError},
};
use bytes::Bytes;
use std::{fmt, ops::Range};

/// The default size limit of a frame.
const LIMIT: usize = 64 << 20;

/// The type of a watch event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EventType {
    /// The object was added.
    Added,
    /// The object was modified.
    Modified,
    /// The object was deleted. The event contains its last state.
    Deleted,
    /// A bookmark. Only `metadata.resourceVersion` and the annotations of its object are meaningful.
    Bookmark,
    /// The object is a Status, and the watch ends.
    Error,
}

/// One event of a watch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// The bytes of the document, including the newline if it has arrived.
    pub bytes: Bytes,
    /// The event's `type`.
    pub event: EventType,
    /// The span of the event's `object`.
    pub object: Range<usize>,
    /// The structural marks of the object.
    pub(crate) marks: ItemMarks,
}

/// Splits a watch stream. [`push`](FrameSplitter::push) each chunk, then call [`next`](FrameSplitter::next) until it
/// returns none. At the end, call [`finish`](FrameSplitter::finish) and drain it once more. It is unusable after an
/// error.
///
/// ```
/// use bytes::Bytes;
/// use weir_document::json::{EventType, FrameSplitter};
///
/// let mut splitter = FrameSplitter::new();
/// let mut names = Vec::new();
/// for chunk in [r#"{"type":"ADDED","object":{"metadata":{"na"#, r#"me":"a"}}}{"type":"DEL"#, r#"ETED","object":{}}"#] {
///     splitter.push(Bytes::from(chunk));
///     while let Some(frame) = splitter.next()? {
///         names.push((frame.event, frame.document().name()?.into_owned()));
///     }
/// }
/// assert_eq!(names, [(EventType::Added, "a".to_owned()), (EventType::Deleted, String::new())]);
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct FrameSplitter {
    pending: Pending,
    state: State,
    /// The pending bytes are scanned up to this position.
    at: usize,
    /// The structural marks of the object being scanned.
    marks: Marks,
    limit: usize,
    ended: bool,
}

/// What is being scanned.
#[derive(Debug)]
enum State {
    Between,
    /// The object of a frame in the API server's form, which begins at `start`, or the rest of the frame after its
    /// `end`.
    Object {
        event: EventType,
        start: usize,
        skip: Skip,
        end: Option<usize>,
    },
    /// A frame in any other form.
    Frame(Skip),
}

/// The start of a frame.
enum Beginning {
    /// The API server's form. The object begins at this position.
    Usual(EventType, usize),
    /// Too few bytes to decide.
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
    /// Returns the value of `type`.
    pub fn as_str(self) -> &'static str {
        match self {
            EventType::Added => "ADDED",
            EventType::Modified => "MODIFIED",
            EventType::Deleted => "DELETED",
            EventType::Bookmark => "BOOKMARK",
            EventType::Error => "ERROR",
        }
    }

    /// Parses the value of `type`. Returns none for an unknown one.
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
    /// Returns the object's bytes.
    pub fn object_bytes(&self) -> Bytes {
        let end = self.object.end.min(self.bytes.len());
        self.bytes.slice(self.object.start.min(end)..end)
    }

    /// Returns the bytes of the frame with a newline at the end.
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
    /// Creates a splitter for frames of up to 64 MiB.
    pub fn new() -> Self {
        FrameSplitter::with_limit(LIMIT)
    }

    /// Creates a splitter that refuses frames larger than this limit.
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

    /// Adds the next bytes of the stream.
    pub fn push(&mut self, chunk: impl Into<Bytes>) {
        self.pending.push(chunk.into());
    }

    /// Marks the end of the stream. A partial frame becomes an error.
    pub fn finish(&mut self) {
        self.ended = true;
    }

    /// Returns the next frame, or none if it needs more bytes.
    #[expect(
        clippy::should_implement_trait,
        reason = "not an iterator: none can mean that more bytes are needed, and next can fail"
    )]
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

    /// Returns the next frame if all of it is visible.
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
                // Scans the frame again in the general form, whose errors refer to the frame.
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
                let marks = ItemMarks::new(self.marks.cut(usize::MAX));
                Ok(Some(Frame { bytes: self.pending.take(length), event, object, marks }))
            }
            _ => self.frame(length).map(Some),
        }
    }

    /// Parses a frame in any form.
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
            return Err(self.pending.malformed(object.value(), "the object of the event is not a JSON object"));
        }
        let object = object.value()..object.value_end();
        Ok(Frame { bytes: self.pending.take(length), event, object, marks: ItemMarks::default() })
    }
}

/// Encodes a watch event as a line.
pub fn event(event: EventType, object: &[u8]) -> Bytes {
    let kind = event.as_str().as_bytes();
    [b"{\"type\":\"", kind, b"\",\"object\":", object, b"}\n"].concat().into()
}

/// Inserts apiVersion and kind at the front of the object if they are missing or null, because watch events need them.
/// Returns an object with both unchanged.
pub(crate) fn with_type_meta(object: &Bytes, type_meta: &TypeMeta) -> Result<Bytes, Error> {
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
    if splices.is_empty() { Ok(bytes.clone()) } else { splices.apply(bytes, crate::MAX_OBJECT) }
}

#[cfg(test)]
mod tests;
