//! A list that filters match: split into items as it arrives, and filtered batch by batch.
//!
//! JSON is sent as it is filtered. The response head waits for [`HELD`] bytes of output or the end, so that small lists fail
//! with a proper Status. A later failure aborts the body. Memory: the held output, one batch and the largest item, never
//! the whole list.
//!
//! A protobuf list starts with its length, so Weir buffers the filtered list until the end, within the memory budget. If
//! the budget has no room, Weir requests the list as JSON. An HTTP/1.0 client cannot detect an aborted body, so Weir
//! buffers its list, too.

mod block_buffer;
pub(super) mod list_input;
mod list_response;
mod table;

use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream::{self, StreamExt as _};
use http::{HeaderValue, Method, Response, Version, header};
use http_body::Frame;
use http_body_util::{BodyExt as _, StreamBody};

use self::block_buffer::BlockBuffer;
use self::list_response::ListResponse;
use super::memory_budget::{Leased, MemoryLease, ObjectLease, OverBudget};
use super::read::{ObjectsResponse, ReadRequest, ReadResponse};
use crate::serve::Handlers;
use crate::serve::body::{AbortError, ResponseBody, empty, full};
use crate::serve::respond::StatusError;
use weir_kube::{Encoding, MediaType, Transform};

/// The output that is buffered before the response head is sent.
const HELD: usize = 256 << 10;
/// The largest list for an HTTP/1.0 client.
const HELD_WHOLE: usize = 16 << 20;

/// Responds to a list that filters match.
///
/// # Errors
/// The list failed before the response head was sent.
pub(crate) async fn list(handlers: &Arc<Handlers>, read: ReadRequest) -> Result<Response<ResponseBody>, StatusError> {
    // Where views serve watches, the lists themselves are the reads.
    if !read.is_of_views(handlers) {
        read.find_stamp(handlers).await;
    }
    let mut read = Arc::new(read);
    loop {
        let ObjectsResponse { parts, body, encoding } = match read.send(handlers, read.upstream_path()).await? {
            ReadResponse::Objects(objects) => objects,
            ReadResponse::Other(response) => return Ok(response),
        };
        Arc::make_mut(&mut read).take_filters(handlers);
        if read.asked.method == Method::HEAD {
            return Ok(Response::from_parts(parts, empty()));
        }
        let held = match (read.media_type.transform, encoding) {
            (Transform::Table(..), _) => table::list(handlers, &read, *body).await?,
            (_, Encoding::Protobuf) => {
                let estimate = body.estimated_size();
                let list = ListResponse::new(handlers.clone(), read.clone(), encoding, body);
                match handlers.memory_budget.lease(estimate).await {
                    Ok(lease) => held_until_end(list, estimate, lease).await?,
                    Err(OverBudget) => None,
                }
            }
            (_, Encoding::Json) => {
                let list = ListResponse::new(handlers.clone(), read.clone(), encoding, body);
                if read.asked.version < Version::HTTP_11 {
                    let owner = handlers.access.owner(&read.asked.caller);
                    return whole(list, parts, handlers.memory_budget.object_lease(&owner)).await;
                }
                return Ok(Response::from_parts(parts, streamed(list).await?));
            }
        };
        if let Some(held) = held {
            return Ok(held.respond(parts));
        }
        tracing::debug!(path = %read.asked.parsed.forward, component = read.asked.component, "list requested again as plain JSON: its form does not fit into the memory budget or has no objects");
        read = Arc::new(read.with_media_type(MediaType::JSON));
    }
}

/// A filtered list that is complete in memory.
struct HeldList {
    chunks: Vec<Bytes>,
    lease: MemoryLease,
}

impl HeldList {
    fn respond(self, mut parts: http::response::Parts) -> Response<ResponseBody> {
        let length: usize = self.chunks.iter().map(Bytes::len).sum();
        parts.headers.insert(header::CONTENT_LENGTH, HeaderValue::from(length));
        parts.extensions.insert(Leased);
        // The lease ends with the last chunk.
        let frames = stream::unfold((self.chunks.into_iter(), self.lease), |(mut chunks, lease)| async move {
            let chunk = chunks.next()?;
            Some((Ok::<_, AbortError>(Frame::data(chunk)), (chunks, lease)))
        });
        Response::from_parts(parts, StreamBody::new(frames).boxed_unsync())
    }
}

/// Buffers a list whose length comes first. Returns none if the budget has no room for it.
async fn held_until_end(
    mut list: ListResponse,
    estimate: usize,
    mut lease: MemoryLease,
) -> Result<Option<HeldList>, StatusError> {
    let mut blocks = BlockBuffer::new(estimate);
    while let Some(chunks) = list.next().await? {
        for chunk in chunks {
            blocks.push(&chunk);
        }
        if lease.grow_to(blocks.len()) == Err(OverBudget) {
            return Ok(None);
        }
    }
    let chunks = std::iter::once(list.prefix()?).chain(blocks.into_chunks()).collect();
    Ok(Some(HeldList { chunks, lease }))
}

/// Returns the first output, and whether that is all of it.
async fn begin(list: &mut ListResponse) -> Result<(Vec<Bytes>, bool), StatusError> {
    let (mut held, mut length) = (Vec::new(), 0);
    while length < HELD {
        let Some(chunks) = list.next().await? else { return Ok((held, true)) };
        length += chunks.iter().map(Bytes::len).sum::<usize>();
        held.extend(chunks);
    }
    Ok((held, false))
}

/// Returns a list with its complete body, for an HTTP/1.0 client.
async fn whole(
    mut list: ListResponse,
    parts: http::response::Parts,
    mut lease: ObjectLease,
) -> Result<Response<ResponseBody>, StatusError> {
    let mut held = Vec::new();
    while let Some(chunks) = list.next().await? {
        let length = held.len() + chunks.iter().map(Bytes::len).sum::<usize>();
        if length > HELD_WHOLE {
            return Err(StatusError::OldClient);
        }
        lease.grow_to(1, length, 0).await?;
        chunks.iter().for_each(|chunk| held.extend_from_slice(chunk));
    }
    Ok(lease.respond(parts, held.into()))
}

/// Returns a body that filters the rest of the list as the client reads it.
async fn streamed(mut list: ListResponse) -> Result<ResponseBody, StatusError> {
    let (held, ended) = begin(&mut list).await?;
    if ended {
        return Ok(full(held.concat().into()));
    }
    let rest = stream::unfold(Some(list), |list| async move {
        let mut list = list?;
        match list.next().await {
            Ok(None) => None,
            Ok(Some(chunks)) => Some((Ok(chunks), Some(list))),
            Err(error) => Some((Err(list.abort(error)), None)),
        }
    });
    let frames = stream::once(async move { Ok(held) })
        .chain(rest)
        .flat_map(|chunks| {
            let (chunks, error) = match chunks {
                Ok(chunks) => (chunks, None),
                Err(error) => (Vec::new(), Some(Err(error))),
            };
            stream::iter(chunks.into_iter().map(Ok).chain(error))
        })
        .map(|chunk: Result<Bytes, AbortError>| chunk.map(Frame::data));
    Ok(StreamBody::new(frames).boxed_unsync())
}
