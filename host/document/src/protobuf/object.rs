//! One object as a protobuf message with its type. Cheap to clone; the bytes are shared.

use super::{
    schema::{self, Message},
    spell,
    walk::{Visit, walk},
    wire::Records,
};
use crate::{Error, MAX_OBJECT, TypeMeta, path::Step};
use bytes::Bytes;
use std::{
    ops::Range,
    sync::{Arc, OnceLock},
};

/// As many different numbers may be in the object itself: no kind has a tenth of them.
const RUNS: usize = 256;

/// So far ahead memory is touched, in bytes.
const AHEAD: usize = 1024;

/// The bytes of one message, without an envelope. Nothing is looked at before the first read.
#[derive(Debug, Clone)]
pub(crate) struct Object {
    bytes: Bytes,
    message: &'static Message,
    type_meta: Arc<TypeMeta>,
    runs: OnceLock<Arc<[Run]>>,
}

/// Where the records of one number lie, others maybe between them.
#[derive(Debug)]
struct Run {
    number: u32,
    at: Range<usize>,
}

impl Object {
    /// None if the schema lacks the kind.
    pub(crate) fn new(bytes: Bytes, type_meta: Arc<TypeMeta>) -> Option<Self> {
        Some(Object { bytes, message: schema::find(&type_meta)?, type_meta, runs: OnceLock::new() })
    }

    /// The same kind of object with other bytes.
    pub(crate) fn with(&self, bytes: Bytes) -> Self {
        Object { bytes, message: self.message, type_meta: self.type_meta.clone(), runs: OnceLock::new() }
    }

    pub(crate) fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    pub(crate) fn message(&self) -> &'static Message {
        self.message
    }

    /// Steps over the records of the object itself: what is no message at all is an error of every read.
    pub(crate) fn check(&self) -> Result<(), Error> {
        self.runs().map(drop)
    }

    /// The span that holds all records of a number; an empty one at the end if there is none.
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
        // The next record is where this one says it ends: the processor would wait for memory at each. What is touched
        // ahead is there when it is needed.
        let mut touched = 0;
        while let Some(record) = records.next()? {
            touched ^= self.bytes.get(record.value.end + AHEAD).copied().unwrap_or_default();
            if let Some(run) = runs.iter_mut().rev().find(|run| run.number == record.number) {
                run.at.end = record.value.end;
            } else if runs.len() < RUNS {
                runs.push(Run { number: record.number, at: record.whole() });
            } else {
                return Err(Error::malformed(record.start, "too many different fields"));
            }
        }
        std::hint::black_box(touched);
        Ok(self.runs.get_or_init(|| runs.into()))
    }

    /// Walks the steps.
    pub(crate) fn visit(&self, steps: &[Step], visitor: &mut impl Visit) -> Result<(), Error> {
        self.check()?;
        walk(self, steps, visitor)
    }

    /// The whole object as JSON text.
    pub(crate) fn to_json(&self) -> Result<String, Error> {
        self.check()?;
        spell::object(&self.bytes, self.message, &self.type_meta)
    }
}
