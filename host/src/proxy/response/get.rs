//! A get that filters match: Weir reads the whole object, filters it, and answers it, or 404 if filters hide it.
//!
//! Memory: the object, at most [`LIMIT`] bytes, and its edited copy.

use http::{Method, Response, header};
use http_body::Body as _;

use super::read::{ObjectsAnswer, ReadAnswer, ReadRequest};
use crate::codec::object::EncodedObject;
use crate::proxy::Proxy;
use crate::proxy::body::{ResponseBody, empty, full};
use crate::proxy::respond::Refusal;
use weir_kube::MediaType;
use weir_runtime::Outcome;
use weir_upstream::in_full;

/// The largest object. Those in etcd have at most 1.5 MiB; aggregated APIs may have larger ones.
pub(in crate::proxy) const LIMIT: usize = 32 << 20;

/// Answers a get that filters match.
///
/// # Errors
/// The object is hidden, a filter failed, or the API server's answer is invalid.
pub(in crate::proxy) async fn get(proxy: &Proxy, mut read: ReadRequest) -> Result<Response<ResponseBody>, Refusal> {
    let invalid = |error: weir_document::Error| Refusal::InvalidAnswer(in_full(&error));
    let (mut parts, object) = loop {
        let ObjectsAnswer { parts, body, encoding } = match read.send(proxy, read.own_path()).await? {
            ReadAnswer::Objects(objects) => objects,
            ReadAnswer::Other(answer) => return Ok(answer),
        };
        let bytes = body.collect(LIMIT).await?;
        match EncodedObject::decode(encoding, read.media_type.transform, bytes).map_err(invalid)? {
            Some(object) if object.is_complete() => break (parts, object),
            _ => read = read.with_media_type(MediaType::JSON),
        }
    };
    let object = object.typed(&read.object_type).map_err(|error| Refusal::InvalidAnswer(in_full(&error)))?;
    object.document().kind().map_err(invalid)?;
    let encoded = match read.chain.run(vec![object.document().clone()]).await.pop() {
        Some(Outcome::Unchanged) => object.encode(None, read.media_type.transform),
        Some(Outcome::Edited(bytes)) => object.encode(Some(&bytes), read.media_type.transform),
        Some(Outcome::Failed(failure)) => return Err(Refusal::Filter(failure)),
        Some(Outcome::Hidden) | None => {
            return Err(Refusal::NotFound {
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
