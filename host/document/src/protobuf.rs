//! Kubernetes protobuf. A schema maps field numbers to the fields of JSON, so that objects can be read and edited like
//! JSON. Also splits and joins lists, watch streams and envelopes. Fields that the schema lacks keep their bytes.
//!
//! ```
//! use std::sync::Arc;
//! use weir_document::{Document, TypeMeta, Value, path, protobuf::{Envelope, from_json}};
//!
//! # fn main() -> Result<(), weir_document::Error> {
//! # let service = TypeMeta { api_version: "v1".to_owned(), kind: "Service".to_owned() };
//! # let body = Envelope::seal(&service, &from_json(&service, r#"{"metadata":{"name":"web"},"spec":{"type":"ClusterIP"}}"#)?);
//! // The body of a response to a get.
//! let envelope = Envelope::open(body)?;
//! let type_meta = Arc::new(envelope.type_meta().clone());
//! if let Some(mut service) = Document::protobuf(envelope.object(), type_meta) {
//!     service.set(&path!("spec.type"), &Value::Text("NodePort".to_owned()))?;
//!     assert_eq!(service.text(&path!("spec.type"))?.as_deref(), Some("NodePort"));
//!     let edited = envelope.with(service.bytes())?;
//! #   assert_ne!(edited, *envelope.body());
//! }
//! # Ok(())
//! # }
//! ```

pub(crate) mod decode;
pub(crate) mod edit;
mod encode;
mod envelope;
mod frame;
mod list;
mod list_writer;
mod object;
mod place;
pub(crate) mod read;
mod schema;
mod splice;
mod time;
mod walk;
mod wire;

pub use envelope::{Envelope, MAGIC};
pub use frame::{Frame, FrameSplitter, event};
pub use list::{Joiner, ListSplitter};
pub use list_writer::{list_head, list_item, list_tail};
pub(crate) use object::Object;
pub(crate) use place::ValueRef;
pub use schema::{has, kind_of, version};

use crate::{
    Error, TypeMeta,
    json::{check, marked::Marked, scan::Marks},
};
use bytes::Bytes;

/// Encodes a JSON object as a message of its kind, without an envelope, such as a Status for a protobuf client. A
/// member that the schema lacks is an error. Ignores apiVersion and kind.
pub fn from_json(type_meta: &TypeMeta, json: &str) -> Result<Bytes, Error> {
    let TypeMeta { api_version, kind } = type_meta.clone();
    let message = schema::find(type_meta).ok_or(Error::NoSchema { api_version, kind })?;
    encode_over(message, json, &[])
}

/// Encodes a whole object from JSON text. Unknown fields of `object` are kept.
pub(crate) fn encode(object: &Object, json: &str) -> Result<Bytes, Error> {
    encode_over(object.message(), json, object.bytes())
}

fn encode_over(message: &'static schema::Message, json: &str, old: &[u8]) -> Result<Bytes, Error> {
    let invalid = |source| Error::InvalidValue { source: Box::new(source) };
    let at = check::whole(json.as_bytes()).map_err(invalid)?;
    let marks = Marks::of(json.as_bytes());
    let text = encode::JsonText { text: Marked::new(json.as_bytes(), &marks), at: at.start };
    encode::object(message, text, old).map(Into::into).map_err(invalid)
}

/// Returns the record of an object's metadata, which is field 1 of every kind, or nothing if there is none.
pub(crate) fn metadata(object: &Bytes) -> Result<Bytes, Error> {
    let record = wire::single(object, 0..object.len(), 1, wire::WireType::Bytes, "metadata")?;
    Ok(record.map(|record| object.slice(record.whole())).unwrap_or_default())
}

#[cfg(test)]
mod tests;
