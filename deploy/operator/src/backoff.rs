//! Pauses between the attempts of a watch that fails: 0.8 s, doubled to 30 s, with jitter.
//!
//! kube's own adapter takes the beginning of a list for a success. Without an API server it never pauses for longer than the first
//! time, and a dozen watches send as many requests in each second of an outage.

use futures_util::stream::unfold;
use futures_util::{Stream, StreamExt as _};
use kube::runtime::utils::Backoff as _;
use kube::runtime::watcher::{DefaultBackoff, Error, Event};
use tokio::time::sleep;

/// The events of a watch, with a pause after each error. It grows until a list is complete or an event arrives.
pub(crate) fn with_backoff<K: Send>(
    events: impl Stream<Item = Result<Event<K>, Error>> + Send,
) -> impl Stream<Item = Result<Event<K>, Error>> + Send {
    let begin = (Box::pin(events), DefaultBackoff::default(), None);
    unfold(begin, |(mut events, mut backoff, pause)| async move {
        if let Some(pause) = pause {
            sleep(pause).await;
        }
        let event = events.next().await?;
        let pause = match &event {
            Err(_) => backoff.next(),
            Ok(Event::Init | Event::InitApply(_)) => None,
            Ok(Event::InitDone | Event::Apply(_) | Event::Delete(_)) => {
                backoff.reset();
                None
            }
        };
        Some((event, (events, backoff, pause)))
    })
}
