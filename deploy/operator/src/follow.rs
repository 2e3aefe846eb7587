//! Follows a resource: a watch that fills a store, signals changes, and reports its problems.

use std::pin::pin;

use futures_util::{Stream, StreamExt as _};
use kube::runtime::reflector::Lookup;
use kube::runtime::reflector::store::Writer;
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt as _, reflector};

use crate::changes::Changes;
use crate::health::{Health, explain_watch};

/// Where the problems of a watch go, and who hears of its events.
pub(crate) struct Follower<'a> {
    /// The part in `/readyz`.
    pub(crate) part: &'a str,
    /// The resource, for messages.
    pub(crate) resource: &'a str,
    /// Signalled after the store has changed.
    pub(crate) changes: &'a Changes,
    /// Where problems are reported.
    pub(crate) health: &'a Health,
}

impl Follower<'_> {
    /// Writes what a watch reports into a store, for ever. `trim` drops what nobody reads; changes of objects that are not
    /// `relevant` are not signalled, but deletions are.
    pub(crate) async fn follow<K>(
        &self,
        events: impl Stream<Item = Result<Event<K>, watcher::Error>> + Send,
        writer: Writer<K>,
        trim: impl FnMut(&mut K) + Send,
        relevant: impl Fn(&K) -> bool,
    ) where
        K: Lookup + Clone + Send + 'static,
        K::DynamicType: Eq + std::hash::Hash + Clone,
    {
        let mut events = pin!(reflector(writer, events.default_backoff().modify(trim)));
        while let Some(event) = events.next().await {
            match event {
                Ok(Event::Init | Event::InitApply(_)) => {}
                Ok(Event::InitDone) => {
                    self.health.works(self.part);
                    self.changes.signal();
                }
                // Whatever goes may have been in the way: an object of another owner with a name that is needed.
                Ok(Event::Delete(_)) => {
                    self.health.works(self.part);
                    self.changes.signal();
                }
                Ok(Event::Apply(object)) => {
                    self.health.works(self.part);
                    if relevant(&object) {
                        self.changes.signal();
                    }
                }
                Err(error) => self.health.fails(self.part, explain_watch(self.resource, &error)),
            }
        }
    }
}
