//! Bodies of the API server as plain bytes: gzip is undone as it arrives, member by member.
//!
//! Memory: one inflate window (32 KiB) and one output piece; a piece is at most [`PIECE`] however well it was packed,
//! so that a bomb costs time and not memory.

use std::time::Duration;

use bytes::{Buf as _, Bytes};
use flate2::{Decompress, FlushDecompress, Status};
use http::{HeaderMap, header};
use http_body::Body;
use http_body_util::BodyExt as _;

use crate::UpstreamBody;

/// The largest piece of plain bytes handed on at once.
const PIECE: usize = 64 << 10;

/// How long an answer may stand still: an API server gives up one of its own after a minute in all.
const SILENCE: Duration = Duration::from_secs(30);

/// How much larger a list is than its gzip, cautiously.
const PACKED: usize = 5;

/// The plain bytes of an upstream body.
#[derive(Debug)]
pub struct Plain {
    body: UpstreamBody,
    gunzip: Option<Gunzip>,
}

/// Decompresses gzip, any number of members one after another. Call [`Gunzip::next_piece`] until it wants more input.
#[derive(Debug)]
pub struct Gunzip {
    input: Bytes,
    inflate: Decompress,
    /// Whether the last member ended where the input so far ends.
    between_members: bool,
}

/// Why the body of an answer broke off.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AnswerError {
    /// The API server's side broke off.
    #[error("the API server's answer broke off")]
    Broken(#[from] hyper::Error),
    /// The API server has stopped in the middle of what is no watch.
    #[error("the API server has sent no more of it for {0:?}")]
    Silent(Duration),
    /// What the API server sent is not what it said it was.
    #[error("the API server's answer is not usable: {0}")]
    Garbage(String),
}

/// The API server's gzip stream is broken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GunzipError {
    /// Not gzip, or a wrong checksum.
    #[error("broken gzip data")]
    Broken,
    /// The stream ended inside a member.
    #[error("gzip data ended early")]
    Truncated,
}

impl Plain {
    /// For a body with the headers it came with.
    ///
    /// # Errors
    /// The name of an encoding that was not asked for and cannot be undone.
    pub fn new(headers: &HeaderMap, body: UpstreamBody) -> Result<Self, String> {
        let encoding = headers.get(header::CONTENT_ENCODING).map(|value| String::from_utf8_lossy(value.as_bytes()));
        let gunzip = match encoding.as_deref().map(str::trim) {
            None | Some("" | "identity") => None,
            Some("gzip" | "x-gzip") => Some(Gunzip::default()),
            Some(other) => return Err(format!("content encoding {other:?} was not asked for")),
        };
        Ok(Self { body, gunzip })
    }

    /// The next piece, never empty; nothing at the end. Cancel-safe.
    ///
    /// # Errors
    /// The body broke off or its gzip is broken.
    pub async fn next(&mut self) -> Result<Option<Bytes>, AnswerError> {
        loop {
            if let Some(gunzip) = &mut self.gunzip
                && let Some(piece) = gunzip.next_piece().map_err(|error| AnswerError::Garbage(error.to_string()))?
            {
                return Ok(Some(piece));
            }
            let Some(frame) = self.body.frame().await else {
                return match &self.gunzip {
                    Some(gunzip) => {
                        gunzip.finish().map(|()| None).map_err(|error| AnswerError::Garbage(error.to_string()))
                    }
                    None => Ok(None),
                };
            };
            let Ok(data) = frame.map_err(AnswerError::Broken)?.into_data() else { continue };
            match &mut self.gunzip {
                Some(gunzip) => gunzip.feed(data),
                None if data.is_empty() => {}
                None => return Ok(Some(data)),
            }
        }
    }

    /// The same of an answer that is no watch: it waits for nothing, and is given up when nothing comes for [`SILENCE`].
    ///
    /// # Errors
    /// As [`Plain::next`], and [`AnswerError::Silent`].
    pub async fn next_soon(&mut self) -> Result<Option<Bytes>, AnswerError> {
        tokio::time::timeout(SILENCE, self.next()).await.unwrap_or(Err(AnswerError::Silent(SILENCE)))
    }

    /// About how many plain bytes are to come: what the head says, or what a usual list packs.
    pub fn estimate(&self) -> usize {
        let length = usize::try_from(self.body.size_hint().lower()).unwrap_or(usize::MAX);
        if self.gunzip.is_some() { length.saturating_mul(PACKED) } else { length }
    }

    /// The whole body, at most `limit` bytes.
    ///
    /// # Errors
    /// As [`Plain::next_soon`], and a body over the limit.
    pub async fn collect(self, limit: usize) -> Result<Bytes, AnswerError> {
        let whole = self.collect_at_most(limit).await?;
        whole.ok_or_else(|| AnswerError::Garbage(format!("an object of more than {limit} bytes")))
    }

