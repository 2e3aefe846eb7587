//! The body of a forwarded watch, which Weir may have to end before the API server does: filters begin to match its resource, or
//! the daemon stops. It ends between two events. No rest of an event passes unfiltered: within one it is aborted.
//!
//! Weir recognizes the end of an event in JSON (a line) and in protobuf (a frame after its length). Memory: a counter,
//! because the bytes pass unchanged.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::HeaderMap;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use http_body::{Body, Frame, SizeHint};

use crate::serve::body::AbortError;
use weir_kube::Encoding;
use weir_upstream::UpstreamBody;

/// The body of a forwarded watch.
pub(crate) struct InterruptibleWatch {
    body: UpstreamBody,
    /// Resolves with the reason to end; none after that.
    end: Option<Pin<Box<dyn Future<Output = AbortError> + Send>>>,
    boundary: EventBoundary,
}

/// The position in the stream of events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EventBoundary {
    /// A stream of JSON lines.
    Line {
        /// Whether the last byte is the end of an event.
        between: bool,
    },
    /// A stream of frames, each after its length.
    Frame {
        /// The bytes of the next length that have passed: their number and value.
        length: (u8, u32),
        /// The number of bytes of the event that have not passed yet.
        left: u32,
    },
    /// Another content type, or a compressed stream. It cannot end cleanly.
    Unknown,
}

impl InterruptibleWatch {
    /// Wraps a body that has these headers. The watch ends when `end` resolves, for the reason that it returns.
    pub(crate) fn new(
        headers: &HeaderMap,
        body: UpstreamBody,
        end: impl Future<Output = AbortError> + Send + 'static,
    ) -> Self {
        Self { body, end: Some(Box::pin(end)), boundary: EventBoundary::of(headers) }
    }
}

impl Body for InterruptibleWatch {
    type Data = Bytes;
    type Error = AbortError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, AbortError>>> {
        // Polled first, so that no event passes unfiltered after a filter matches.
        if let Some(end) = &mut self.end
            && let Poll::Ready(error) = end.as_mut().poll(cx)
        {
            self.end = None;
            if !matches!(error, AbortError::Stopping) && !self.boundary.is_between() {
                return Poll::Ready(Some(Err(error)));
            }
        }
        if self.end.is_none() && self.boundary.is_between() {
            return Poll::Ready(None);
        }
        let frame = Pin::new(&mut self.body).poll_frame(cx).map_err(AbortError::from);
        if let Poll::Ready(Some(Ok(frame))) = &frame
            && let Some(data) = frame.data_ref()
        {
            self.boundary.pass(data);
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::default()
    }
}

impl EventBoundary {
    fn of(headers: &HeaderMap) -> Self {
        let text = |name| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
        match Encoding::from_content_type(text(CONTENT_TYPE)) {
            _ if !matches!(text(CONTENT_ENCODING), "" | "identity") => Self::Unknown,
            Some(Encoding::Json) => Self::Line { between: true },
            Some(Encoding::Protobuf) => Self::Frame { length: (0, 0), left: 0 },
            None => Self::Unknown,
        }
    }

    fn is_between(self) -> bool {
        matches!(self, Self::Line { between: true } | Self::Frame { length: (0, _), left: 0 })
    }

    fn pass(&mut self, mut data: &[u8]) {
        match self {
            Self::Unknown => {}
            Self::Line { between } => *between = data.last().map_or(*between, |last| *last == b'\n'),
            Self::Frame { length, left } => {
                while let Some((first, rest)) = data.split_first() {
                    if *left > 0 {
                        let passed = data.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
                        *left -= u32::try_from(passed).unwrap_or(*left);
                        data = data.get(passed..).unwrap_or_default();
                        continue;
                    }
                    *length = (length.0 + 1, (length.1 << 8) | u32::from(*first));
                    if length.0 == 4 {
                        (*left, *length) = (length.1, (0, 0));
                    }
                    data = rest;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn boundary(content_type: &str) -> EventBoundary {
        EventBoundary::of(&HeaderMap::from_iter([(CONTENT_TYPE, content_type.parse().unwrap())]))
    }

    #[test]
    fn a_line_ends_an_event_and_half_a_line_does_not() {
        let mut boundary = boundary("application/json");
        assert!(boundary.is_between());
        for (bytes, between) in [("{\"type\":", false), ("1}\n", true), ("", true), ("{}\n{", false), ("}\n", true)] {
            boundary.pass(bytes.as_bytes());
            assert_eq!(boundary.is_between(), between, "{bytes}");
        }
    }

    #[test]
    fn a_frame_ends_after_its_length_in_any_chunks() {
        let mut stream = Vec::new();
        let mut ends = vec![0];
        for length in [3_u32, 0, 300] {
            stream.extend(length.to_be_bytes());
            stream.extend(vec![b'\n'; length as usize]);
            ends.push(stream.len());
        }
        for step in [1, 2, 5, 7, stream.len()] {
            let mut boundary = boundary("application/vnd.kubernetes.protobuf;stream=watch");
            let mut passed = 0;
            for piece in stream.chunks(step) {
                boundary.pass(piece);
                passed += piece.len();
                assert_eq!(boundary.is_between(), ends.contains(&passed), "{passed} by {step}");
            }
        }
    }

    #[test]
    fn an_unknown_stream_never_ends_cleanly() {
        let packed = HeaderMap::from_iter([
            (CONTENT_TYPE, "application/json".parse().unwrap()),
            (CONTENT_ENCODING, "gzip".parse().unwrap()),
        ]);
        for mut boundary in [boundary("text/plain"), EventBoundary::of(&packed)] {
            boundary.pass(b"a\n");
            assert!(!boundary.is_between());
        }
    }
}
