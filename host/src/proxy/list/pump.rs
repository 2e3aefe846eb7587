//! Moves a list through its chain: bytes in, batches of items filtered, bytes out. Pulled by the answer's body, so that
//! a slow client slows the API server's side and a client that is gone frees it.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use futures_util::FutureExt as _;
use http::uri::PathAndQuery;
use weir_document::json::{self, Batch, Joiner, ListSplitter, Piece, SplitError};
use weir_document::{Document, TypeMeta};

use crate::filter::{Failure, Outcome, Stamp};
use crate::proxy::Proxy;
use crate::proxy::body::BodyError;
use crate::proxy::encoding::Plain;
use crate::proxy::ledger::Hidden;
use crate::proxy::read::Read;
use crate::proxy::respond::Refusal;

/// The largest item.
const ITEM: usize = 32 << 20;
/// Input that is taken together if it is there already: larger batches, fewer calls.
const INPUT: usize = 128 << 10;
/// Slices that are larger on average leave as they are.
const SLICE: usize = 16 << 10;

/// A list on its way.
pub(super) struct Pump {
    proxy: Arc<Proxy>,
    read: Read,
    plain: Box<Plain>,
    splitter: ListSplitter,
    joiner: Joiner,
    item_type: Option<Arc<TypeMeta>>,
    hidden: Arc<Hidden>,
    /// Under which stamp the list began: its first page's; none if that is not known.
    begun: Option<Stamp>,
    ended: bool,
}

/// Why a list cannot go on.
#[derive(Debug)]
pub(super) enum PumpError {
    /// A filter failed on an object, which is at this path.
    Filter(Failure, Option<PathAndQuery>),
    /// What came is not a list.
    Garbage(String),
    /// The API server's side broke off.
    Body(BodyError),
}

impl From<SplitError> for PumpError {
    fn from(error: SplitError) -> Self {
        let source = std::error::Error::source(&error).map(|source| format!(": {source}")).unwrap_or_default();
        Self::Garbage(format!("{error}{source}"))
    }
}

impl Pump {
    pub(super) fn new(proxy: Arc<Proxy>, read: Read, plain: Box<Plain>) -> Self {
        let before = read.query.first("continue").filter(|token| !token.is_empty());
        let (begun, hidden) = match before.map(|token| proxy.ledger.pages_before(&read.key, token)) {
            None => (Some(read.stamp), Arc::default()),
            Some(None) => (None, Arc::default()),
            Some(Some((begun, hidden))) => (Some(begun), hidden),
        };
        Self {
            proxy,
            read,
            plain,
            splitter: ListSplitter::with_limit(ITEM),
            joiner: Joiner::new(),
            item_type: None,
            hidden,
            begun,
            ended: false,
        }
    }

    /// The next bytes of the answer; none at its end. Not to be called again after an error.
    pub(super) async fn next(&mut self) -> Result<Option<Vec<Bytes>>, PumpError> {
        loop {
            match self.splitter.next()? {
                Some(Piece::Head { bytes }) => {
                    self.item_type = self.item_type();
                    return Ok(Some(vec![bytes]));
                }
                Some(Piece::Batch(batch)) => return self.filter(batch).await.map(Some),
                Some(Piece::Tail { bytes }) => {
                    self.note();
                    return Ok(Some(vec![bytes]));
                }
                None if self.ended => return Ok(None),
                None => self.fill().await?,
            }
        }
    }

    async fn fill(&mut self) -> Result<(), PumpError> {
        let mut taken = 0;
        let mut next = self.plain.next().await;
        loop {
            match next.map_err(PumpError::Body)? {
                Some(bytes) => {
                    taken += bytes.len();
                    self.splitter.push(bytes);
                }
                None => {
                    self.splitter.finish();
                    self.ended = true;
                    return Ok(());
                }
            }
            if taken >= INPUT {
                return Ok(());
            }
            match self.plain.next().now_or_never() {
                Some(more) => next = more,
                None => return Ok(()),
            }
        }
    }

    /// What an item is, where the list says it before its items: those of built-in kinds do not say it themselves.
    fn item_type(&self) -> Option<Arc<TypeMeta>> {
        let meta = self.splitter.meta();
        let kind = meta.kind.as_deref()?.strip_suffix("List").filter(|kind| !kind.is_empty())?;
        let api_version = meta.api_version.clone().unwrap_or_else(|| self.read.resource.api_version());
        Some(Arc::new(TypeMeta { api_version, kind: kind.to_owned() }))
    }

