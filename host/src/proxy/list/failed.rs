//! Objects that failed a list after its headers were sent. The client will list again at once, and would pull the same
//! megabytes to the same end; instead the one object is asked for and tried first.
//! Bounds: [`OBJECTS`], the oldest goes first; forgotten when the chain changes, the object passes, or after [`LIFE`].

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use http::uri::PathAndQuery;
use tokio::time::Instant;
use weir_document::Document;

use crate::proxy::Proxy;
use crate::proxy::get;
use crate::proxy::ledger::Key;
use crate::proxy::read::{Answer, Read};
use crate::proxy::respond::Refusal;
use weir_kube::MediaType;
use weir_runtime::{Outcome, Stamp};

const OBJECTS: usize = 256;
const LIFE: Duration = Duration::from_secs(300);

/// The objects; one per proxy.
#[derive(Debug, Default)]
pub(in crate::proxy) struct Failed {
    objects: Mutex<VecDeque<Object>>,
}

#[derive(Debug, Clone)]
struct Object {
    key: Key,
    stamp: Stamp,
    path: PathAndQuery,
    since: Instant,
}

impl Failed {
    /// Notes the object that failed a list of a client under a stamp.
    pub(super) fn remember(&self, key: Key, stamp: Stamp, path: PathAndQuery) {
        self.locked(|objects| {
            objects.retain(|object| object.key != key);
            if objects.len() >= OBJECTS {
                objects.pop_front();
            }
            objects.push_back(Object { key, stamp, path, since: Instant::now() });
        });
    }

    /// Tries the object that failed this client's list before, if any.
    ///
    /// # Errors
    /// It still fails. Anything else (it is gone, the client may not get it) lets the list go its way.
    pub(super) async fn check(&self, proxy: &Proxy, read: &Read) -> Result<(), Refusal> {
        let Some(path) = self.known(&read.key, read.stamp) else { return Ok(()) };
        if let Answer::Objects(objects) = read.with_media_type(MediaType::JSON).ask(proxy, path).await?
            && let Ok(bytes) = objects.plain.collect(get::LIMIT).await
            && let Ok(object) = read.object_type.apply(Document::json(bytes))
            && let Some(Outcome::Failed(failure)) = read.chain.run(vec![object]).await.pop()
        {
            return Err(Refusal::Filter(failure));
        }
        self.locked(|objects| objects.retain(|object| object.key != read.key));
        Ok(())
    }

    fn known(&self, key: &Key, stamp: Stamp) -> Option<PathAndQuery> {
        self.locked(|objects| {
            objects.retain(|object| object.since.elapsed() < LIFE);
            objects.iter().find(|object| object.key == *key && object.stamp == stamp).map(|object| object.path.clone())
        })
    }

    fn locked<T>(&self, act: impl FnOnce(&mut VecDeque<Object>) -> T) -> T {
        act(&mut self.objects.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_object_is_remembered_for_its_client_and_stamp_and_for_a_while() {
        let failed = Failed::default();
        let (key, other) = (Key::test(1), Key::test(2));
        let path = PathAndQuery::from_static("/api/v1/namespaces/a/services/b");
        failed.remember(key, Stamp::from_number(1), path.clone());
        assert_eq!(failed.known(&key, Stamp::from_number(1)), Some(path));
        assert_eq!(failed.known(&other, Stamp::from_number(1)), None);
        assert_eq!(failed.known(&key, Stamp::from_number(2)), None);
        tokio::time::advance(LIFE).await;
        assert_eq!(failed.known(&key, Stamp::from_number(1)), None);
    }

    #[test]
    fn the_number_of_objects_is_bounded() {
        let failed = Failed::default();
        for n in 0..=u8::MAX {
            failed.remember(Key::test(n), Stamp::from_number(1), PathAndQuery::from_static("/a"));
        }
        failed.remember(Key::test(0), Stamp::from_number(2), PathAndQuery::from_static("/b"));
        assert_eq!(failed.locked(|objects| objects.len()), OBJECTS);
    }
}
