//! Lists of a reflector: page by page, within the rate of the uplink.
//!
//! All pages show the state of the first one. A list whose pages disagree, or that does not end, is an error, and the store
//! keeps what it has.

use weir_kube::Encoding;

use super::collection::ObjectContent;
use super::decode::{self, PageDecoder};
use super::list_room::ListRoom;
use super::object::{Object, ObjectFormat};
use super::reflector::ResourceReflector;
use super::resource_store::{BESIDE, ResourceStore};
use super::sources::MAX_OF_PEER;
use crate::error::ReflectorError;
use crate::query::escaped;
use crate::resource_client::{RequestError, ResponseChunks};

/// Items per page, as in client-go.
const PAGE: usize = 500;
/// The most pages of a list in a row that contain no object. An API server sends some if a selector matches few objects.
const MAX_EMPTY_PAGES: usize = 100;

/// The form in which a list is requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ListForm {
    /// Whole objects.
    Objects,
    /// `PartialObjectMetadataList`.
    Metadata,
}

/// A complete list.
pub(super) struct ListedObjects {
    pub(super) format: ObjectFormat,
    pub(super) objects: Vec<Object>,
    pub(super) version: u64,
}

/// One page of a list.
struct Page {
    objects: Vec<Object>,
    format: ObjectFormat,
    version: u64,
    continue_token: Option<String>,
}

impl ResourceStore {
    /// What bounds the lists of the store.
    #[must_use]
    pub fn room(&self) -> &ListRoom {
        &self.room
    }
}

impl ResourceReflector {
    /// Brings the store up to date: fetches what has changed if that is cheaper, else everything.
    pub(super) async fn list(&self) -> Result<(), RequestError> {
        let result = self.list_or_fetch_changes().await;
        self.store.room().end();
        result
    }

    async fn list_or_fetch_changes(&self) -> Result<(), RequestError> {
        let listed = match self.changed_objects().await? {
            Some(listed) => listed,
            None => self.pages(ListForm::Objects, "").await?,
        };
        if self.reads_from_peer() && listed.version < self.store.snapshot().version {
            return Err(self.client().unavailable("the peer is behind this node"));
        }
        self.store.replace(listed.format, listed.objects, listed.version);
        Ok(())
    }

    /// The present resourceVersion of the API server.
    pub(super) async fn newest_version(&self) -> Result<u64, RequestError> {
        let path = self.collection.path_with("limit=1");
        let page = self.page(ListForm::Objects, &path, 0).await;
        self.store.room().end();
        Ok(page?.version)
    }

    /// Lists all pages. `more` are further parameters, each with a leading `&`.
    pub(super) async fn pages(&self, form: ListForm, more: &str) -> Result<ListedObjects, RequestError> {
        let mut listed: Option<ListedObjects> = None;
        let (mut bytes, mut empty) = (0_usize, 0);
        let mut token: Option<String> = None;
        loop {
            let limit = self.page_size(listed.as_ref().map_or(0, |listed| listed.objects.len()));
            let parameters = match &token {
                None => format!("limit={limit}{more}"),
                // The token contains the version.
                Some(token) => format!("limit={limit}&continue={}", escaped(token)),
            };
            let mut page = self.page(form, &self.collection.path_with(&parameters), bytes).await?;
            bytes = bytes.saturating_add(page.objects.iter().map(|object| object.bytes.len() + BESIDE).sum());
            self.check_size(bytes)?;
            empty = if page.objects.is_empty() { empty + 1 } else { 0 };
            if empty > MAX_EMPTY_PAGES {
                return Err(self.client().invalid_response("the list does not end: its pages contain nothing"));
            }
            let all = match listed.take() {
                None => ListedObjects { format: page.format, objects: page.objects, version: page.version },
                Some(all) if all.version != page.version || all.format != page.format => {
                    return Err(self.client().invalid_response("the list changed between two pages"));
                }
                Some(mut all) => {
                    all.objects.append(&mut page.objects);
                    all
                }
            };
            token = match page.continue_token {
                Some(next) if Some(&next) == token.as_ref() => {
                    return Err(self.client().invalid_response("a page names itself as the next one"));
                }
                next => next,
            };
            if token.is_none() {
                return Ok(all);
            }
            listed = Some(all);
        }
    }

