//! One object as a protobuf message with its type. Clones are cheap, because they share the bytes.

use super::{
    decode,
    schema::{self, Message},
    walk::{Visit, walk},
    wire::Records,
};
use crate::{Error, MAX_OBJECT, TypeMeta, path::Segment};
use bytes::Bytes;
use std::{
    ops::Range,
    sync::{Arc, OnceLock},
};

/// The maximum number of distinct field numbers in the object itself. No kind has a tenth of them.
const MAX_RUNS: usize = 256;

/// The distance at which memory is prefetched, in bytes.
const PREFETCH_DISTANCE: usize = 1024;

/// The bytes of one message without an envelope. They are not parsed before the first read.
#[derive(Debug, Clone)]
pub(crate) struct Object {
    bytes: Bytes,
    message: &'static Message,
    type_meta: Arc<TypeMeta>,
    runs: OnceLock<Arc<[Run]>>,
}

/// The span of the records of one field number, possibly with others between them.
#[derive(Debug)]
struct Run {
    number: u32,
    at: Range<usize>,
}

impl Object {
    /// Creates an object. Returns none if the schema lacks the kind.
    pub(crate) fn new(bytes: Bytes, type_meta: Arc<TypeMeta>) -> Option<Self> {
        Some(Object { bytes, message: schema::find(&type_meta)?, type_meta, runs: OnceLock::new() })
    }

    /// Returns an object of the same kind with other bytes.
    pub(crate) fn with(&self, bytes: Bytes) -> Self {
        Object { bytes, message: self.message, type_meta: self.type_meta.clone(), runs: OnceLock::new() }
    }

    pub(crate) fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    pub(crate) fn type_meta(&self) -> &TypeMeta {
        &self.type_meta
    }

    pub(crate) fn message(&self) -> &'static Message {
        self.message
    }

    /// Parses the records of the object itself. Bytes that are not a message are an error of every read.
    pub(crate) fn check(&self) -> Result<(), Error> {
        self.runs().map(drop)
    }

    /// Returns the span that contains all records of a field number, or an empty span at the end if there is none.
    pub(crate) fn run(&self, number: u32) -> Result<Range<usize>, Error> {
        let run = self.runs()?.iter().find(|run| run.number == number);
        Ok(run.map_or(self.bytes.len()..self.bytes.len(), |run| run.at.clone()))
    }

    fn runs(&self) -> Result<&[Run], Error> {
        if let Some(runs) = self.runs.get() {
            return Ok(runs);
        }
        if self.bytes.len() > MAX_OBJECT {
            return Err(Error::TooLarge { limit: MAX_OBJECT });
        }
        let mut runs: Vec<Run> = Vec::with_capacity(8);
        let mut records = Records::new(&self.bytes, 0..self.bytes.len());
        // The position of the next record depends on this one's length, so the processor would wait for memory at each
        // record. Prefetched memory is available in time.
        let mut touched = 0;
        while let Some(record) = records.next()? {
            touched ^= self.bytes.get(record.value.end + PREFETCH_DISTANCE).copied().unwrap_or_default();
            if let Some(run) = runs.iter_mut().rev().find(|run| run.number == record.number) {
                run.at.end = record.value.end;
            } else if runs.len() < MAX_RUNS {
                runs.push(Run { number: record.number, at: record.whole() });
            } else {
                return Err(Error::malformed(record.start, "too many different fields"));
            }
        }
        std::hint::black_box(touched);
        Ok(self.runs.get_or_init(|| runs.into()))
    }

    /// Walks the segments.
    pub(crate) fn visit(&self, segments: &[Segment], visitor: &mut impl Visit) -> Result<(), Error> {
        self.check()?;
        walk(self, segments, visitor)
    }

    /// Returns the whole object as JSON text.
    /// Like [`Object::to_json`], without kind and apiVersion.
    pub(crate) fn to_json_item(&self) -> Result<String, Error> {
        self.check()?;
        decode::object(&self.bytes, self.message, None)
    }

    pub(crate) fn to_json(&self) -> Result<String, Error> {
        self.check()?;
        decode::object(&self.bytes, self.message, Some(&self.type_meta))
    }
}
