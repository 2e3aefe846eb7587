//! The envelope of every protobuf body: the magic `k8s\0` and a `runtime.Unknown` {1 typeMeta {1 apiVersion, 2 kind}, 2
//! raw, 3 contentEncoding, 4 contentType}. It shares the body's bytes.

use super::{
    decode,
    splice::Splices,
    wire::{Record, WireType, put_bytes, single},
};
use crate::{Error, MAX_OBJECT, TypeMeta};
use bytes::Bytes;
use std::ops::Range;

/// The first bytes of every protobuf body.
pub const MAGIC: &[u8; 4] = b"k8s\0";

/// A parsed body.
#[derive(Debug, Clone)]
pub struct Envelope {
    body: Bytes,
    type_meta: TypeMeta,
    raw: Option<Record>,
}

impl Envelope {
    /// Parses the envelope of a body, without looking at the object in it.
    pub fn open(body: Bytes) -> Result<Envelope, Error> {
        if body.len() > MAX_OBJECT {
            return Err(Error::TooLarge { limit: MAX_OBJECT });
        }
        if !body.starts_with(MAGIC) {
            return Err(Error::malformed(0, "expected the magic of protobuf"));
        }
        let at = MAGIC.len()..body.len();
        let part = |at: Range<usize>, number, name| single(&body, at, number, WireType::Bytes, name);
        let mut type_meta = TypeMeta { api_version: String::new(), kind: String::new() };
        if let Some(record) = part(at.clone(), 1, "typeMeta")? {
            let text = |number, name| Ok(text(&body, record.value.clone(), number, name)?.unwrap_or_default());
            type_meta = TypeMeta { api_version: text(1, "apiVersion")?, kind: text(2, "kind")? };
        }
        if let Some(encoding) = part(at.clone(), 3, "contentEncoding")?
            && !encoding.value.is_empty()
        {
            return Err(Error::malformed(encoding.start, "unexpected content encoding"));
        }
        let raw = part(at, 2, "raw")?;
        Ok(Envelope { body, type_meta, raw })
    }

    /// Returns the original body.
    pub fn body(&self) -> &Bytes {
        &self.body
    }

    /// Returns the object's type.
    pub fn type_meta(&self) -> &TypeMeta {
        &self.type_meta
    }

    /// Returns the object's bytes.
    pub fn object(&self) -> Bytes {
        self.body.slice(self.span())
    }

    /// Returns the body with another object.
    pub fn with(&self, object: &[u8]) -> Result<Bytes, Error> {
        let mut record = Vec::with_capacity(object.len() + 8);
        put_bytes(2, object, &mut record);
        let mut splices = Splices::default();
        splices.put(&[], self.raw.as_ref().map_or(self.body.len()..self.body.len(), Record::whole), &record);
        splices.apply(&self.body, MAX_OBJECT)
    }

    /// Wraps an object in an envelope.
    pub fn seal(type_meta: &TypeMeta, object: &[u8]) -> Bytes {
        let names = type_meta.api_version.len() + type_meta.kind.len();
        let mut body = Vec::with_capacity(object.len() + names + 48);
        body.extend_from_slice(MAGIC);
        put_type_meta(type_meta, &mut body);
        put_bytes(2, object, &mut body);
        // The API server writes both fields, empty.
        put_bytes(3, &[], &mut body);
        put_bytes(4, &[], &mut body);
        body.into()
    }

    fn span(&self) -> Range<usize> {
        // INVARIANT: a record's span lies in the bytes that it was read from.
        self.raw.as_ref().map_or(0..0, |raw| raw.value.clone())
    }
}

/// Returns the single string of a field number in a message.
pub(super) fn text(bytes: &[u8], at: Range<usize>, number: u32, name: &str) -> Result<Option<String>, Error> {
    let record = single(bytes, at, number, WireType::Bytes, name)?;
    record.map(|record| decode::utf8(bytes, record.value).map(str::to_owned)).transpose()
}

/// Writes the record of the typeMeta.
pub(super) fn put_type_meta(type_meta: &TypeMeta, out: &mut Vec<u8>) {
    let mut names = Vec::new();
    put_bytes(1, type_meta.api_version.as_bytes(), &mut names);
    put_bytes(2, type_meta.kind.as_bytes(), &mut names);
    put_bytes(1, &names, out);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service() -> TypeMeta {
        TypeMeta { api_version: "v1".into(), kind: "Service".into() }
    }

    #[test]
    fn a_sealed_object_is_opened_again() {
        let envelope = Envelope::open(Envelope::seal(&service(), b"abc")).unwrap();
        assert_eq!(envelope.type_meta(), &service());
        assert_eq!(envelope.object(), "abc");
        let long = vec![7; 300];
        let other = Envelope::open(envelope.with(&long).unwrap()).unwrap();
        assert_eq!(other.object(), long);
        assert_eq!(other.with(b"abc").unwrap(), envelope.body());
    }

    #[test]
    fn unknown_fields_of_the_envelope_survive() {
        let mut body = Envelope::seal(&service(), b"abc").to_vec();
        put_bytes(9, b"new", &mut body);
        let envelope = Envelope::open(body.clone().into()).unwrap();
        assert_eq!(envelope.with(b"abc").unwrap(), body);
    }

    #[test]
    fn an_invalid_envelope_is_an_error() {
        for bad in
            [&b""[..], b"k8s", b"{}", b"k8s\0\x0a\x05", b"k8s\0\x1a\x01x", b"k8s\0\x12\x00\x12\x00", b"k8s\0\x10\x01"]
        {
            assert!(Envelope::open(Bytes::copy_from_slice(bad)).is_err(), "{bad:?}");
        }
        assert!(Envelope::open(Bytes::from_static(MAGIC)).unwrap().object().is_empty());
    }
}
