//! Moves a list through its chain: bytes in, batches of items filtered, bytes out. Pulled by the answer's body, so that
//! a slow client slows the API server's side and a client that is gone frees it.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::FutureExt as _;
use http::uri::PathAndQuery;
use weir_document::Document;
use weir_document::json::{self, Batch, Piece, SplitError};

use super::wire::Wire;
use crate::proxy::Proxy;
use crate::proxy::body::BodyError;
use crate::proxy::ledger::Listing;
use crate::proxy::object::{message, partial};
use crate::proxy::object_type::{ObjectType, ObjectTypeError};
use crate::proxy::read::Read;
use crate::proxy::respond::Refusal;
use weir_kube::{Encoding, Transform};
use weir_runtime::{Failure, Outcome};
use weir_upstream::Plain;
use weir_upstream::in_full;

/// The largest item.
const ITEM: usize = 32 << 20;
/// Input that is taken together if it is there already: larger batches, fewer calls.
const INPUT: usize = 128 << 10;
/// Slices that are larger on average leave as they are.
const SLICE: usize = 16 << 10;

/// A list on its way.
pub(super) struct Pump {
    proxy: Arc<Proxy>,
    read: Arc<Read>,
    plain: Box<Plain>,
    encoding: Encoding,
    wire: Wire,
    item_type: ObjectType,
    listing: Listing,
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
        Self::Garbage(in_full(&error))
    }
}

impl From<weir_document::Error> for PumpError {
    fn from(error: weir_document::Error) -> Self {
        Self::Garbage(error.to_string())
    }
}

impl From<ObjectTypeError> for PumpError {
    fn from(error: ObjectTypeError) -> Self {
        Self::Garbage(error.to_string())
    }
}

/// The error as an answer: nothing was sent yet.
impl From<PumpError> for Refusal {
    fn from(error: PumpError) -> Self {
        match error {
            PumpError::Filter(failure, _) => Self::Filter(failure),
            PumpError::Garbage(why) => Self::Garbage(why),
            PumpError::Body(error) => error.into(),
        }
    }
}

impl Pump {
    pub(super) fn new(proxy: Arc<Proxy>, read: Arc<Read>, encoding: Encoding, plain: Box<Plain>) -> Self {
        Self {
            listing: Listing::begin(&proxy.ledger, read.key, read.stamp, &read.query),
            proxy,
            wire: Wire::new(encoding, read.media_type.transform, ITEM),
            item_type: read.object_type.clone(),
            read,
            plain,
            encoding,
            ended: false,
        }
    }

    /// The next bytes of the answer; none at its end. Not to be called again after an error.
    pub(super) async fn next(&mut self) -> Result<Option<Vec<Bytes>>, PumpError> {
        loop {
            match self.wire.next()? {
                Some(Piece::Head { bytes }) => {
                    self.item_type = self.read.object_type.or_of_list(&self.read.resource, self.wire.meta());
                    return Ok(Some(self.wire.head(bytes)));
                }
                Some(Piece::Batch(batch)) => return self.filter(batch).await.map(Some),
                Some(Piece::Tail { bytes }) => {
                    self.listing.note(&self.proxy.ledger, self.wire.meta());
                    return Ok(Some(self.wire.tail(bytes)?));
                }
                None if self.ended => return Ok(None),
                None => self.fill().await?,
            }
        }
    }

    /// What goes in front of all that [`Pump::next`] has given, once that is all.
    pub(super) fn front(&self) -> Result<Bytes, PumpError> {
        Ok(self.wire.front()?)
    }

    async fn fill(&mut self) -> Result<(), PumpError> {
        let mut taken = 0;
        let mut next = self.plain.next_soon().await;
        loop {
            match next.map_err(|error| PumpError::Body(error.into()))? {
                Some(bytes) => {
                    taken += bytes.len();
                    self.wire.push(bytes);
                }
                None => {
                    self.wire.finish();
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

    /// What an item's bytes are now.
    fn document(&self, bytes: Bytes) -> Result<Document, PumpError> {
        match self.encoding {
            Encoding::Json => Ok(self.item_type.apply(Document::json(bytes))?),
            Encoding::Protobuf => self.message(bytes),
        }
    }

    /// An item as it came.
    fn item(&self, batch: &Batch, index: usize) -> Result<Document, PumpError> {
        match self.encoding {
            Encoding::Json => {
                Ok(self.item_type.apply(batch.json(index).unwrap_or_else(|| Document::json(Bytes::new())))?)
            }
            Encoding::Protobuf => self.message(batch.item(index).unwrap_or_default()),
        }
    }

    fn message(&self, bytes: Bytes) -> Result<Document, PumpError> {
        match self.item_type.known() {
            Some(item_type) => Ok(message(bytes, item_type)?),
            None => Err(PumpError::Garbage("it is not a list".to_owned())),
        }
    }

    async fn filter(&mut self, batch: Batch) -> Result<Vec<Bytes>, PumpError> {
        let item = |index| self.item(&batch, index);
        let documents = (0..batch.items.len()).map(item).collect::<Result<_, _>>()?;
        let outcomes = self.read.chain.run(documents).await;
        let (mut shown, mut hidden) = (Vec::with_capacity(outcomes.len()), Vec::new());
        for (index, outcome) in outcomes.into_iter().enumerate() {
            shown.push(match (outcome, self.read.media_type.transform) {
                (Outcome::Unchanged, Transform::Metadata(version)) => {
                    json::ItemOutcome::Edit(item(index)?.only_metadata(&partial(version))?)
                }
                (Outcome::Edited(bytes), Transform::Metadata(version)) => {
                    json::ItemOutcome::Edit(self.document(bytes)?.only_metadata(&partial(version))?)
                }
                (Outcome::Unchanged, _) => json::ItemOutcome::Keep,
                (Outcome::Edited(bytes), _) => json::ItemOutcome::Edit(bytes),
                (Outcome::Hidden, _) => {
                    hidden.push(item(index)?);
                    json::ItemOutcome::Drop
                }
                (Outcome::Failed(failure), _) => return Err(PumpError::Filter(failure, self.path_of(&item(index)?))),
            });
        }
        for document in hidden {
            self.listing.hide(&document)?;
        }
        let slices = self.wire.batch(&batch, shown)?;
        Ok(match self.encoding {
            Encoding::Json => coalesce(slices, batch.bytes.len()),
            // Copied together where it is held.
            Encoding::Protobuf => slices,
        })
    }

    fn path_of(&self, document: &Document) -> Option<PathAndQuery> {
        let namespace = document.namespace().ok()?;
        self.read.resource.object_path(namespace.as_deref(), &document.name().ok()?)
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

/// Many small slices become one: each would be a frame of its own, and copying costs less than that. So do slices of a
/// batch of which little is left: they would hold on to all of it.
fn coalesce(slices: Vec<Bytes>, batch: usize) -> Vec<Bytes> {
    let length: usize = slices.iter().map(Bytes::len).sum();
    let small = slices.len() >= 4 && length / slices.len() <= SLICE;
    if slices.is_empty() || !(small || length < batch / 2) {
        return slices;
    }
    vec![slices.concat().into()]
}
