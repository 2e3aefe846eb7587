//! A forwarded watch that ends before the API server ends it: broken off when filters begin to match what it shows, ended
//! cleanly between two events when the daemon stops.
//!
//! Where an event ends is known of JSON (its line) and of protobuf (its length in front). Memory: a count.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::HeaderMap;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use http_body::{Body, Frame, SizeHint};

use super::body::BodyError;
use weir_kube::Encoding;
use weir_upstream::UpstreamBody;

/// The watch's body.
pub(super) struct Until {
    body: UpstreamBody,
    /// Why it ends; none once that is known.
    end: Option<Pin<Box<dyn Future<Output = BodyError> + Send>>>,
    place: Place,
}

/// Where in the stream of events the bytes so far end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Of JSON lines.
    Line {
        /// Whether the last byte ended an event.
        between: bool,
    },
    /// Of frames with their length in front.
    Frame {
        /// Bytes of the next length that are there, and their value so far.
        length: (u8, u32),
        /// Bytes of the event that are to come.
        left: u32,
    },
    /// Of something else.
    Unknown,
}

impl Until {
    /// Ends `body`, which came with these headers, for the reason that `end` resolves with.
    pub(super) fn new(
        headers: &HeaderMap,
        body: UpstreamBody,
        end: impl Future<Output = BodyError> + Send + 'static,
    ) -> Self {
        Self { body, end: Some(Box::pin(end)), place: Place::of(headers) }
    }
}

impl Body for Until {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        // Asked first: nothing passes unfiltered once a filter matches.
        if let Some(end) = &mut self.end
            && let Poll::Ready(error) = end.as_mut().poll(cx)
        {
            self.end = None;
            if !matches!(error, BodyError::Stopping) {
                return Poll::Ready(Some(Err(error)));
            }
        }
        if self.end.is_none() && self.place.is_between() {
            return Poll::Ready(None);
        }
        let frame = Pin::new(&mut self.body).poll_frame(cx).map_err(BodyError::from);
        if let Poll::Ready(Some(Ok(frame))) = &frame
            && let Some(data) = frame.data_ref()
        {
            self.place.pass(data);
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

impl Place {
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

    fn place(content_type: &str) -> Place {
        Place::of(&HeaderMap::from_iter([(CONTENT_TYPE, content_type.parse().unwrap())]))
    }

    #[test]
    fn a_line_ends_an_event_and_half_a_line_does_not() {
        let mut place = place("application/json");
        assert!(place.is_between());
        for (bytes, between) in [("{\"type\":", false), ("1}\n", true), ("", true), ("{}\n{", false), ("}\n", true)] {
            place.pass(bytes.as_bytes());
            assert_eq!(place.is_between(), between, "{bytes}");
        }
    }

    #[test]
    fn a_frame_ends_where_its_length_says_however_it_is_cut() {
        let mut stream = Vec::new();
        let mut ends = vec![0];
        for length in [3_u32, 0, 300] {
            stream.extend(length.to_be_bytes());
            stream.extend(vec![b'\n'; length as usize]);
            ends.push(stream.len());
        }
        for step in [1, 2, 5, 7, stream.len()] {
            let mut place = place("application/vnd.kubernetes.protobuf;stream=watch");
            let mut passed = 0;
            for piece in stream.chunks(step) {
                place.pass(piece);
                passed += piece.len();
                assert_eq!(place.is_between(), ends.contains(&passed), "{passed} by {step}");
            }
        }
    }

    #[test]
    fn what_is_not_known_never_ends_cleanly() {
        let packed = HeaderMap::from_iter([
            (CONTENT_TYPE, "application/json".parse().unwrap()),
            (CONTENT_ENCODING, "gzip".parse().unwrap()),
        ]);
        for mut place in [place("text/plain"), Place::of(&packed)] {
            place.pass(b"a\n");
            assert!(!place.is_between());
        }
    }
}
