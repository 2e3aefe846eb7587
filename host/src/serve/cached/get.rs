//! One object from a view, offline.

use http::Response;
use weir_document::protobuf::Envelope;
use weir_kube::{Encoding, MediaType, Transform, Verb};
use weir_store::StoreKey;

use super::table::table;
use super::{CachedRead, Unserved, head};
use crate::serve::body::{ResponseBody, full};
use crate::serve::respond::StatusError;
use weir_view::{View, ViewSnapshot, converted};

/// Answers a get.
///
/// # Errors
/// The view does not know whether the object exists, or the client does not see it.
pub(super) fn get(read: &CachedRead, snapshot: &ViewSnapshot, view: &View) -> Result<Response<ResponseBody>, Unserved> {
    let name = read.resource.name.as_deref().ok_or(Unserved::AskUpstream)?;
    // A path `namespaces/<name>` names the namespace itself.
    let namespace = read.resource.namespace.as_deref().filter(|_| read.resource.collection.contains("/namespaces/"));
    let missing = || StatusError::NotFound { resource: read.resource.resource.clone(), name: name.to_owned() };
    let Some(object) = snapshot.objects.get(&StoreKey::new(namespace.unwrap_or_default(), name)) else {
        return Err(if view.knows_absence(namespace, name) { missing().into() } else { Unserved::AskUpstream });
    };
    if let Some(failure) = object.failure() {
        return Err(StatusError::Filter(failure.clone()).into());
    }
    let bytes = object.shown().ok_or_else(missing)?;
    let invalid = |error: &dyn std::fmt::Display| StatusError::InvalidResponse(error.to_string());
    let MediaType { encoding, transform } = read.media_type;
    let body = match transform {
        Transform::Table(version, include) => table(&snapshot.format, [bytes], None, (version, include))?,
        Transform::None | Transform::Metadata(_) => {
            let converted = converted(&snapshot.format, bytes.clone(), encoding, transform);
            let (bytes, type_meta) = converted.map_err(|error| invalid(&error))?;
            match encoding {
                Encoding::Json => bytes,
                Encoding::Protobuf => Envelope::seal(&type_meta, &bytes),
            }
        }
    };
    Ok(head(encoding, Verb::Get).body(full(body)).map_err(|error| invalid(&error))?)
}
