//! A list that filters match: split into items as it arrives, filtered batch by batch, sent on at once.
//!
//! The headers wait for [`HELD`] of output or the end, so that small lists fail with a proper Status; after that a
//! failure aborts the body. Memory: what is held, one batch, and the largest item; never the list. An HTTP/1.0 client
//! cannot tell an aborted body from a whole one: its answer is held as a whole.

mod failed;
mod pump;

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use futures_util::stream::{self, StreamExt as _};
use http::{Method, Response};
use http_body::Frame;
use http_body_util::{BodyExt as _, StreamBody};

pub(super) use self::failed::Failed;
use self::pump::Pump;
pub(super) use self::pump::hidden_key;
use super::Proxy;
use super::body::{BodyError, ResponseBody, empty, full};
use super::read::{Answer, Read};
use super::respond::Refusal;

/// Output that is held back until the answer's head is sent.
const HELD: usize = 256 << 10;
/// Output that is held for an HTTP/1.0 client.
const HELD_WHOLE: usize = 16 << 20;

/// Answers a matched list.
pub(super) async fn list(proxy: &Arc<Proxy>, read: Read) -> Result<Response<ResponseBody>, Refusal> {
    proxy.failed.check(proxy, &read).await?;
    let (parts, plain) = match read.ask(proxy, read.path.clone()).await? {
        Answer::Json(parts, plain) => (parts, plain),
        Answer::Other(answer) => return Ok(answer),
    };
    if read.method == Method::HEAD {
        return Ok(Response::from_parts(parts, empty()));
    }
    let old_client = read.old_client;
    let limit = if old_client { HELD_WHOLE } else { HELD };
    let mut pump = Pump::new(proxy.clone(), read, plain);
    let mut held = Vec::new();
    let mut length = 0;
    loop {
        match pump.next().await {
            Ok(None) => {
                let body = held.into_iter().fold(BytesMut::with_capacity(length), |mut body, bytes: Bytes| {
                    body.extend_from_slice(&bytes);
                    body
                });
                return Ok(Response::from_parts(parts, full(body.freeze())));
            }
            Ok(Some(bytes)) => {
                length += bytes.iter().map(Bytes::len).sum::<usize>();
                held.extend(bytes);
            }
            Err(error) => return Err(pump.refusal(error)),
        }
        if length >= limit {
            break;
        }
    }
    if old_client {
        return Err(Refusal::OldClient);
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
    Ok(Response::from_parts(parts, StreamBody::new(frames).boxed_unsync()))
}
