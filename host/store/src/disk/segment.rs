//! A segment: a batch of changes of one store, as bytes.
//!
//! A store on disk is a log of segments. A later change of an object supersedes the earlier ones.

use std::sync::Arc;

use bytes::Bytes;

use super::error::DiskError;
use crate::StoreKey;
use crate::cache::Object;

const PUT: u8 = 1;
const REMOVE: u8 = 2;

/// One change in a segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum SegmentRecord {
    /// The object was added or updated.
    Put(Arc<Object>),
    /// The object was deleted.
    Remove(StoreKey),
}

impl SegmentRecord {
    /// The bytes of the record in a segment.
    pub(super) fn len(&self) -> u64 {
        match self {
            Self::Put(object) => object_len(object),
            Self::Remove(key) => 5 + key.as_str().len() as u64,
        }
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        let (tag, key) = match self {
            Self::Put(object) => (PUT, &object.key),
            Self::Remove(key) => (REMOVE, key),
        };
        out.push(tag);
        put_bytes(out, key.as_str().as_bytes());
        if let Self::Put(object) = self {
            out.extend_from_slice(&object.version.to_le_bytes());
            put_bytes(out, &object.bytes);
        }
    }

    /// Reads the first record and leaves the rest. Copies the object, so that it does not keep the segment alive.
    pub(super) fn decode(rest: &mut &[u8]) -> Result<Self, DiskError> {
        let damaged = || DiskError::Damaged("a segment does not end with a record".to_owned());
        let (tag, after) = rest.split_first().ok_or_else(damaged)?;
        *rest = after;
        let key = take_bytes(rest).and_then(|key| std::str::from_utf8(key).ok()).ok_or_else(damaged)?;
        let key = StoreKey::from_text(key);
        match *tag {
            PUT => {
                let (version, after) = rest.split_first_chunk().ok_or_else(damaged)?;
                *rest = after;
                let bytes = Bytes::copy_from_slice(take_bytes(rest).ok_or_else(damaged)?);
                Ok(Self::Put(Arc::new(Object { key, version: u64::from_le_bytes(*version), bytes })))
            }
            REMOVE => Ok(Self::Remove(key)),
            _ => Err(damaged()),
        }
    }
}

/// The bytes of an object in a segment.
pub(super) fn object_len(object: &Object) -> u64 {
    17 + (object.key.as_str().len() + object.bytes.len()) as u64
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    // A larger object was not accepted from the API server.
    let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(bytes);
}

fn take_bytes<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (length, after) = rest.split_first_chunk()?;
    let (bytes, after) = after.split_at_checked(usize::try_from(u32::from_le_bytes(*length)).ok()?)?;
    *rest = after;
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_read_as_they_were_written_and_a_cut_segment_is_damaged() {
        let object = Object { key: StoreKey::new("a", "b"), version: 7, bytes: Bytes::from_static(b"bytes") };
        let records = [SegmentRecord::Put(Arc::new(object)), SegmentRecord::Remove(StoreKey::new("", "c"))];
        let mut bytes = Vec::new();
        for record in &records {
            let before = bytes.len() as u64;
            record.encode(&mut bytes);
            assert_eq!(bytes.len() as u64 - before, record.len());
        }
        let mut rest = bytes.as_slice();
        assert_eq!([SegmentRecord::decode(&mut rest).unwrap(), SegmentRecord::decode(&mut rest).unwrap()], records);
        assert!(rest.is_empty());
        let first = usize::try_from(records[0].len()).unwrap();
        for cut in 0..first {
            assert!(SegmentRecord::decode(&mut &bytes[..cut]).is_err());
        }
    }
}