    /// The whole body; none if it has more than `limit` bytes.
    ///
    /// # Errors
    /// As [`Plain::next_soon`].
    pub async fn collect_at_most(mut self, limit: usize) -> Result<Option<Bytes>, AnswerError> {
        let hint = usize::try_from(self.body.size_hint().lower()).unwrap_or(0).min(limit);
        let mut whole = Vec::with_capacity(hint);
        while let Some(piece) = self.next_soon().await? {
            if piece.len() > limit - whole.len() {
                return Ok(None);
            }
            whole.extend_from_slice(&piece);
        }
        Ok(Some(whole.into()))
    }
}

impl Default for Gunzip {
    fn default() -> Self {
        Self { input: Bytes::new(), inflate: Decompress::new_gzip(15), between_members: true }
    }
}

impl Gunzip {
    /// Gives more input; what was given before must have been used up.
    pub fn feed(&mut self, input: Bytes) {
        debug_assert!(self.input.is_empty(), "pull until more input is wanted");
        self.input = input;
    }

    /// The next plain bytes; nothing: feed more.
    ///
    /// # Errors
    /// [`GunzipError::Broken`].
    pub fn next_piece(&mut self) -> Result<Option<Bytes>, GunzipError> {
        let mut piece = Vec::new();
        loop {
            if self.between_members {
                if self.input.is_empty() {
                    break;
                }
                self.inflate = Decompress::new_gzip(15);
                self.between_members = false;
            }
            if piece.capacity() == 0 {
                piece.reserve_exact(PIECE.min(self.input.len().saturating_mul(8).max(4096)));
            }
            let (read, written) = (self.inflate.total_in(), piece.len());
            let status = self
                .inflate
                .decompress_vec(&self.input, &mut piece, FlushDecompress::None)
                .map_err(|_| GunzipError::Broken)?;
            let read = usize::try_from(self.inflate.total_in() - read).unwrap_or(usize::MAX);
            self.input.advance(read.min(self.input.len()));
            if status == Status::StreamEnd {
                self.between_members = true;
            } else if read == 0 && piece.len() == written {
                break;
            }
            if piece.len() == piece.capacity() {
                break;
            }
        }
        Ok((!piece.is_empty()).then(|| piece.into()))
    }

    /// To be asked when there is no more input.
    ///
    /// # Errors
    /// [`GunzipError::Truncated`] inside a member.
    pub fn finish(&self) -> Result<(), GunzipError> {
        if self.between_members { Ok(()) } else { Err(GunzipError::Truncated) }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    fn gzip(plain: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(plain).unwrap();
        encoder.finish().unwrap()
    }

    fn gunzip(packed: &[u8], chunk: usize) -> Result<Vec<u8>, GunzipError> {
        let mut gunzip = Gunzip::default();
        let mut plain = Vec::new();
        for chunk in packed.chunks(chunk) {
            gunzip.feed(Bytes::copy_from_slice(chunk));
            while let Some(piece) = gunzip.next_piece()? {
                assert!(piece.len() <= PIECE);
                plain.extend_from_slice(&piece);
            }
        }
        gunzip.finish().map(|()| plain)
    }

    #[test]
    fn members_one_after_another_are_one_stream_at_any_chunking() {
        let first: Vec<u8> = (0..300_000_u32).flat_map(|n| (n / 7).to_le_bytes()).collect();
        let packed = [gzip(&first), gzip(b""), gzip(b"end")].concat();
        let whole = [first.as_slice(), b"end"].concat();
        for chunk in [1, 7, 1000, packed.len()] {
            assert_eq!(gunzip(&packed, chunk).unwrap(), whole, "{chunk}");
        }
    }

    #[test]
    fn a_member_is_handed_on_before_the_next_arrives() {
        let mut gunzip = Gunzip::default();
        gunzip.feed(gzip(b"event").into());
        assert_eq!(gunzip.next_piece().unwrap().unwrap(), "event");
        assert_eq!(gunzip.next_piece(), Ok(None));
    }

    #[test]
    fn a_bomb_comes_out_in_small_pieces() {
        assert_eq!(gunzip(&gzip(&vec![0; 20 << 20]), 4096).unwrap().len(), 20 << 20);
    }

    #[test]
    fn truncated_and_broken_streams_are_errors() {
        let packed = gzip(b"some text that is long enough");
        assert_eq!(gunzip(&packed[..packed.len() - 3], 100), Err(GunzipError::Truncated));
        assert_eq!(gunzip(b"not gzip at all, really not", 100), Err(GunzipError::Broken));
        let mut wrong = packed;
        let last = wrong.len() - 5;
        wrong[last] ^= 1;
        assert_eq!(gunzip(&wrong, 100), Err(GunzipError::Broken));
    }
}
