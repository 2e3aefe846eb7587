//! What an answer that is held consists of, copied together: so that the buffers in which it came are free for what
//! comes next, and so that its memory goes back to the system when it has been sent.
//!
//! The C library keeps what is freed for the thread that allocated it, a whole list's worth of buffers if it comes to
//! that, but for blocks beyond 32 MiB (`DEFAULT_MMAP_THRESHOLD_MAX` in glibc's malloc.c), which are mapped for
//! themselves. Of a block only what is written to takes memory.

use bytes::{Bytes, BytesMut};

/// The size of a block: beyond what is kept.
const BLOCK: usize = 33 << 20;
/// Answers that are likely to be smaller are not worth a mapping.
const SMALL: usize = 1 << 20;

/// Bytes in few large pieces.
pub(super) struct Blocks {
    full: Vec<Bytes>,
    open: BytesMut,
    length: usize,
}

impl Blocks {
    /// For about so many bytes.
    pub(super) fn new(estimate: usize) -> Self {
        let first = if estimate < SMALL { estimate } else { BLOCK };
        Self { full: Vec::new(), open: BytesMut::with_capacity(first), length: 0 }
    }

    /// Adds a copy.
    pub(super) fn push(&mut self, mut bytes: &[u8]) {
        self.length += bytes.len();
        while !bytes.is_empty() {
            let room = self.open.capacity() - self.open.len();
            if room == 0 {
                let open = std::mem::replace(&mut self.open, BytesMut::with_capacity(BLOCK));
                self.full.push(open.freeze());
                continue;
            }
            let (now, later) = bytes.split_at(room.min(bytes.len()));
            self.open.extend_from_slice(now);
            bytes = later;
        }
    }

    /// How many bytes there are.
    pub(super) fn len(&self) -> usize {
        self.length
    }

    /// The blocks, none of them empty.
    pub(super) fn into_chunks(self) -> impl Iterator<Item = Bytes> {
        self.full.into_iter().chain([self.open.freeze()]).filter(|block| !block.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_pushed_comes_out_in_few_pieces() {
        for estimate in [0, 10, SMALL, BLOCK] {
            let mut blocks = Blocks::new(estimate);
            let piece: Vec<u8> = (0..=250).collect();
            let times = (BLOCK + (1 << 20)) / piece.len();
            for _ in 0..times {
                blocks.push(&piece);
            }
            assert_eq!(blocks.len(), times * piece.len());
            let chunks: Vec<_> = blocks.into_chunks().collect();
            assert!(chunks.len() <= 3, "{}", chunks.len());
            assert!(chunks.concat() == piece.repeat(times));
        }
        assert_eq!(Blocks::new(5).into_chunks().count(), 0);
    }
}
