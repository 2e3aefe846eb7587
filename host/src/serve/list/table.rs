//! A filtered list in the form of a Table. Weir requests the whole objects beside the cells, filters the rows by them, and
//! sends the part of each object that the client requested.
//!
//! Memory: the Table with its objects and the filtered Table, within the memory budget.

use std::sync::Arc;

use bytes::Bytes;

use super::HeldList;
use super::list_input::ListError;
use crate::serve::Handlers;
use crate::serve::read::ReadRequest;
use crate::serve::respond::StatusError;
use weir_kube::Transform;
use weir_upstream::DecodedBody;
use weir_wire::table_list::TableListCodec;
use weir_wire::{CodecError, EncodeError};

/// Reads and filters a Table. Returns none if the list must be requested as plain JSON instead: the budget has no room,
/// or the API server sent no Table of this resource, or no objects in it.
pub(super) async fn list(
    handlers: &Arc<Handlers>,
    read: &ReadRequest,
    upstream: DecodedBody,
) -> Result<Option<HeldList>, StatusError> {
    let Ok(mut lease) = handlers.memory_budget.lease(upstream.estimated_size()).await else { return Ok(None) };
    let limit = handlers.memory_budget.bytes();
    let Some(body) = upstream.collect_at_most(limit).await? else {
        return Ok(None);
    };
    if lease.grow_to(body.len()).is_err() {
        return Ok(None);
    }
    let chunks = filter(handlers, read, body).await?;
    Ok(chunks.map(|chunks| HeldList { chunks, lease }))
}

async fn filter(handlers: &Handlers, read: &ReadRequest, body: Bytes) -> Result<Option<Vec<Bytes>>, ListError> {
    let Transform::Table(version, include) = read.media_type.transform else { return Ok(None) };
    let Some(mut codec) = TableListCodec::open(body, read.object_type.clone(), version, include)? else {
        return Ok(None);
    };
    loop {
        let rows = match codec.next_rows() {
            Ok(Some(rows)) => rows,
            Ok(None) => break,
            Err(CodecError::MissingObject) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let outcomes = read.filtering.run(rows.documents()).await;
        codec.rows(rows, outcomes).map_err(|error| match error {
            EncodeError::Filter(failure) => ListError::Filter(failure),
            EncodeError::Codec(error) => error.into(),
        })?;
    }
    let version = codec.meta().resource_version.as_deref().and_then(|version| version.parse().ok());
    handlers.end_stream(read, version.unwrap_or_default());
    Ok(Some(codec.finish()?))
}
