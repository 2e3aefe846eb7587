//! An in-memory Kubernetes API server for Weir's tests, benches and demo. The daemon never contains it.
//!
//! It answers as kube-apiserver does where clients can tell the difference: versions, pages, selectors, watches with
//! bookmarks and initial events, conflicts, Tables, reviews, discovery. It does not run controllers, does not convert
//! between versions of a kind beyond apiVersion, keeps no field ownership.
//!
//! It speaks JSON and protobuf, negotiated by `Accept` as kube-apiserver does (YAML and CBOR it takes for unknown):
//!
//! | answer | JSON | protobuf |
//! |---|---|---|
//! | get, list, watch, objects written | all kinds | built-in kinds that `weir_document`'s schema has |
//! | `as=PartialObjectMetadata[List]` | all kinds | all kinds |
//! | `as=Table` | all kinds | never |
//! | Status, also in ERROR events | yes | yes |
//! | discovery, reviews, tokens | yes | never |
//!
//! What is not served so is served by the client's next choice, or 406. Stored objects must be such as the schema can
//! say, else they are 500 in protobuf. Clients may send JSON, YAML and protobuf.
//!
//! The road of a request: `listen` → `handler` → `read`, `watch` or `write` → `store`. Tests change objects through
//! [`Store`], order faults with [`ApiServer::on_request`], look at what was asked by [`ApiServer::requests`], and await
//! what they did by the receivers that [`ApiServer::open_watches`] and [`ApiServer::request_count`] return.
//!
//! For load: objects are encoded once, JSON when they are written and protobuf when that is first asked for; lists copy
//! these bytes in pieces, and large whole ones are kept until the next write. [`ApiServer::fix`] serves one body as it lies
//! in memory. Memory: the objects, their encodings, four large lists, the fixed bodies, and a bounded history per resource.

mod access;
mod admit;
mod body;
mod catalog;
mod clock;
mod discovery;
mod fault;
mod fixed;
mod handler;
mod kept;
mod listen;
mod negotiate;
mod patch;
mod plane;
mod protobuf;
mod read;
mod record;
mod render;
mod request;
mod selector;
mod server;
mod status;
mod store;
mod stream;
mod table;
mod tls;
mod watch;
mod write;

pub use access::{Attributes, Enforce, User};
pub use body::{Body, BodyError, Gzip};
pub use catalog::Resource;
pub use fault::{Action, Broken, End};
pub use record::{Certificate, Recorded};
pub use server::{ApiServer, Builder, StartError};
pub use store::{Store, StoreError};
pub use stream::PodLog;
pub use tls::TlsError;
