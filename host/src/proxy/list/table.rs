//! A list as a Table: its rows judged by their whole objects, which are asked for beside the cells and cut back to what
//! the client asked for. Where filters edit an object the whole answer is a plain list of the objects, because the cells
//! would lie. Memory: the Table with its objects, within the proxy's budget, and what is left of it.

use std::sync::Arc;

use bytes::Bytes;
use weir_document::Document;
use weir_document::json::{self, Batch, Joiner, ListSplitter, Piece};

use super::Held;
use super::pump::PumpError;
use crate::proxy::Proxy;
use crate::proxy::ledger::Listing;
use crate::proxy::object::{list_metadata, of_row, row};
use crate::proxy::read::Read;
use crate::proxy::respond::Refusal;
use weir_kube::Transform;
use weir_runtime::Outcome;
use weir_upstream::Plain;

/// A Table on its way through.
struct Rows {
    listing: Listing,
    joiner: Joiner,
    /// The Table as it is shown.
    table: Vec<Bytes>,
    /// The objects that are shown.
    objects: Vec<Bytes>,
    /// Whether any of them was edited.
    edited: bool,
}

/// The answer; none where it has to be asked for as plain JSON: there is no room for it, or the server knows no Tables of
/// this resource, or has not sent the objects.
pub(super) async fn list(proxy: &Arc<Proxy>, read: &Read, plain: Plain) -> Result<Option<Held>, Refusal> {
    let Ok(mut lease) = proxy.budget.lease(plain.estimate()).await else { return Ok(None) };
    let limit = proxy.budget.bytes();
    let Some(body) = plain.collect_at_most(limit).await? else {
        return Ok(None);
    };
    if lease.reach(body.len()).is_err() {
        return Ok(None);
    }
    let chunks = filter(proxy, read, body).await?;
    Ok(chunks.map(|chunks| Held { chunks, lease }))
}

async fn filter(proxy: &Proxy, read: &Read, body: Bytes) -> Result<Option<Vec<Bytes>>, PumpError> {
    let whole = Document::json(body.clone());
    if whole.kind()? != "Table" {
        return Ok(None);
    }
    let mut rows = Rows {
        listing: Listing::begin(&proxy.ledger, read.key, read.stamp, &read.query),
        joiner: Joiner::new(),
        table: Vec::new(),
        objects: Vec::new(),
        edited: false,
    };
    let mut splitter = ListSplitter::rows();
    splitter.push(body);
    splitter.finish();
    while let Some(piece) = splitter.next()? {
        match piece {
            Piece::Head { bytes } | Piece::Tail { bytes } => rows.table.push(bytes),
            Piece::Batch(batch) => {
                if !rows.filter(read, &batch).await? {
                    return Ok(None);
                }
            }
        }
    }
    rows.listing.note(&proxy.ledger, splitter.meta());
    if rows.edited { rows.plain(&whole).map(Some) } else { Ok(Some(rows.table)) }
}

impl Rows {
    /// False if a row has not its whole object.
    async fn filter(&mut self, read: &Read, batch: &Batch) -> Result<bool, PumpError> {
        let Transform::Table(version, include) = read.media_type.transform else { return Ok(false) };
        let mut documents = Vec::with_capacity(batch.items.len());
        for document in (0..batch.items.len()).filter_map(|index| batch.json(index)) {
            match of_row(&document)? {
                Some(object) => documents.push((document, read.object_type.apply(object)?)),
                None => return Ok(false),
            }
        }
        let objects = documents.iter().map(|(_, object)| object.clone()).collect();
        let mut shown = Vec::with_capacity(documents.len());
        for ((document, object), outcome) in documents.iter().zip(read.chain.run(objects).await) {
            shown.push(match outcome {
                Outcome::Unchanged => {
                    self.objects.push(object.bytes().clone());
                    json::ItemOutcome::Edit(row(document, object, version, include)?)
                }
                Outcome::Edited(bytes) => {
                    self.objects.push(bytes);
                    self.edited = true;
                    json::ItemOutcome::Drop
                }
                Outcome::Hidden => {
                    self.listing.hide(object)?;
                    json::ItemOutcome::Drop
                }
                Outcome::Failed(failure) => return Err(PumpError::Filter(failure, None)),
            });
        }
        self.table.extend(self.joiner.push(batch, shown)?);
        Ok(true)
    }

    /// The objects as a list.
    fn plain(self, table: &Document) -> Result<Vec<Bytes>, PumpError> {
        let metadata = list_metadata(table)?;
        let first = Document::json(self.objects.first().cloned().unwrap_or_default());
        let kind = serde_json::Value::from(format!("{}List", first.kind()?));
        let api_version = serde_json::Value::from(first.api_version()?);
        let head = format!(r#"{{"kind":{kind},"apiVersion":{api_version},"metadata":"#);
        let mut chunks = vec![Bytes::from(head), metadata, Bytes::from_static(b",\"items\":[")];
        for (index, object) in self.objects.into_iter().enumerate() {
            if index > 0 {
                chunks.push(Bytes::from_static(b","));
            }
            chunks.push(object);
        }
        chunks.push(Bytes::from_static(b"]}\n"));
        Ok(chunks)
    }
}