    async fn filter(&mut self, batch: Batch) -> Result<Vec<Bytes>, PumpError> {
        let documents = (0..batch.items.len()).filter_map(|index| batch.item(index)).map(|bytes| {
            let document = Document::json(bytes);
            match &self.item_type {
                Some(item_type) => document.with_type(item_type.clone()),
                None => document,
            }
        });
        let outcomes = self.read.chain.run(documents.collect()).await;
        let mut joined = Vec::with_capacity(outcomes.len());
        for (index, outcome) in outcomes.into_iter().enumerate() {
            joined.push(match outcome {
                Outcome::Unchanged => json::Outcome::Keep,
                Outcome::Edited(bytes) => json::Outcome::Edit(bytes),
                Outcome::Hidden => {
                    let document = Document::json(batch.item(index).unwrap_or_default());
                    let key = hidden_key(&document).map_err(|error| PumpError::Garbage(error.to_string()))?;
                    Arc::make_mut(&mut self.hidden).insert(key);
                    json::Outcome::Drop
                }
                Outcome::Failed(failure) => {
                    let document = Document::json(batch.item(index).unwrap_or_default());
                    return Err(PumpError::Filter(failure, self.path_of(&document)));
                }
            });
        }
        Ok(coalesce(self.joiner.push(&batch, joined)?))
    }

    fn path_of(&self, document: &Document) -> Option<PathAndQuery> {
        let namespace = document.namespace().ok()?;
        self.read.resource.object_path(namespace.as_deref(), &document.name().ok()?)
    }

    /// Before the last bytes leave: what a watch that goes on from here will need to know.
    fn note(&self) {
        let (Some(begun), ledger) = (self.begun, &self.proxy.ledger) else { return };
        let meta = self.splitter.meta();
        if let Some(token) = &meta.continue_token {
            ledger.page(self.read.key, begun, token, self.hidden.clone());
        } else if let Some(version) = &meta.resource_version {
            ledger.ended(self.read.key, begun, version, self.hidden.clone());
        }
    }

    /// The error as an answer: nothing was sent yet.
    pub(super) fn refusal(&self, error: PumpError) -> Refusal {
        match error {
            PumpError::Filter(failure, _) => Refusal::Filter(failure),
            PumpError::Garbage(why) => Refusal::Garbage(why),
            PumpError::Body(error) => Refusal::Garbage(error.to_string()),
        }
    }

    /// The error as the end of a body that has begun; a failed object is remembered, so that the retry fails early.
    pub(super) fn abort(&self, error: PumpError) -> BodyError {
        let path = &self.read.path;
        match error {
            PumpError::Filter(failure, object) => {
                tracing::warn!(%path, component = self.read.component, error = %failure, "a filter failed in the middle of a list, which is aborted; its retry will fail at once until the object changes");
                if let Some(object) = object {
                    self.proxy.failed.remember(self.read.key, self.read.stamp, object);
                }
                BodyError::Filter(failure)
            }
            PumpError::Garbage(error) => {
                tracing::warn!(%path, component = self.read.component, error, "the API server's list cannot be read to its end; it is aborted");
                BodyError::Garbage(error)
            }
            PumpError::Body(error) => {
                tracing::warn!(%path, component = self.read.component, %error, "the API server's list broke off; so does the answer");
                error
            }
        }
    }
}

/// Many small slices become one: each would be a frame of its own, and copying costs less than that.
fn coalesce(slices: Vec<Bytes>) -> Vec<Bytes> {
    let length: usize = slices.iter().map(Bytes::len).sum();
    if slices.len() < 4 || length / slices.len() > SLICE {
        return slices;
    }
    let whole = slices.into_iter().fold(BytesMut::with_capacity(length), |mut whole, slice| {
        whole.extend_from_slice(&slice);
        whole
    });
    vec![whole.freeze()]
}

/// The key under which a hidden object is remembered.
pub(in crate::proxy) fn hidden_key(document: &Document) -> Result<u64, weir_document::Error> {
    Ok(Hidden::key(document.namespace()?.as_deref(), &document.name()?))
}