    /// The items of the next page: some seconds of the uplink's rate, so that a page does not block the link, and so that it
    /// is complete before the API server times out.
    fn page_size(&self, listed: usize) -> usize {
        match self.uplink() {
            Some(uplink) => uplink.page_size(self.store.received().bytes(), listed).min(PAGE),
            None => PAGE,
        }
    }

    fn too_large(&self) -> RequestError {
        let (resource, limit) = (self.collection.resource.clone(), self.max_list());
        RequestError::Other(ReflectorError::TooLarge { resource, limit })
    }

    /// The most bytes of a list, from where it is read now.
    fn max_list(&self) -> usize {
        match self.reads_from_peer() {
            true => self.timing.max_list.min(MAX_OF_PEER),
            false => self.timing.max_list,
        }
    }

    /// Refuses a list that takes too much memory, or more than is left to the owner of the store.
    fn check_size(&self, bytes: usize) -> Result<(), RequestError> {
        if bytes > self.max_list() {
            return Err(self.too_large());
        }
        let resource = self.collection.resource.clone();
        let no_room = || RequestError::Other(ReflectorError::NoRoom { resource });
        self.store.room().arrive(bytes).then_some(()).ok_or_else(no_room)
    }

    /// Requests a page of a list of which `before` bytes are there. They count while they arrive: a server need not heed
    /// `limit`, and peers do not.
    async fn page(&self, form: ListForm, path: &str, before: usize) -> Result<Page, RequestError> {
        let mut room = self.max_list().saturating_sub(before);
        let invalid = |error: decode::DecodeError| self.client().invalid_response(error);
        let response = self.client().get(path, self.accept(form), true).await?;
        if !self.reads_from_peer() {
            self.store.note_warnings(response.headers());
        }
        let received = self.store.received();
        let mut chunks = ResponseChunks::new(self.client(), response, received.clone())?;
        let encoding = chunks.encoding();
        let mut decoder = PageDecoder::new(encoding);
        let mut items = Vec::new();
        let (mut counted, mut size) = (0, before);
        loop {
            let earlier = received.bytes();
            match tokio::time::timeout(self.timing.response_timeout, chunks.next()).await {
                Ok(Ok(Some(chunk))) => {
                    room = room.checked_sub(chunk.len()).ok_or_else(|| self.too_large())?;
                    decoder.push(chunk);
                    decoder.items(&mut items).map_err(invalid)?;
                    size += items.iter().skip(counted).map(|item| item.len() + BESIDE).sum::<usize>();
                    counted = items.len();
                    self.check_size(size)?;
                }
                Ok(Ok(None)) => break,
                Ok(Err(reason)) => return Err(self.client().unavailable(reason)),
                Err(_) => {
                    let reason = format!("the list stalled for {:?}", self.timing.response_timeout);
                    return Err(self.client().unavailable(reason));
                }
            }
            if let Some(uplink) = self.uplink() {
                uplink.take(received.bytes().saturating_sub(earlier)).await;
            }
        }
        decoder.finish();
        decoder.items(&mut items).map_err(invalid)?;
        let meta = decoder.meta();
        let format = decode::list_format(encoding, meta).map_err(invalid)?;
        let version = meta.resource_version.as_deref().and_then(|version| version.parse().ok());
        let version = version
            .ok_or_else(|| self.client().invalid_response("the list has no numeric metadata.resourceVersion"))?;
        let content = match form {
            ListForm::Objects => self.collection.content,
            ListForm::Metadata => ObjectContent::Complete,
        };
        let objects = items.iter().map(|item| decode::object(&format, content, item)).collect::<Result<_, _>>();
        Ok(Page { objects: objects.map_err(invalid)?, format, version, continue_token: meta.continue_token.clone() })
    }

    fn accept(&self, form: ListForm) -> &'static str {
        match (form, self.encoding) {
            (ListForm::Objects, _) => self.collection.accept_list(),
            (ListForm::Metadata, Encoding::Json) => "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
            (ListForm::Metadata, Encoding::Protobuf) => {
                concat!(
                    "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,",
                    "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
                )
            }
        }
    }
}
