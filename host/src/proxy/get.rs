//! A get that filters match: the object is read whole, goes through the chain, and is answered, or 404 if hidden.
//! Memory: the object, at most [`LIMIT`], and its edited copy.

use http::{Method, Response, header};
use http_body::Body as _;

use super::Proxy;
use super::body::{ResponseBody, empty, full};
use super::object::Object;
use super::read::{Answer, Objects, Read};
use super::respond::Refusal;
use weir_kube::MediaType;
use weir_runtime::Outcome;

/// The largest object: etcd's are 1.5 MiB, aggregated APIs may have larger ones.
pub(super) const LIMIT: usize = 32 << 20;

/// Answers a matched get.
pub(super) async fn get(proxy: &Proxy, mut read: Read) -> Result<Response<ResponseBody>, Refusal> {
    let garbage = |error: weir_document::Error| Refusal::Garbage(error.to_string());
    let (mut parts, object) = loop {
        let Objects { parts, plain, encoding } = match read.ask(proxy, read.own_path()).await? {
            Answer::Objects(objects) => objects,
            Answer::Other(answer) => return Ok(answer),
        };
        let bytes = plain.collect(LIMIT).await?;
        match Object::open(encoding, read.media_type.transform, bytes).map_err(garbage)? {
            Some(object) if object.is_whole() => break (parts, object),
            _ => read = read.with_media_type(MediaType::JSON),
        }
    };
    let object = object.typed(&read.object_type).map_err(|error| Refusal::Garbage(error.to_string()))?;
    object.document().kind().map_err(garbage)?;
    let shown = match read.chain.run(vec![object.document().clone()]).await.pop() {
        Some(Outcome::Unchanged) => object.show(None, read.media_type.transform),
        Some(Outcome::Edited(bytes)) => object.show(Some(&bytes), read.media_type.transform),
        Some(Outcome::Failed(failure)) => return Err(Refusal::Filter(failure)),
        Some(Outcome::Hidden) | None => {
            return Err(Refusal::NotFound {
                resource: read.resource.resource.clone(),
                name: read.resource.name.clone().unwrap_or_default(),
            });
        }
    };
    let body = full(shown.map_err(garbage)?);
    if read.method == Method::HEAD {
        if let Some(length) = body.size_hint().exact() {
            parts.headers.insert(header::CONTENT_LENGTH, length.into());
        }
        return Ok(Response::from_parts(parts, empty()));
    }
    Ok(Response::from_parts(parts, body))
}
