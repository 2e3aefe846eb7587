//! The codec of a list in the form of a Table. Filters get the objects of its rows, and rows of hidden objects are removed.
//!
//! If filters edit an object, the cells of its row still show the unedited one. The response is then a plain list of
//! objects. Memory: the Table with its objects, which is decoded as a whole, and the filtered list in both forms.

use bytes::Bytes;
use weir_document::Document;
use weir_document::json::{Joiner, ListSplitter};
use weir_document::list::{Batch, ItemOutcome, ListMeta, Piece};
use weir_kube::{IncludeObject, MetaVersion};
use weir_runtime::Outcome;

use super::table::{list_metadata, row, row_object};
use super::{CodecError, EncodeError, ObjectType};

/// Decodes a Table, and encodes the filtered list.
pub struct TableListCodec {
    splitter: ListSplitter,
    joiner: Joiner,
    whole: Document,
    object_type: ObjectType,
    version: MetaVersion,
    include: IncludeObject,
    /// The filtered Table.
    table: Vec<Bytes>,
    /// The objects of its rows, for the plain list.
    objects: Vec<Bytes>,
    /// Whether filters edited any of them.
    edited: bool,
}

/// Consecutive rows of a Table, with their objects.
pub struct RowBatch {
    batch: Batch,
    /// Row and object.
    rows: Vec<(Document, Document)>,
}

impl RowBatch {
    /// Returns the objects of all rows.
    pub fn documents(&self) -> Vec<Document> {
        self.rows.iter().map(|(_, object)| object.clone()).collect()
    }
}

impl TableListCodec {
    /// Opens a whole body; none if it is not a Table. The client requested the part `include` of objects, as `version`.
    ///
    /// # Errors
    /// The bytes are not a JSON object.
    pub fn open(
        body: Bytes,
        object_type: ObjectType,
        version: MetaVersion,
        include: IncludeObject,
    ) -> Result<Option<Self>, CodecError> {
        let whole = Document::json(body.clone());
        if whole.kind()? != "Table" {
            return Ok(None);
        }
        let mut splitter = ListSplitter::rows();
        splitter.push(body);
        splitter.finish();
        Ok(Some(Self {
            splitter,
            joiner: Joiner::new(),
            whole,
            object_type,
            version,
            include,
            table: Vec::new(),
            objects: Vec::new(),
            edited: false,
        }))
    }

    /// Returns the next rows; none at the end.
    ///
    /// # Errors
    /// [`CodecError::MissingObject`], if a row lacks its whole object. Any other error: the Table is malformed.
    pub fn next_rows(&mut self) -> Result<Option<RowBatch>, CodecError> {
        while let Some(piece) = self.splitter.next()? {
            let batch = match piece {
                Piece::Head { bytes } | Piece::Tail { bytes } => {
                    self.table.push(bytes);
                    continue;
                }
                Piece::Batch(batch) => batch,
            };
            let mut rows = Vec::with_capacity(batch.items.len());
            for row in batch.documents() {
                let object = row_object(&row)?.ok_or(CodecError::MissingObject)?;
                rows.push((row, self.object_type.apply(object)?));
            }
            return Ok(Some(RowBatch { batch, rows }));
        }
        Ok(None)
    }

    /// Encodes rows, given one outcome for each.
    ///
    /// # Errors
    /// An outcome is a failure, or an object is malformed.
    pub fn rows(&mut self, rows: RowBatch, outcomes: Vec<Outcome>) -> Result<(), EncodeError> {
        let mut written = Vec::with_capacity(outcomes.len());
        for ((document, object), outcome) in rows.rows.into_iter().zip(outcomes) {
            written.push(match outcome {
                Outcome::Unchanged => {
                    let row = row(&document, &object, self.version, self.include)?;
                    self.objects.push(object.bytes().clone());
                    ItemOutcome::Edit(row)
                }
                Outcome::Edited(bytes) => {
                    self.objects.push(bytes);
                    self.edited = true;
                    ItemOutcome::Drop
                }
                Outcome::Hidden => ItemOutcome::Drop,
                Outcome::Failed(failure) => return Err(EncodeError::Filter(failure)),
            });
        }
        self.table.extend(self.joiner.push(&rows.batch, written)?);
        Ok(())
    }

    /// The metadata of the Table. It is complete at the end.
    pub fn meta(&self) -> &ListMeta {
        self.splitter.meta()
    }

    /// Returns the Table, or the plain list of its objects if filters edited one.
    ///
    /// # Errors
    /// The Table's metadata or its first object is malformed.
    pub fn finish(self) -> Result<Vec<Bytes>, CodecError> {
        if self.edited { self.plain_list() } else { Ok(self.table) }
    }

    fn plain_list(self) -> Result<Vec<Bytes>, CodecError> {
        let metadata = list_metadata(&self.whole)?;
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
