//! Remembers single objects: the answers to named gets, which node components repeat when they start.
//!
//! An object is kept as the API server sent it, by credential, path and encoding, and passes the chain when it is replayed.
//! Only its presence is remembered: without an API server, no get is answered by 404 from here. Objects that change all the
//! time (leases, events, metrics) and answers to reviews are not kept. `view/src/registry.rs` decides of which clients and
//! resources objects are kept: Secrets are kept for kubelet.

use std::sync::Arc;

use bytes::Bytes;
use http::uri::PathAndQuery;
use http::{Method, Response, StatusCode, header};
use sha2::{Digest as _, Sha256};
use weir_kube::{Encoding, Identity, MediaType, ResourceRequest, Transform, Verb};
use weir_runtime::Chain;
use weir_upstream::{Gunzip, error_report};

use super::answer_memory::{Answer, AnswerKey, KEEP, WRITE_INTERVAL};
use crate::offline::Offline;
use crate::serve::body::ResponseBody;
use crate::serve::caller_request::CallerRequest;
use crate::serve::get;
use crate::serve::read::{ReadRequest, negotiate};
use crate::serve::respond::StatusError;
use crate::serve::route::Filtering;
use weir_access::{Caller, hash_part, hash_text};
use weir_upstream::clock;
use weir_wire::ObjectType;
use weir_wire::object::EncodedObject;

/// The groups of resources that are not kept.
const GROUPS: [&str; 6] = [
    "authentication.k8s.io",
    "authorization.k8s.io",
    "coordination.k8s.io",
    "events.k8s.io",
    "metrics.k8s.io",
    "custom.metrics.k8s.io",
];

/// A get of one object that may be remembered.
#[derive(Debug, Clone)]
pub(crate) struct ObjectRead {
    pub(super) key: AnswerKey,
    /// The name of the same object in the other encoding.
    other: String,
    media_type: MediaType,
    resource: ResourceRequest,
    /// Whether the client asks for the whole object.
    is_whole: bool,
    path: PathAndQuery,
    /// Whether a view has it, so that it need not be kept once more. An earlier copy is dropped in any case.
    pub(super) is_held: bool,
}

impl Offline {
    /// Returns a get that may be remembered.
    pub(super) fn object_read(&self, asked: &CallerRequest) -> Option<ObjectRead> {
        let CallerRequest { method, headers, parsed, caller, .. } = asked;
        let resource = parsed.resource()?;
        let group = resource.resource.group.as_str();
        let is_kept = *method == Method::GET
            && resource.verb == Verb::Get
            && resource.subresource.is_none()
            && !GROUPS.contains(&group)
            && (group, resource.resource.resource.as_str()) != ("", "events");
        if !is_kept {
            return None;
        }
        let asked = negotiate(headers, resource, &parsed.query).media_type;
        let media_type = match asked.transform {
            Transform::Table(..) => MediaType { transform: Transform::None, ..asked },
            Transform::None | Transform::Metadata(_) => asked,
        };
        let is_whole = asked.transform == Transform::None;
        let name = |encoding: &[u8]| {
            let mut hash = Sha256::new();
            hash_part(&mut hash, caller.key().as_bytes());
            hash_part(&mut hash, parsed.forward.path().as_bytes());
            hash_part(&mut hash, encoding);
            format!("object/{}", hash_text(hash))
        };
        let (json, protobuf) = (name(b"json"), name(b"protobuf"));
        let (name, other) = if media_type.encoding == Encoding::Json { (json, protobuf) } else { (protobuf, json) };
        let now = clock::now();
        let expires = match caller.identity() {
            Identity::Client if !self.handlers.access.is_node_component(caller) => {
                let grace = now + self.handlers.outage.grace();
                caller.expires().map_or(grace, |expires| expires.min(grace))
            }
            Identity::Client => caller.expires().map_or(now + KEEP, |expires| expires.min(now + KEEP)),
            // The client of a node credential or a certificate is authorized again when it reads.
            Identity::Node | Identity::Impersonated | Identity::Daemon => now + KEEP,
        };
        let confidential = (group, resource.resource.resource.as_str()) == ("", "secrets");
        let key = AnswerKey {
            name,
            owner: self.handlers.access.owner(caller),
            confidential,
            expires,
            interval: WRITE_INTERVAL,
        };
        let path = PathAndQuery::try_from(parsed.forward.path()).ok()?;
        Some(ObjectRead { key, other, media_type, resource: resource.clone(), is_whole, path, is_held: false })
    }

    /// Keeps an object that Weir has read to filter it, if it has the form in which it is kept.
    pub(crate) fn keep(
        &self,
        object: &ObjectRead,
        read: &ReadRequest,
        encoding: Encoding,
        parts: &http::response::Parts,
        body: Bytes,
    ) {
        if !object.is_held && object.is_kept_as(encoding, read) {
            self.answers.put(&object.key, object.answer(parts, body));
        }
    }

