//! Writes of what filters match.
//!
//! A client that writes back what it was shown would make the filter's cut the cluster's state, and the server could not
//! tell: the version is the true one. So an object that the client's chain alters is not to be replaced, nor patched by
//! position or by whole arrays (JSON Patch, merge patch). What names its fields or merges by key (server-side apply,
//! strategic merge), sub-resources and deletion pass. The object is looked at with the client's own credential; who may
//! not read it was shown nothing of it. Between that look and the write it may change, which the version that the client
//! sends along catches.
//!
//! The answer to a write shows the object as a read would, but never hides it: the write stands, whatever filters say.
//! Memory: the object, or all that a deletion of a collection answers, at most [`LIMIT`].

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode, Version, header};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use weir_document::Document;
use weir_document::json::{self, Joiner, ListSplitter, Piece};

use super::forward;
use super::get::LIMIT;
use super::read::{ObjectsAnswer, ReadAnswer, ReadParts, ReadRequest, negotiate};
use crate::codec::ObjectType;
use crate::codec::object::EncodedObject;
use crate::proxy::Proxy;
use crate::proxy::body::{Meter, ResponseBody, full};
use crate::proxy::headers::{self};
use crate::proxy::respond::Refusal;
use weir_kube::{Encoding, MediaType, Transform};
use weir_kube::{Query, RequestInfo, ResourceRequest, Verb};
use weir_runtime::{Chain, Failure, Unwritable};
use weir_upstream::Identity;
use weir_upstream::Plain;
use weir_upstream::{Head, Purpose};

/// What stands for an answer that can not be shown: the write was done all the same.
const DONE: &[u8] = br#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Success"}"#;

/// A write that filters match.
pub(in crate::proxy) struct Write {
    pub(in crate::proxy) chain: Chain,
    pub(in crate::proxy) component: String,
    pub(in crate::proxy) identity: Identity,
    pub(in crate::proxy) parsed: RequestInfo,
    pub(in crate::proxy) resource: ResourceRequest,
}

/// An answer that can not be shown as the client asked for it.
struct Unshown(String);

impl Write {
    /// Answers it.
    pub(in crate::proxy) async fn answer(
        self,
        proxy: &Arc<Proxy>,
        request: http::Request<Incoming>,
        begun: Instant,
    ) -> Response<ResponseBody> {
        let encoding = Encoding::for_errors(request.headers());
        let (path, component) = (self.parsed.forward.clone(), self.component.clone());
        let answer = self.carried_out(proxy, request).await.unwrap_or_else(|refusal| {
            tracing::warn!(%path, component, code = refusal.code().as_u16(), error = %refusal, "a write was not carried out; the client is told by a Status");
            refusal.response(encoding)
        });
        Meter::new(proxy.metrics.clone(), "write", begun).attach(answer)
    }

