//! One object as a protobuf message with its type. Cheap to clone; the bytes are shared.

use super::{
    schema::{self, Message, Shape},
    spell,
    walk::{Visit, walk},
    wire::Records,
};
use crate::{Error, MAX_OBJECT, TypeMeta, path::Step};
use bytes::Bytes;
use std::sync::Arc;

/// The bytes of one message, without an envelope. Nothing is looked at before the first read.
#[derive(Debug, Clone)]
pub(crate) struct Object {
    bytes: Bytes,
    message: &'static Message,
    type_meta: Arc<TypeMeta>,
}

impl Object {
    /// None if the schema lacks the kind.
    pub(crate) fn new(bytes: Bytes, type_meta: Arc<TypeMeta>) -> Option<Self> {
        Some(Object { bytes, message: schema::find(&type_meta)?, type_meta })
    }

    /// The same kind of object with other bytes.
    pub(crate) fn with(&self, bytes: Bytes) -> Self {
        Object { bytes, message: self.message, type_meta: self.type_meta.clone() }
    }

    pub(crate) fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    pub(crate) fn message(&self) -> &'static Message {
        self.message
    }

    /// Steps over the records of the object itself: what is no message at all is an error of every read.
    pub(crate) fn check(&self) -> Result<(), Error> {
        if self.bytes.len() > MAX_OBJECT {
            return Err(Error::TooLarge { limit: MAX_OBJECT });
        }
        let mut records = Records::new(&self.bytes, 0..self.bytes.len());
        while records.next()?.is_some() {}
        Ok(())
    }

    /// Walks the steps. The rows of a list of the object itself are read to its end anyway.
    pub(crate) fn visit(&self, steps: &[Step], visitor: &mut impl Visit) -> Result<(), Error> {
        let read_to_end = match steps {
            [Step::Name(name), Step::Every, ..] => self.message.field(name).is_some_and(|field| {
                field.shape == Shape::List && field.outer.is_empty() && self.bytes.len() <= MAX_OBJECT
            }),
            _ => false,
        };
        if !read_to_end {
            self.check()?;
        }
        walk(&self.bytes, self.message, steps, visitor)
    }

    /// The whole object as JSON text.
    pub(crate) fn to_json(&self) -> Result<String, Error> {
        self.check()?;
        spell::object(&self.bytes, self.message, &self.type_meta)
    }
}
