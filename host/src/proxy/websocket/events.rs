//! Splits the body of a watch into its events: in JSON an event is a line, in protobuf it has its length in front.
//!
//! An event that arrives in one chunk is a slice of it. Memory: the chunk, and of an event that spans chunks what has arrived, at
//! most [`LARGEST`].

use bytes::{Buf as _, Bytes};
use http::HeaderMap;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use memchr::memchr;
use weir_kube::Encoding;

/// The largest event; as of a filtered watch.
const LARGEST: usize = 32 << 20;
/// The size of the length in front of an event.
const LENGTH: usize = 4;

/// How events follow each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Framing {
    /// A line of JSON each.
    Lines,
    /// Each after its length, in protobuf.
    Lengths,
}

/// An event is larger than [`LARGEST`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an event is larger than {} MiB", LARGEST >> 20)]
pub(super) struct TooLarge;

/// The events of a watch.
#[derive(Debug)]
pub(super) struct Events {
    framing: Framing,
    largest: usize,
    /// Has arrived, and is not split yet.
    chunk: Bytes,
    /// The event that began in an earlier chunk, with its length.
    begun: Vec<u8>,
}

impl Framing {
    /// Returns the framing of a response; `None` if its events cannot be found.
    pub(super) fn of(headers: &HeaderMap) -> Option<Self> {
        let text = |name| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let is_plain = matches!(text(CONTENT_ENCODING), "" | "identity");
        match Encoding::from_content_type(text(CONTENT_TYPE)).filter(|_| is_plain)? {
            Encoding::Json => Some(Self::Lines),
            Encoding::Protobuf => Some(Self::Lengths),
        }
    }
}

impl Events {
    /// Creates the events of a body that has not begun.
    pub(super) fn new(framing: Framing) -> Self {
        Self { framing, largest: LARGEST, chunk: Bytes::new(), begun: Vec::new() }
    }

    pub(super) fn framing(&self) -> Framing {
        self.framing
    }

    /// Takes the next chunk of the body, once [`Self::next`] has returned `None`.
    pub(super) fn push(&mut self, chunk: Bytes) {
        self.chunk = chunk;
    }

    /// Returns the next complete event. A line has its end, as a frame of kube-apiserver has; a frame of protobuf has no length.
    ///
    /// # Errors
    /// It is too large.
    pub(super) fn next(&mut self) -> Result<Option<Bytes>, TooLarge> {
        match self.framing {
            Framing::Lines => loop {
                match self.line()? {
                    Some(line) if line.trim_ascii().is_empty() => {}
                    line => return Ok(line),
                }
            },
            Framing::Lengths => self.frame(),
        }
    }

    fn line(&mut self) -> Result<Option<Bytes>, TooLarge> {
        let end = memchr(b'\n', &self.chunk);
        let taken = end.map_or(self.chunk.len(), |end| end + 1);
        if self.begun.len() + taken > self.largest {
            return Err(TooLarge);
        }
        let part = self.chunk.split_to(taken);
        if end.is_some() && self.begun.is_empty() {
            return Ok(Some(part));
        }
        self.begun.extend_from_slice(&part);
        Ok(end.map(|_| std::mem::take(&mut self.begun).into()))
    }

    fn frame(&mut self) -> Result<Option<Bytes>, TooLarge> {
        if self.begun.is_empty()
            && let Some(size) = self.size(&self.chunk)?
            && self.chunk.len() >= size
        {
            let mut frame = self.chunk.split_to(size);
            frame.advance(LENGTH);
            return Ok(Some(frame));
        }
        self.take(LENGTH);
        let Some(size) = self.size(&self.begun)? else { return Ok(None) };
        self.take(size);
        if self.begun.len() < size {
            return Ok(None);
        }
        let mut frame = Bytes::from(std::mem::take(&mut self.begun));
        frame.advance(LENGTH);
        Ok(Some(frame))
    }

    /// The size of a frame with its length, once that has arrived.
    fn size(&self, bytes: &[u8]) -> Result<Option<usize>, TooLarge> {
        let Some(length) = bytes.first_chunk::<LENGTH>() else { return Ok(None) };
        let length = usize::try_from(u32::from_be_bytes(*length)).unwrap_or(usize::MAX);
        if length > self.largest { Err(TooLarge) } else { Ok(Some(length + LENGTH)) }
    }

