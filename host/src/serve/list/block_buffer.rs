//! The bytes of a buffered response, copied into few large blocks. The copy frees the receive buffers for the next input.
//! The memory of the blocks returns to the system when the response has been sent.
//!
//! The C library keeps freed memory for the thread that allocated it, up to the buffers of a whole list. It maps only
//! blocks above 32 MiB separately (`DEFAULT_MMAP_THRESHOLD_MAX` in glibc's malloc.c), and unmaps them when they are freed.
//! The unwritten part of a block takes no memory.

use bytes::{Bytes, BytesMut};

/// The size of a block: above the threshold at which malloc maps memory.
const BLOCK: usize = 33 << 20;
/// Answers with a smaller estimate are not worth a mapping.
const SMALL: usize = 1 << 20;

/// Bytes in few large blocks.
pub(super) struct BlockBuffer {
    full: Vec<Bytes>,
    open: BytesMut,
    length: usize,
}

impl BlockBuffer {
    /// Creates a buffer for about this many bytes.
    pub(super) fn new(estimate: usize) -> Self {
        let first = if estimate < SMALL { estimate } else { BLOCK };
        Self { full: Vec::new(), open: BytesMut::with_capacity(first), length: 0 }
    }

    /// Appends a copy of these bytes.
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

    /// The number of bytes in the buffer.
    pub(super) fn len(&self) -> usize {
        self.length
    }

    /// Returns the blocks; none of them is empty.
    pub(super) fn into_chunks(self) -> impl Iterator<Item = Bytes> {
        self.full.into_iter().chain([self.open.freeze()]).filter(|block| !block.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pushed_bytes_come_out_in_few_blocks() {
        for estimate in [0, 10, SMALL, BLOCK] {
            let mut blocks = BlockBuffer::new(estimate);
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
        assert_eq!(BlockBuffer::new(5).into_chunks().count(), 0);
    }
}
