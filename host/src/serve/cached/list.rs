//! A list from a view: a consistent snapshot, selected and encoded while it is sent.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream;
use http::{HeaderValue, Response, header};
use http_body::Frame;
use http_body_util::{BodyExt as _, StreamBody};
use weir_kube::{Encoding, Transform, Verb};

use super::list_memory::ListKey;
use super::list_writer::{KeptList, ListWriter};
use super::table::table;
use super::{CachedRead, Start, head};
use crate::serve::Handlers;
use crate::serve::body::{AbortError, ResponseBody, full};
use crate::serve::respond::StatusError;
use weir_view::{View, ViewSnapshot};

/// Answers a list from these objects of a view.
///
/// # Errors
/// Only the API server has the version, or a selected object has no verdict.
pub(crate) fn list(
    handlers: &Handlers,
    read: &CachedRead,
    view: &Arc<View>,
    snapshot: &Arc<ViewSnapshot>,
) -> Result<Response<ResponseBody>, StatusError> {
    if read.start == Start::Exact {
        return Err(StatusError::Expired("the API server cannot be reached, and the cache has no earlier versions"));
    }
    let media_type = read.media_type;
    if let Transform::Table(version, include) = media_type.transform {
        let objects = selected(read, snapshot)?;
        let body = table(&snapshot.format, &objects, Some(snapshot.version), (version, include))?;
        let response = head(media_type.encoding, Verb::List).body(full(body));
        return response.map_err(|error| StatusError::InvalidResponse(error.to_string()));
    }
    let key = ListKey::new(view, media_type.encoding, &read.selector);
    let recalled = match media_type.transform {
        Transform::None => handlers.lists.recall(&key),
        Transform::Metadata(_) | Transform::Table(..) => None,
    };
    let known = recalled.iter().flatten().find_map(|list| Some(list.of(snapshot)?.collect()));
    let is_kept = recalled.is_some() && known.is_none();
    let objects = match known {
        Some(objects) => objects,
        None => selected(read, snapshot)?,
    };
    let kept = is_kept.then(|| kept(handlers, key, snapshot, media_type.encoding, &objects)).flatten();
    let writer = ListWriter::new(snapshot, media_type.encoding, media_type.transform, objects);
    let writer = writer.map_err(|error| StatusError::InvalidResponse(error.to_string()))?;
    let writer = writer.in_segments(recalled.flatten(), kept);
    let mut builder = head(media_type.encoding, Verb::List);
    if let Some(length) = writer.length() {
        builder = builder.header(header::CONTENT_LENGTH, HeaderValue::from(length));
    }
    let chunks = stream::unfold(writer, |mut writer| async move {
        let chunk = writer.next()?;
        Some((chunk.map(Frame::data).map_err(|error| AbortError::InvalidResponse(error.to_string())), writer))
    });
    builder
        .body(StreamBody::new(chunks).boxed_unsync())
        .map_err(|error| StatusError::InvalidResponse(error.to_string()))
}

/// Prepares to keep a list, if there is memory for it.
fn kept(
    handlers: &Handlers,
    key: ListKey,
    snapshot: &Arc<ViewSnapshot>,
    encoding: Encoding,
    objects: &VecDeque<Bytes>,
) -> Option<KeptList> {
    let bytes: usize = objects.iter().map(|object| object.len() + size_of::<Bytes>()).sum();
    // Names of fields are text in JSON, and numbers in protobuf.
    let estimate = if encoding == snapshot.format.encoding { bytes } else { bytes + bytes / 2 };
    let lease = handlers.memory_budget.spare(estimate)?;
    Some(KeptList::new(handlers.lists.clone(), key, snapshot.clone(), lease))
}

/// The bytes that the client sees of the selected objects.
fn selected(read: &CachedRead, snapshot: &ViewSnapshot) -> Result<VecDeque<Bytes>, StatusError> {
    let mut objects = VecDeque::new();
    for object in snapshot.objects.values() {
        if matches!((object.shown(), object.failure()), (None, None))
            || !read.selector.matches(&snapshot.format, &object.source)
        {
            continue;
        }
        match (object.shown(), object.failure()) {
            (Some(bytes), _) => objects.push_back(bytes.clone()),
            (None, Some(failure)) => return Err(StatusError::Filter(failure.clone())),
            (None, None) => {}
        }
    }
    Ok(objects)
}