    async fn carried_out(
        self,
        proxy: &Arc<Proxy>,
        request: http::Request<Incoming>,
    ) -> Result<Response<ResponseBody>, Refusal> {
        let (mut parts, body) = request.into_parts();
        if self.replaces(&parts.headers)
            && let Some(answer) = self.refused(proxy, &parts.headers).await?
        {
            return Ok(answer);
        }
        let media_type = self.media_type(&parts.headers);
        headers::prepare_request(&mut parts.headers, self.identity);
        parts.headers.insert(header::ACCEPT, media_type.upstream_accept());
        parts.headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("gzip"));
        let purpose = if self.resource.is_heartbeat() { Purpose::Heartbeat } else { Purpose::Short };
        let head = Head { method: parts.method, path: self.parsed.forward.clone(), headers: parts.headers };
        let body = body.map_err(Into::into).boxed_unsync();
        let answer = proxy.upstream.send(self.identity, purpose, head, body).await?;
        let (mut parts, body) = answer.into_parts();
        headers::prepare_answer(&mut parts);
        if !parts.status.is_success() {
            return Ok(Response::from_parts(parts, forward::through(body)));
        }
        let content_type =
            parts.headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let encoding = Encoding::from_content_type(content_type);
        let plain = Plain::new(&parts.headers, body);
        let shown = match (encoding, plain) {
            (Some(encoding), Ok(plain)) => self.shown(encoding, media_type, plain).await,
            (None, _) => Err(Unshown(format!("content type {content_type:?}"))),
            (_, Err(reason)) => Err(Unshown(reason)),
        };
        let (encoding, bytes, failure) = match shown {
            Ok((bytes, failure)) => (encoding.unwrap_or(Encoding::Json), bytes, failure.map(|told| told.to_string())),
            Err(Unshown(reason)) => (Encoding::Json, Bytes::from_static(DONE), Some(reason)),
        };
        headers::filtered_answer(&mut parts.headers, encoding.content_type(Verb::Get));
        if let Some(reason) = failure {
            tracing::warn!(path = %self.parsed.forward, component = self.component, reason, "a write was carried out and its answer is not wholly filtered");
            warn(&mut parts.headers, &reason);
        }
        Ok(Response::from_parts(parts, full(bytes)))
    }

    /// Whether the write puts what the client holds in the place of what there is.
    fn replaces(&self, headers: &HeaderMap) -> bool {
        if self.resource.subresource.is_some() || self.resource.name.is_none() {
            return false;
        }
        match self.resource.verb {
            Verb::Update => true,
            Verb::Patch => headers.get_all(header::CONTENT_TYPE).iter().any(|value| {
                let media = String::from_utf8_lossy(value.as_bytes()).to_ascii_lowercase();
                let media = media.split(';').next().unwrap_or_default().trim();
                matches!(media, "application/json-patch+json" | "application/merge-patch+json")
            }),
            _ => false,
        }
    }

    /// A read of the object as it is now, with the credential and the chain of the write.
    fn read(&self, headers: &HeaderMap) -> Result<ReadRequest, Refusal> {
        let path = self.parsed.forward.path().parse();
        let read = ReadRequest::new(ReadParts {
            chain: self.chain.clone(),
            component: self.component.clone(),
            identity: self.identity,
            method: Method::GET,
            version: Version::HTTP_11,
            headers: headers.clone(),
            path: path.map_err(|_| Refusal::InvalidAnswer("the path of the object cannot be asked for".to_owned()))?,
            query: Query::default(),
            resource: ResourceRequest { verb: Verb::Get, ..self.resource.clone() },
            compress: false,
        });
        Ok(read.with_media_type(MediaType::JSON))
    }

    /// The answer instead of the write: none when it may go on.
    async fn refused(
        &self,
        proxy: &Arc<Proxy>,
        headers: &HeaderMap,
    ) -> Result<Option<Response<ResponseBody>>, Refusal> {
        let read = self.read(headers)?;
        let path = read.path.clone();
        let ObjectsAnswer { body, encoding, .. } = match read.send(proxy, path).await? {
            ReadAnswer::Objects(objects) => objects,
            // Who was shown nothing writes nothing back; of what else is wrong the server tells at the write itself.
            ReadAnswer::Other(answer)
                if matches!(
                    answer.status(),
                    StatusCode::NOT_FOUND | StatusCode::FORBIDDEN | StatusCode::UNAUTHORIZED
                ) =>
            {
                return Ok(None);
            }
            ReadAnswer::Other(answer) => return Ok(Some(answer)),
        };
        let garbage = |reason: String| Refusal::InvalidAnswer(reason);
        let bytes = body.collect(LIMIT).await.map_err(|error| garbage(error.to_string()))?;
        let object =
            EncodedObject::decode(encoding, Transform::None, bytes).map_err(|error| garbage(error.to_string()))?;
        let Some(object) = object else { return Ok(None) };
        let object = object.typed(&read.object_type).map_err(|error| garbage(error.to_string()))?;
        match self.chain.may_write_back(object.document().clone()).await {
            Ok(()) => Ok(None),
            Err(Unwritable::Altered { filter, hidden }) => Err(Refusal::WriteBack {
                resource: self.resource.resource.clone(),
                name: self.resource.name.clone().unwrap_or_default(),
                filter,
                hidden,
            }),
            Err(Unwritable::Unknown(failure)) => Err(Refusal::Filter(failure)),
        }
    }

    /// The form of the answer: a Table's cells may show what filters hide, and no second answer can be asked for.
    fn media_type(&self, headers: &HeaderMap) -> MediaType {
        let media_type = negotiate(headers, &self.resource, &self.parsed.query);
        match (media_type.transform, self.resource.verb) {
            (Transform::Table(..), _) | (_, Verb::DeleteCollection) => MediaType::JSON,
            _ => media_type,
        }
    }

    async fn shown(
        &self,
        encoding: Encoding,
        media_type: MediaType,
        plain: Plain,
    ) -> Result<(Bytes, Option<Failure>), Unshown> {
        let bytes = plain.collect(LIMIT).await.map_err(|error| Unshown(error.to_string()))?;
        let unshown = |error: weir_document::Error| Unshown(error.to_string());
        if self.resource.verb == Verb::DeleteCollection
            && encoding == Encoding::Json
            && Document::json(bytes.clone()).kind().map_err(unshown)?.ends_with("List")
        {
            return self.list(bytes).await;
        }
        let Some(object) = EncodedObject::decode(encoding, media_type.transform, bytes.clone()).map_err(unshown)?
        else {
            return Ok((bytes, None));
        };
        // A deletion answers so when the object is gone at once.
        if object.document().kind().map_err(unshown)? == "Status" {
            return Ok((bytes, None));
        }
        let object = object.typed(&ObjectType::of(&self.resource)).map_err(|error| Unshown(error.to_string()))?;
        let written = self.chain.show_written(object.document().clone()).await;
        let bytes = object.encode(written.edited.as_ref(), media_type.transform).map_err(unshown)?;
        Ok((bytes, written.failure))
    }

    async fn list(&self, bytes: Bytes) -> Result<(Bytes, Option<Failure>), Unshown> {
        let unshown = |error: json::SplitError| Unshown(error.to_string());
        let mut splitter = ListSplitter::with_limit(LIMIT);
        splitter.push(bytes);
        splitter.finish();
        let mut pieces = Vec::new();
        while let Some(piece) = splitter.next().map_err(unshown)? {
            pieces.push(piece);
        }
        let item_type = ObjectType::of(&self.resource).or_of_list(&self.resource.api_version(), splitter.meta());
        let (mut shown, mut joiner, mut failure) = (Vec::new(), Joiner::new(), None);
        for piece in pieces {
            let batch = match piece {
                Piece::Head { bytes } | Piece::Tail { bytes } => {
                    shown.push(bytes);
                    continue;
                }
                Piece::Batch(batch) => batch,
            };
            let mut outcomes = Vec::with_capacity(batch.items.len());
            for document in (0..batch.items.len()).filter_map(|index| batch.json(index)) {
                let document = item_type.apply(document).map_err(|error| Unshown(error.to_string()))?;
                let written = self.chain.show_written(document).await;
                failure = failure.or(written.failure);
                outcomes.push(written.edited.map_or(json::ItemOutcome::Keep, json::ItemOutcome::Edit));
            }
            shown.extend(joiner.push(&batch, outcomes).map_err(unshown)?);
        }
        Ok((shown.concat().into(), failure))
    }
}

/// Tells the client of something that is not wrong with its request (RFC 7234, 5.5; kubectl prints it).
fn warn(headers: &mut HeaderMap, reason: &str) {
    let text: String = reason
        .chars()
        .filter(|c| (' '..='~').contains(c))
        .flat_map(|c| matches!(c, '"' | '\\').then_some('\\').into_iter().chain([c]))
        .take(400)
        .collect();
    if let Ok(value) = HeaderValue::from_str(&format!("299 - \"weir: {}\"", text.trim_end_matches('\\'))) {
        headers.append(header::WARNING, value);
    }
}
