//! A get that filters match: Weir reads the object, filters it and returns it, or returns 404 if filters hide it.
//!
//! Memory: the object, at most [`LIMIT`] bytes, and its edited copy.

use http::{Method, Response, header};
use http_body::Body as _;

use super::read::{ObjectsResponse, ReadRequest, ReadResponse};
use crate::codec::object::EncodedObject;
use crate::proxy::Proxy;
use crate::proxy::body::{ResponseBody, empty, full};
use crate::proxy::respond::StatusError;
use weir_kube::MediaType;
use weir_runtime::Outcome;
use weir_upstream::error_report;

/// The largest object. etcd stores at most 1.5 MiB, but aggregated APIs can have larger objects.
pub(in crate::proxy) const LIMIT: usize = 32 << 20;

/// Responds to a get that filters match.
///
/// # Errors
/// The object is hidden, a filter failed, or the API server's response is invalid.
pub(in crate::proxy) async fn get(proxy: &Proxy, mut read: ReadRequest) -> Result<Response<ResponseBody>, StatusError> {
    let invalid = |error: weir_document::Error| StatusError::InvalidResponse(error_report(&error));
    let (mut parts, object) = loop {
        let ObjectsResponse { parts, body, encoding } = match read.send(proxy, read.upstream_path()).await? {
            ReadResponse::Objects(objects) => objects,
            ReadResponse::Other(response) => return Ok(response),
        };
        let bytes = body.collect(LIMIT).await?;
        match EncodedObject::decode(encoding, read.media_type.transform, bytes).map_err(invalid)? {
            Some(object) if object.is_complete() => break (parts, object),
            _ => read = read.with_media_type(MediaType::JSON),
        }
    };
    let object = object.typed(&read.object_type).map_err(|error| StatusError::InvalidResponse(error_report(&error)))?;
    object.document().kind().map_err(invalid)?;
    let encoded = match read.chain.run(vec![object.document().clone()]).await.pop() {
        Some(Outcome::Unchanged) => object.encode(None, read.media_type.transform),
        Some(Outcome::Edited(bytes)) => object.encode(Some(&bytes), read.media_type.transform),
        Some(Outcome::Failed(failure)) => return Err(StatusError::Filter(failure)),
        Some(Outcome::Hidden) | None => {
            return Err(StatusError::NotFound {
                resource: read.resource.resource.clone(),
                name: read.resource.name.clone().unwrap_or_default(),
            });
        }
    };
    let body = full(encoded.map_err(invalid)?);
    if read.method == Method::HEAD {
        if let Some(length) = body.size_hint().exact() {
            parts.headers.insert(header::CONTENT_LENGTH, length.into());
        }
        return Ok(Response::from_parts(parts, empty()));
    }
    Ok(Response::from_parts(parts, body))
}