    /// Fetches the whole of an object that a client has read in part, as kubectl reads tables, with its own credential. The
    /// client does not wait. One that is being fetched or copied is not fetched again, and few are fetched at a time.
    pub(crate) fn fetch_whole(self: &Arc<Self>, caller: &Caller, read: ObjectRead) {
        let Ok(fetch) = self.fetches.clone().try_acquire_owned() else { return };
        let Some(place) = self.answers.place(&read.key) else { return };
        let (offline, caller) = (self.clone(), caller.clone());
        self.handlers.tasks.spawn_until_stop(async move {
            let mut headers = caller.headers().clone();
            headers.insert(header::ACCEPT, read.encoding().content_type(Verb::Get));
            let path = read.path.clone();
            let fits = |bytes| offline.answers.has_room(&place, bytes);
            match offline.fetch(caller.identity(), read.path.clone(), headers, fits).await {
                Ok((parts, body)) if parts.status == StatusCode::OK => {
                    // The share that it took is what it needs to be remembered.
                    drop(place);
                    offline.answers.put(&read.key, read.answer(&parts, body));
                    tracing::debug!(%path, "object kept for the time without an API server");
                }
                Ok((parts, _)) => tracing::debug!(%path, status = %parts.status, "object not kept"),
                Err(reason) => tracing::debug!(%path, reason, "object not kept"),
            }
            drop(fetch);
        });
    }
}

impl ObjectRead {
    /// The names under which the object may be kept.
    pub(crate) fn keys(&self) -> [AnswerKey; 2] {
        [self.key.clone(), AnswerKey { name: self.other.clone(), ..self.key.clone() }]
    }

    /// Whether the client asks for a part of the object.
    pub(crate) fn is_partial(&self) -> bool {
        !self.is_whole
    }

    /// The key under which the object is kept.
    pub(crate) fn key(&self) -> AnswerKey {
        self.key.clone()
    }

    /// The encoding in which the client gets the object.
    pub(crate) fn encoding(&self) -> Encoding {
        self.media_type.encoding
    }

    /// Whether a forwarded response has the object in the form in which it is kept.
    pub(crate) fn is_kept_as_forwarded(&self, response: &Response<ResponseBody>) -> bool {
        let sent = response.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
        self.is_whole && sent.and_then(Encoding::from_content_type) == Some(self.media_type.encoding)
    }

    /// Whether an object that Weir has read to filter it has the form in which it is kept.
    fn is_kept_as(&self, encoding: Encoding, read: &ReadRequest) -> bool {
        encoding == self.media_type.encoding && !matches!(read.media_type.transform, Transform::Table(..))
    }

    /// An object that Weir has read to filter it.
    pub(super) fn answer(&self, parts: &http::response::Parts, body: Bytes) -> Answer {
        Answer::of(parts, body, self.key.expires)
    }

    /// Returns the object as the client may see it.
    ///
    /// # Errors
    /// The object is hidden, or a filter failed.
    pub(crate) async fn replay(
        &self,
        answer: &Answer,
        chain: Option<&Chain>,
    ) -> Result<Response<ResponseBody>, StatusError> {
        let media_type = self.media_type;
        if chain.is_none() && media_type.transform == Transform::None {
            return Ok(answer.response());
        }
        let invalid = |error: weir_document::Error| StatusError::InvalidResponse(error_report(&error));
        let object = EncodedObject::decode(media_type.encoding, media_type.transform, answer.body.clone());
        let missing = || StatusError::InvalidResponse("the remembered object has no content".to_owned());
        let object = object.map_err(invalid)?.ok_or_else(missing)?;
        let object = object.typed(&ObjectType::of(&self.resource));
        let object = object.map_err(|error| StatusError::InvalidResponse(error_report(&error)))?;
        let body = match chain {
            Some(chain) => {
                get::filtered(&Filtering::of(Some(chain.clone())), &object, media_type.transform, &self.resource)
                    .await?
            }
            None => object.encode(None, media_type.transform).map_err(invalid)?,
        };
        Ok(Answer { body, ..answer.clone() }.response())
    }
}

/// Decompresses an object, so that it can be filtered later; `None` if that fails, or if it is larger than those that filters
/// get.
pub(crate) fn decoded(answer: Answer) -> Option<Answer> {
    let Some(gunzip) = Gunzip::of(&answer.headers).ok()? else { return Some(answer) };
    // A part of the object must not pass for all of it.
    let body = gunzip.whole(answer.body.clone(), get::LIMIT)?;
    let mut headers = answer.headers.clone();
    headers.remove(header::CONTENT_ENCODING);
    Some(Answer { headers, body, status: StatusCode::OK, ..answer })
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    #[test]
    fn a_compressed_object_is_decoded_as_a_whole_or_not_at_all() {
        let compressed = |size: usize| {
            let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
            encoder.write_all(&vec![b'x'; size]).unwrap();
            let mut parts = Response::new(()).into_parts().0;
            parts.headers.insert(header::CONTENT_ENCODING, http::HeaderValue::from_static("gzip"));
            parts.headers.insert(header::CONTENT_TYPE, http::HeaderValue::from_static("application/json"));
            decoded(Answer::of(&parts, encoder.finish().unwrap().into(), clock::now()))
        };
        for size in [0, 9000, get::LIMIT] {
            let answer = compressed(size).unwrap();
            assert_eq!((answer.body.len(), answer.headers.get(header::CONTENT_ENCODING)), (size, None));
        }
        assert_eq!(compressed(get::LIMIT + 1), None);
    }
}
