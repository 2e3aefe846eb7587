//! A list that filters match: split into items as it arrives, filtered batch by batch.
//!
//! JSON is sent on at once: the headers wait for [`HELD`] of output or the end, so that small lists fail with a proper
//! Status; after that a failure aborts the body. Memory: what is held, one batch, and the largest item; never the list.
//! A protobuf list has its length in front: what is left of it is held as a whole, within the proxy's budget, and where
//! that has no room the list is asked for as JSON. An HTTP/1.0 client cannot tell an aborted body from a whole one: its
//! answer is held, too.

mod blocks;
mod failed;
mod pump;
mod table;
mod wire;

use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream::{self, StreamExt as _};
use http::{HeaderValue, Method, Response, header};
use http_body::Frame;
use http_body_util::{BodyExt as _, StreamBody};

use self::blocks::Blocks;
pub(super) use self::failed::Failed;
use self::pump::Pump;
use super::Proxy;
use super::body::{BodyError, ResponseBody, empty, full};
use super::budget::{Lease, OverBudget};
use super::read::{Answer, Objects, Read};
use super::respond::Refusal;
use weir_kube::{Encoding, MediaType, Transform};

/// Output that is held back until the answer's head is sent.
const HELD: usize = 256 << 10;
/// Output that is held for an HTTP/1.0 client.
const HELD_WHOLE: usize = 16 << 20;

/// Answers a matched list.
pub(super) async fn list(proxy: &Arc<Proxy>, read: Read) -> Result<Response<ResponseBody>, Refusal> {
    proxy.failed.check(proxy, &read).await?;
    let mut read = Arc::new(read);
    loop {
        let Objects { parts, plain, encoding } = match read.ask(proxy, read.own_path()).await? {
            Answer::Objects(objects) => objects,
            Answer::Other(answer) => return Ok(answer),
        };
        if read.method == Method::HEAD {
            return Ok(Response::from_parts(parts, empty()));
        }
        let held = match (read.media_type.transform, encoding) {
            (Transform::Table(..), _) => table::list(proxy, &read, *plain).await?,
            (_, Encoding::Protobuf) => {
                let estimate = plain.estimate();
                let pump = Pump::new(proxy.clone(), read.clone(), encoding, plain);
                match proxy.budget.lease(estimate).await {
                    Ok(lease) => sized(pump, estimate, lease).await?,
                    Err(OverBudget) => None,
                }
            }
            (_, Encoding::Json) => {
                let pump = Pump::new(proxy.clone(), read.clone(), encoding, plain);
                let body = if read.old_client { whole(pump).await? } else { streamed(pump).await? };
                return Ok(Response::from_parts(parts, body));
            }
        };
        if let Some(held) = held {
            return Ok(held.answer(parts));
        }
        tracing::debug!(path = %read.path, component = read.component, "a list cannot be held or shown as it was asked for; it is asked for as plain JSON");
        read = Arc::new(read.with_media_type(MediaType::JSON));
    }
}

/// An answer that is there as a whole.
struct Held {
    chunks: Vec<Bytes>,
    lease: Lease,
}

impl Held {
    fn answer(self, mut parts: http::response::Parts) -> Response<ResponseBody> {
        let length: usize = self.chunks.iter().map(Bytes::len).sum();
        parts.headers.insert(header::CONTENT_LENGTH, HeaderValue::from(length));
        // The lease goes with the last chunk.
        let frames = stream::unfold((self.chunks.into_iter(), self.lease), |(mut chunks, lease)| async move {
            let chunk = chunks.next()?;
            Some((Ok::<_, BodyError>(Frame::data(chunk)), (chunks, lease)))
        });
        Response::from_parts(parts, StreamBody::new(frames).boxed_unsync())
    }
}

/// All of a list with its length in front; none where there is no room for it.
async fn sized(mut pump: Pump, estimate: usize, mut lease: Lease) -> Result<Option<Held>, Refusal> {
    let mut blocks = Blocks::new(estimate);
    while let Some(pieces) = pump.next().await? {
        for piece in pieces {
            blocks.push(&piece);
        }
        if lease.reach(blocks.len()) == Err(OverBudget) {
            return Ok(None);
        }
    }
    let chunks = std::iter::once(pump.front()?).chain(blocks.into_chunks()).collect();
    Ok(Some(Held { chunks, lease }))
}

/// Output up to a limit, or to its end if that is sooner.
async fn begin(pump: &mut Pump, limit: usize) -> Result<(Vec<Bytes>, bool), Refusal> {
    let (mut held, mut length) = (Vec::new(), 0);
    while length < limit {
        let Some(bytes) = pump.next().await? else { return Ok((held, true)) };
        length += bytes.iter().map(Bytes::len).sum::<usize>();
        held.extend(bytes);
    }
    Ok((held, false))
}

/// A list for a client that could not see it break off.
async fn whole(mut pump: Pump) -> Result<ResponseBody, Refusal> {
    match begin(&mut pump, HELD_WHOLE).await? {
        (held, true) => Ok(full(held.concat().into())),
        (_, false) => Err(Refusal::OldClient),
    }
}

/// A list that is sent as it comes.
async fn streamed(mut pump: Pump) -> Result<ResponseBody, Refusal> {
    let (held, ended) = begin(&mut pump, HELD).await?;
    if ended {
        return Ok(full(held.concat().into()));
    }
    let rest = stream::unfold(Some(pump), |pump| async move {
        let mut pump = pump?;
        match pump.next().await {
            Ok(None) => None,
            Ok(Some(bytes)) => Some((Ok(bytes), Some(pump))),
            Err(error) => Some((Err(pump.abort(error)), None)),
        }
    });
    let frames = stream::once(async move { Ok(held) })
        .chain(rest)
        .flat_map(|bytes| {
            let (bytes, error) = match bytes {
                Ok(bytes) => (bytes, None),
                Err(error) => (Vec::new(), Some(Err(error))),
            };
            stream::iter(bytes.into_iter().map(Ok).chain(error))
        })
        .map(|bytes: Result<Bytes, BodyError>| bytes.map(Frame::data));
    Ok(StreamBody::new(frames).boxed_unsync())
}
