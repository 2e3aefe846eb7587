//! A get that filters match: the object is read whole, goes through the chain, and is answered, or 404 if hidden.
//! Memory: the object, at most [`LIMIT`], and its edited copy.

use http::{Method, Response};
use weir_document::Document;

use super::Proxy;
use super::body::{ResponseBody, empty, full};
use super::read::{Answer, Read};
use super::respond::Refusal;
use crate::filter::Outcome;

/// The largest object: etcd's are 1.5 MiB, aggregated APIs may have larger ones.
pub(super) const LIMIT: usize = 32 << 20;

/// Answers a matched get.
pub(super) async fn get(proxy: &Proxy, read: Read) -> Result<Response<ResponseBody>, Refusal> {
    let (parts, plain) = match read.ask(proxy, read.path.clone()).await? {
        Answer::Json(parts, plain) => (parts, plain),
        Answer::Other(answer) => return Ok(answer),
    };
    let bytes = plain.collect(LIMIT).await.map_err(|error| Refusal::Garbage(error.to_string()))?;
    let object = Document::json(bytes.clone());
    object.kind().map_err(|error| Refusal::Garbage(error.to_string()))?;
    let bytes = match read.chain.run(vec![object]).await.pop() {
        Some(Outcome::Unchanged) => bytes,
        Some(Outcome::Edited(bytes)) => bytes,
        Some(Outcome::Failed(failure)) => return Err(Refusal::Filter(failure)),
        Some(Outcome::Hidden) | None => {
            return Err(Refusal::NotFound {
                resource: read.resource.resource.clone(),
                name: read.resource.name.clone().unwrap_or_default(),
            });
        }
    };
    let body = if read.method == Method::HEAD { empty() } else { full(bytes) };
    Ok(Response::from_parts(parts, body))
}
