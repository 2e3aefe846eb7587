//! An in-memory Kubernetes API server for Weir's tests, benches and demo. The daemon never contains it.
//!
//! It behaves like kube-apiserver where clients can see the difference: versions, pages, selectors, watches with
//! bookmarks and initial events, conflicts, Tables, reviews, discovery. It runs no controllers, tracks no field
//! ownership, and changes only the apiVersion when it converts between versions.
//!
//! It speaks JSON and protobuf, and negotiates by `Accept` as kube-apiserver does. It treats YAML and CBOR as unknown:
//!
//! | response | JSON | protobuf |
//! |---|---|---|
//! | get, list, watch, objects written | all kinds | built-in kinds that `weir_document`'s schema has |
//! | `as=PartialObjectMetadata[List]` | all kinds | all kinds |
//! | `as=Table` | all kinds | never |
//! | Status, also in ERROR events | yes | yes |
//! | discovery, reviews, tokens | yes | never |
//!
//! If it cannot serve an encoding, it serves the client's next choice or returns 406. A stored object that the schema
//! cannot represent gives 500 in protobuf. Clients may send JSON, YAML and protobuf.
//!
//! The path of a request: `listen` → `handler` → `read`, `watch` or `write` → `store`. Tests change objects through
//! [`ObjectStore`], inject faults with [`ApiServer::on_request`], and inspect requests with [`ApiServer::requests`]. They
//! await events on the receivers that [`ApiServer::open_watches`] and [`ApiServer::request_count`] return.
//!
//! For load tests it encodes an object once: in JSON when it is written, in protobuf when first requested. Lists copy
//! these bytes in pieces, and large complete ones are cached until the next write. [`ApiServer::fix`] serves one body
//! without a copy. Memory: the objects, their encodings, four large lists, the fixed bodies, and a bounded history per
//! resource.

mod access;
mod admit;
mod body;
mod catalog;
mod clock;
mod discovery;
mod fault;
mod fixed;
mod handler;
mod list_cache;
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
pub use body::{Body, Gzip, ResponseBodyError};
pub use catalog::Resource;
pub use fault::{Action, Broken, End};
pub use record::{Certificate, Recorded};
pub use server::{ApiServer, Builder, ServerStartError};
pub use store::{Backup, ObjectStore, StoreError};
pub use stream::PodLog;
pub use tls::ServerTlsError;
