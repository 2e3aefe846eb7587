//! The present state that a watch without a view sends before its events: objects that have not changed after the client's
//! version, as the filters in force show them. The events bring later changes.
//!
//! Memory: one batch of a list as it arrives.

use std::sync::Arc;

use bytes::Bytes;
use http::Response;
use weir_document::json::EventType;
use weir_document::{Document, TypeMeta};
use weir_kube::{Encoding, MediaType, Transform};
use weir_runtime::Outcome;
use weir_store::cache::ObjectFormat;
use weir_upstream::error_report;

use super::hidden_keys::HiddenKeys;
use crate::proxy::Proxy;
use crate::proxy::body::ResponseBody;
use crate::proxy::respond::StatusError;
use crate::proxy::response::cached::bookmark::bookmark;
use crate::proxy::response::list::list_input::ListInput;
use crate::proxy::response::read::{ObjectsResponse, ReadRequest, ReadResponse};
use weir_view::frame;
use weir_wire::CodecError;
use weir_wire::list::{ItemBatch, ListPiece};
use weir_wire::partial;

/// A list of the API server that becomes the first events of a watch.
pub(super) struct PresentState {
    input: ListInput,
    encoding: Encoding,
    /// The version from which the client continues, as far as it is a number.
    version: Option<u64>,
    /// Whether to send the present state, because the client may hold another one. Else only the hidden objects are recorded.
    repeats: bool,
    takes_bookmarks: bool,
    /// The type of an object that was sent.
    sent: Option<TypeMeta>,
}

/// A part of the present state.
#[derive(Default)]
pub(super) struct PresentBatch {
    /// Encoded events.
    pub(super) events: Vec<Bytes>,
    /// The keys of objects that the client does not have from here on.
    pub(super) hidden: Vec<u64>,
    /// The version of the list, at its end.
    pub(super) at: Option<u64>,
}

impl PresentState {
    /// Requests the objects that a watch selects, with its client's credential, at its version or later. `Err`: the API server's
    /// own answer, for example that the client may not list.
    ///
    /// # Errors
    /// The API server returns no valid response.
    pub(super) async fn request(
        proxy: &Proxy,
        read: &ReadRequest,
        encoding: Encoding,
    ) -> Result<Result<Self, Response<ResponseBody>>, StatusError> {
        let text = read.query.first("resourceVersion").unwrap_or_default();
        let version = text.parse().ok().filter(|version| *version > 0);
        let (list, mut query) = read.list_of_selected(MediaType { encoding, transform: Transform::None });
        if version.is_some() {
            query = query.with("resourceVersion", text).with("resourceVersionMatch", "NotOlderThan");
        }
        let invalid = || StatusError::InvalidResponse("the list of a watch has no valid path".to_owned());
        let path = query.on(&read.resource.collection).ok_or_else(invalid)?;
        let ObjectsResponse { body, encoding, .. } = match list.send(proxy, path).await? {
            ReadResponse::Objects(objects) => objects,
            ReadResponse::Other(response) => return Ok(Err(response)),
        };
        let (stamps, resource) = (&proxy.chain_stamps, &read.resource.resource);
        Ok(Ok(Self {
            input: ListInput::new(read, encoding, body),
            encoding,
            version,
            // The stamps alone do not show what a view may have sent.
            repeats: !read.is_table()
                && (read.is_of_views(proxy) || !stamps.covers(read.filtering.version(), resource, text)),
            takes_bookmarks: read.query.flag("allowWatchBookmarks"),
            sent: None,
        }))
    }

    /// Returns the next events; `None` at the end.
    ///
    /// # Errors
    /// A filter failed, or the API server's response is no list or was interrupted.
    pub(super) async fn next(&mut self, read: &ReadRequest, to: Encoding) -> Result<Option<PresentBatch>, StatusError> {
        loop {
            match self.input.next().await? {
                Some(ListPiece::Items(items)) => return self.filter(read, &items, to).await.map(Some),
                Some(ListPiece::Head(_)) => {}
                Some(ListPiece::Tail(_)) => return self.bookmark(read, to).map(Some),
                None => return Ok(None),
            }
        }
    }

    async fn filter(
        &mut self,
        read: &ReadRequest,
        items: &ItemBatch,
        to: Encoding,
    ) -> Result<PresentBatch, StatusError> {
        let mut unchanged = items.documents().map_err(invalid)?;
        // Later changes are in the events.
        unchanged.retain(|object| !self.is_newer(object));
        let outcomes = read.filtering.run(unchanged.clone()).await;
        let mut batch = PresentBatch::default();
        for (object, outcome) in unchanged.iter().zip(outcomes) {
            let (event_type, shown) = match outcome {
                Outcome::Failed(failure) => return Err(StatusError::Filter(failure)),
                Outcome::Hidden => {
                    batch.hidden.push(HiddenKeys::key_of(object));
                    (EventType::Deleted, self.at_version(object)?)
                }
                Outcome::Unchanged => (EventType::Modified, object.bytes().clone()),
                Outcome::Edited(bytes) => (EventType::Modified, bytes),
            };
            if self.repeats {
                batch.events.push(self.event(event_type, object, shown, read.media_type.transform, to)?);
            }
        }
        Ok(batch)
    }

    /// A deletion does not raise the client's version, nor lower it.
    fn at_version(&self, object: &Document) -> Result<Bytes, StatusError> {
        let mut object = object.clone();
        if let Some(version) = self.version {
            object.set_resource_version(version).map_err(malformed)?;
        }
        Ok(object.bytes().clone())
    }

    fn event(
        &mut self,
        event_type: EventType,
        object: &Document,
        shown: Bytes,
        transform: Transform,
        to: Encoding,
    ) -> Result<Bytes, StatusError> {
        let api_version = object.api_version().map_err(malformed)?.into_owned();
        let type_meta = TypeMeta { api_version, kind: object.kind().map_err(malformed)?.into_owned() };
        let format = ObjectFormat { encoding: self.encoding, type_meta: Arc::new(type_meta.clone()) };
        self.sent = Some(type_meta);
        frame(event_type, &format, shown, to, transform).map_err(malformed)
    }

    /// Brings a client that takes bookmarks back to its version: what it was sent is older.
    fn bookmark(&self, read: &ReadRequest, to: Encoding) -> Result<PresentBatch, StatusError> {
        let mut batch = PresentBatch { at: self.input.version(), ..PresentBatch::default() };
        if let (Some(sent), Some(version), true) = (&self.sent, self.version, self.takes_bookmarks) {
            let type_meta = match read.media_type.transform {
                Transform::Metadata(version) => partial(version),
                Transform::None | Transform::Table(..) => sent.clone(),
            };
            batch.events.push(bookmark(&type_meta, version, false, to).map_err(malformed)?);
        }
        Ok(batch)
    }

    fn is_newer(&self, object: &Document) -> bool {
        let version = object.resource_version().ok().flatten().and_then(|version| version.parse::<u64>().ok());
        version.zip(self.version).is_some_and(|(version, held)| version > held)
    }
}

fn invalid(error: CodecError) -> StatusError {
    StatusError::InvalidResponse(error_report(&error))
}

fn malformed(error: weir_document::Error) -> StatusError {
    StatusError::InvalidResponse(error_report(&error))
}
