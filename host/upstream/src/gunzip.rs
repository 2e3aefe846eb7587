//! Incremental decompression of gzip.
//!
//! Memory: one inflate window (32 KiB) and one output chunk of at most [`MAX_CHUNK`]. So a decompression bomb costs time
//! but no memory.

use bytes::{Buf as _, Bytes};
use flate2::{Decompress, FlushDecompress, Status};
use http::{HeaderMap, header};

/// The largest chunk of decompressed bytes.
const MAX_CHUNK: usize = 64 << 10;

/// Decompresses a stream of gzip members. Call [`Gunzip::next_chunk`] until it returns `None`, then feed more input.
#[derive(Debug)]
pub struct Gunzip {
    input: Bytes,
    inflate: Decompress,
    /// Whether the input so far ends with a complete member.
    between_members: bool,
}

/// The gzip stream of the API server is not valid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GunzipError {
    /// The data is not gzip, or a checksum is wrong.
    #[error("broken gzip data")]
    Broken,
    /// The stream ended inside a member.
    #[error("gzip data ended early")]
    Truncated,
}

impl Default for Gunzip {
    fn default() -> Self {
        Self { input: Bytes::new(), inflate: Decompress::new_gzip(15), between_members: true }
    }
}

impl Gunzip {
    /// The decoder of a body with these headers; `None` if it is not compressed.
    ///
    /// # Errors
    /// A message with the content encoding if Weir does not support it.
    pub fn of(headers: &HeaderMap) -> Result<Option<Self>, String> {
        let encoding = headers.get(header::CONTENT_ENCODING).map(|value| String::from_utf8_lossy(value.as_bytes()));
        match encoding.as_deref().map(str::trim) {
            None | Some("" | "identity") => Ok(None),
            Some("gzip" | "x-gzip") => Ok(Some(Self::default())),
            Some(other) => Err(format!("content encoding {other:?} is not supported")),
        }
    }

    /// Decompresses a body that is there; `None` if it is not valid, or larger than `limit` bytes.
    #[must_use]
    pub fn whole(mut self, packed: Bytes, limit: usize) -> Option<Bytes> {
        let mut whole = Vec::new();
        self.feed(packed);
        while let Some(chunk) = self.next_chunk().ok()? {
            (chunk.len() <= limit - whole.len()).then(|| whole.extend_from_slice(&chunk))?;
        }
        self.finish().ok().map(|()| whole.into())
    }

    /// Adds input. All previous input must be used up.
    pub fn feed(&mut self, input: Bytes) {
        debug_assert!(self.input.is_empty(), "call next_chunk until it returns None");
        self.input = input;
    }

    /// Returns the next decompressed bytes, or `None` if it needs more input.
    ///
    /// # Errors
    /// [`GunzipError::Broken`] if the data is not valid.
    pub fn next_chunk(&mut self) -> Result<Option<Bytes>, GunzipError> {
        let mut chunk = Vec::new();
        loop {
            if self.between_members {
                if self.input.is_empty() {
                    break;
                }
                self.inflate = Decompress::new_gzip(15);
                self.between_members = false;
            }
            if chunk.capacity() == 0 {
                chunk.reserve_exact(MAX_CHUNK.min(self.input.len().saturating_mul(8).max(4096)));
            }
            let (read, written) = (self.inflate.total_in(), chunk.len());
            let status = self
                .inflate
                .decompress_vec(&self.input, &mut chunk, FlushDecompress::None)
                .map_err(|_| GunzipError::Broken)?;
            let read = usize::try_from(self.inflate.total_in() - read).unwrap_or(usize::MAX);
            self.input.advance(read.min(self.input.len()));
            if status == Status::StreamEnd {
                self.between_members = true;
            } else if read == 0 && chunk.len() == written {
                break;
            }
            if chunk.len() == chunk.capacity() {
                break;
            }
        }
        Ok((!chunk.is_empty()).then(|| chunk.into()))
    }

    /// Checks that the stream is complete. Call it at the end of the input.
    ///
    /// # Errors
    /// [`GunzipError::Truncated`] if it ended inside a member.
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
            while let Some(chunk) = gunzip.next_chunk()? {
                assert!(chunk.len() <= MAX_CHUNK);
                plain.extend_from_slice(&chunk);
            }
        }
        gunzip.finish().map(|()| plain)
    }

    #[test]
    fn consecutive_members_are_one_stream_at_any_chunking() {
        let first: Vec<u8> = (0..300_000_u32).flat_map(|n| (n / 7).to_le_bytes()).collect();
        let packed = [gzip(&first), gzip(b""), gzip(b"end")].concat();
        let whole = [first.as_slice(), b"end"].concat();
        for chunk in [1, 7, 1000, packed.len()] {
            assert_eq!(gunzip(&packed, chunk).unwrap(), whole, "{chunk}");
        }
        let of_limit = |limit| Gunzip::default().whole(packed.clone().into(), limit);
        assert_eq!(of_limit(whole.len()).unwrap(), whole);
        assert_eq!(of_limit(whole.len() - 1), None);
    }

    #[test]
    fn a_member_is_returned_before_the_next_arrives() {
        let mut gunzip = Gunzip::default();
        gunzip.feed(gzip(b"event").into());
        assert_eq!(gunzip.next_chunk().unwrap().unwrap(), "event");
        assert_eq!(gunzip.next_chunk(), Ok(None));
    }

    #[test]
    fn a_bomb_comes_out_in_small_chunks() {
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