    /// Moves bytes of the chunk to the event that has begun, until it has `size` bytes.
    fn take(&mut self, size: usize) {
        let part = self.chunk.split_to(size.saturating_sub(self.begun.len()).min(self.chunk.len()));
        self.begun.extend_from_slice(&part);
    }

    /// Returns what is left at the end of the body: a last line without its end. Half a frame is none.
    pub(super) fn finish(&mut self) -> Option<Bytes> {
        let rest = Bytes::from(std::mem::take(&mut self.begun));
        (self.framing == Framing::Lines && !rest.trim_ascii().is_empty()).then_some(rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The events of a body that arrives in chunks of `step` bytes.
    fn split(framing: Framing, body: &[u8], step: usize) -> Vec<Bytes> {
        let mut events = Events::new(framing);
        let mut all = Vec::new();
        for chunk in body.chunks(step) {
            events.push(Bytes::copy_from_slice(chunk));
            while let Some(event) = events.next().unwrap() {
                all.push(event);
            }
        }
        all.extend(events.finish());
        all
    }

    #[test]
    fn a_line_is_an_event_in_any_chunks() {
        let body = b"{\"type\":1}\n\n{\"type\":\"two\"}\n \r\n{}";
        for step in 1..=body.len() {
            assert_eq!(split(Framing::Lines, body, step), ["{\"type\":1}\n", "{\"type\":\"two\"}\n", "{}"], "{step}");
        }
    }

    #[test]
    fn a_frame_is_an_event_without_its_length_in_any_chunks() {
        let expected: Vec<Bytes> = [3, 0, 300, 1].map(|length| vec![b'\n'; length].into()).into();
        let mut body = Vec::new();
        for event in &expected {
            body.extend(u32::try_from(event.len()).unwrap().to_be_bytes());
            body.extend_from_slice(event);
        }
        for step in 1..=body.len() {
            assert_eq!(split(Framing::Lengths, &body, step), expected, "{step}");
        }
        let half = body.len() - 1;
        assert_eq!(split(Framing::Lengths, &body[..half], 7), expected[..3], "half a frame is no event");
    }

    #[test]
    fn an_event_in_one_chunk_is_a_slice_of_it() {
        for (framing, body) in [(Framing::Lines, &b"{}\n{}\n"[..]), (Framing::Lengths, b"\0\0\0\x02{}\0\0\0\x01x")] {
            let chunk = Bytes::from_static(body);
            let mut events = Events::new(framing);
            events.push(chunk.clone());
            while let Some(event) = events.next().unwrap() {
                assert!(chunk.as_ptr_range().contains(&event.as_ptr()), "{framing:?}");
            }
        }
    }

    #[test]
    fn an_event_that_is_too_large_is_refused_before_it_has_arrived() {
        let mut lines = Events { largest: 8, ..Events::new(Framing::Lines) };
        lines.push(Bytes::from_static(b"1234567\n12345"));
        assert_eq!(lines.next().unwrap().unwrap(), "1234567\n");
        assert_eq!(lines.next(), Ok(None));
        lines.push(Bytes::from_static(b"6789"));
        assert_eq!(lines.next(), Err(TooLarge));
        let mut lengths = Events::new(Framing::Lengths);
        lengths.push(Bytes::from_static(b"\xff\xff\xff\xff"));
        assert_eq!(lengths.next(), Err(TooLarge));
    }

    #[test]
    fn events_are_found_in_json_and_protobuf_only() {
        let of = |pairs: &[(http::HeaderName, &'static str)]| {
            let pairs = pairs.iter().map(|(name, value)| (name.clone(), http::HeaderValue::from_static(value)));
            Framing::of(&pairs.collect())
        };
        assert_eq!(of(&[(CONTENT_TYPE, "application/json")]), Some(Framing::Lines));
        assert_eq!(of(&[(CONTENT_TYPE, "application/vnd.kubernetes.protobuf;stream=watch")]), Some(Framing::Lengths));
        assert_eq!(of(&[(CONTENT_TYPE, "application/cbor-seq")]), None);
        assert_eq!(of(&[(CONTENT_TYPE, "application/json"), (CONTENT_ENCODING, "gzip")]), None);
    }
}
