//! A get that filters match: Weir reads the object, filters it and returns it, or returns 404 if filters hide it.
//!
//! Memory: the object, at most [`LIMIT`] bytes, and its edited copy, of the budget for responses.

use bytes::Bytes;
use http::{Method, Response, header};

use super::read::{ObjectsResponse, ReadRequest, ReadResponse};
use crate::serve::Handlers;
use crate::serve::body::{ResponseBody, empty};
use crate::serve::respond::StatusError;
use crate::serve::route::Filtering;
use weir_kube::{Encoding, MediaType, ResourceRequest, Transform};
use weir_runtime::Outcome;
use weir_upstream::error_report;
use weir_wire::object::EncodedObject;

/// The largest object. etcd stores at most 1.5 MiB, but aggregated APIs can have larger objects.
pub(crate) const LIMIT: usize = 32 << 20;

/// Keeps an object as the API server has sent it, in this encoding, for the time without one.
pub(crate) type Keep<'a> = &'a (dyn Fn(&ReadRequest, Encoding, &http::response::Parts, Bytes) + Send + Sync);

/// Responds to a get that filters match. `keep` gets the whole object before that.
///
/// # Errors
/// The object is hidden, a filter failed, or the API server's response is invalid.
pub(crate) async fn get(
    handlers: &Handlers,
    mut read: ReadRequest,
    keep: Option<Keep<'_>>,
) -> Result<Response<ResponseBody>, StatusError> {
    let invalid = |error: weir_document::Error| StatusError::InvalidResponse(error_report(&error));
    let (mut parts, object, lease) = loop {
        let ObjectsResponse { parts, body, encoding } = match read.send(handlers, read.upstream_path()).await? {
            ReadResponse::Objects(objects) => objects,
            ReadResponse::Other(response) => return Ok(response),
        };
        let (bytes, lease) = handlers.whole_object(&read.asked.caller, *body).await?;
        match EncodedObject::decode(encoding, read.media_type.transform, bytes.clone()).map_err(invalid)? {
            Some(object) if object.is_complete() => {
                if let Some(keep) = keep {
                    keep(&read, encoding, &parts, bytes);
                }
                break (parts, object, lease);
            }
            _ => read = read.with_media_type(MediaType::JSON),
        }
    };
    let object = object.typed(&read.object_type).map_err(|error| StatusError::InvalidResponse(error_report(&error)))?;
    read.take_filters(handlers);
    let bytes = filtered(&read.filtering, &object, read.media_type.transform, &read.resource).await?;
    if read.filtering.is_degraded() {
        let version = object.document().resource_version().ok().flatten().and_then(|version| version.parse().ok());
        handlers.end_stream(&read, version.unwrap_or_default());
    }
    if read.asked.method == Method::HEAD {
        parts.headers.insert(header::CONTENT_LENGTH, bytes.len().into());
        return Ok(Response::from_parts(parts, empty()));
    }
    Ok(lease.respond(parts, bytes))
}

/// Filters an object and encodes what the client may see of it.
///
/// # Errors
/// The object is hidden or malformed, or a filter failed.
pub(crate) async fn filtered(
    filtering: &Filtering,
    object: &EncodedObject,
    transform: Transform,
    resource: &ResourceRequest,
) -> Result<Bytes, StatusError> {
    let invalid = |error: weir_document::Error| StatusError::InvalidResponse(error_report(&error));
    object.document().kind().map_err(invalid)?;
    let encoded = match filtering.run(vec![object.document().clone()]).await.pop() {
        Some(Outcome::Unchanged) => object.encode(None, transform),
        Some(Outcome::Edited(bytes)) => object.encode(Some(&bytes), transform),
        Some(Outcome::Failed(failure)) => return Err(StatusError::Filter(failure)),
        Some(Outcome::Hidden) | None => {
            return Err(StatusError::NotFound {
                resource: resource.resource.clone(),
                name: resource.name.clone().unwrap_or_default(),
            });
        }
    };
    encoded.map_err(invalid)
}
