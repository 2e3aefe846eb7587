//! One object from a view, offline.

use http::Response;
use weir_document::protobuf::Envelope;
use weir_kube::{Encoding, Transform, Verb};
use weir_store::StoreKey;

use super::table::table;
use super::{CachedRead, head};
use crate::serve::body::{ResponseBody, full};
use crate::serve::respond::StatusError;
use weir_view::{View, ViewSnapshot, converted};

/// Answers a get; `None` if the view does not know whether the object exists.
pub(super) fn get(
    read: &CachedRead,
    snapshot: &ViewSnapshot,
    view: &View,
) -> Option<Result<Response<ResponseBody>, StatusError>> {
    let name = read.resource.name.as_deref()?;
    // A path `namespaces/<name>` names the namespace itself.
    let namespace = read.resource.namespace.as_deref().filter(|_| read.resource.collection.contains("/namespaces/"));
    let missing = || StatusError::NotFound { resource: read.resource.resource.clone(), name: name.to_owned() };
    let Some(object) = snapshot.objects.get(&StoreKey::new(namespace.unwrap_or_default(), name)) else {
        return view.knows_absence(namespace, name).then(|| Err(missing()));
    };
    if let Some(failure) = object.failure() {
        return Some(Err(StatusError::Filter(failure.clone())));
    }
    let Some(bytes) = object.shown() else { return Some(Err(missing())) };
    let media_type = read.media_type;
    if let Transform::Table(version, include) = media_type.transform {
        let body = table(&snapshot.format, [bytes], None, (version, include));
        return Some(body.and_then(|body| {
            let response = head(media_type.encoding, Verb::Get).body(full(body));
            response.map_err(|error| StatusError::InvalidResponse(error.to_string()))
        }));
    }
    let invalid = |error: &dyn std::fmt::Display| StatusError::InvalidResponse(error.to_string());
    let body = converted(&snapshot.format, bytes.clone(), media_type.encoding, media_type.transform);
    let body = body.map(|(bytes, type_meta)| match media_type.encoding {
        Encoding::Json => bytes,
        Encoding::Protobuf => Envelope::seal(&type_meta, &bytes),
    });
    Some(
        body.map_err(|error| invalid(&error))
            .and_then(|body| head(media_type.encoding, Verb::Get).body(full(body)).map_err(|error| invalid(&error))),
    )
}
