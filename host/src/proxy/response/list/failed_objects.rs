//! Objects on which a filter failed in the middle of a list, after the response head was sent. The client lists again at
//! once, and would receive the same megabytes up to the same failure. So Weir first reads and filters this one object.
//!
//! Bounds: [`CAPACITY`] objects; the oldest one leaves first. An entry expires when the chain changes, when the object
//! passes, and after [`LIFETIME`].

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use http::uri::PathAndQuery;
use tokio::time::Instant;
use weir_document::Document;

use crate::proxy::Proxy;
use crate::proxy::respond::StatusError;
use crate::proxy::response::get;
use crate::proxy::response::read::{ReadRequest, ReadResponse};
use crate::proxy::resume::ClientKey;
use weir_kube::MediaType;
use weir_runtime::{ChainVersion, Outcome};

const CAPACITY: usize = 256;
const LIFETIME: Duration = Duration::from_secs(300);

/// The failed objects of all clients; one per proxy.
#[derive(Debug, Default)]
pub(in crate::proxy) struct FailedObjects {
    objects: Mutex<VecDeque<FailedObject>>,
}

#[derive(Debug, Clone)]
struct FailedObject {
    client: ClientKey,
    chain_version: ChainVersion,
    path: PathAndQuery,
    since: Instant,
}

impl FailedObjects {
    /// Remembers the object that failed a client's list under this chain version; it replaces the client's previous one.
    pub(super) fn insert(&self, client: ClientKey, chain_version: ChainVersion, path: PathAndQuery) {
        self.locked(|objects| {
            objects.retain(|object| object.client != client);
            if objects.len() >= CAPACITY {
                objects.pop_front();
            }
            objects.push_back(FailedObject { client, chain_version, path, since: Instant::now() });
        });
    }

    /// Filters the object that failed this client's list before, if there is one.
    ///
    /// # Errors
    /// The filter still fails. Any other result lets the list proceed, for example that the object is gone or forbidden.
    pub(super) async fn check(&self, proxy: &Proxy, read: &ReadRequest) -> Result<(), StatusError> {
        let Some(path) = self.find(&read.client, read.chain_version) else { return Ok(()) };
        if let ReadResponse::Objects(objects) = read.with_media_type(MediaType::JSON).send(proxy, path).await?
            && let Ok(bytes) = objects.body.collect(get::LIMIT).await
            && let Ok(object) = read.object_type.apply(Document::json(bytes))
            && let Some(Outcome::Failed(failure)) = read.chain.run(vec![object]).await.pop()
        {
            return Err(StatusError::Filter(failure));
        }
        self.locked(|objects| objects.retain(|object| object.client != read.client));
        Ok(())
    }

    fn find(&self, client: &ClientKey, chain_version: ChainVersion) -> Option<PathAndQuery> {
        self.locked(|objects| {
            objects.retain(|object| object.since.elapsed() < LIFETIME);
            objects
                .iter()
                .find(|object| object.client == *client && object.chain_version == chain_version)
                .map(|object| object.path.clone())
        })
    }

    fn locked<T>(&self, act: impl FnOnce(&mut VecDeque<FailedObject>) -> T) -> T {
        act(&mut self.objects.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(n: u64) -> ChainVersion {
        ChainVersion::new(n, 0)
    }

    #[tokio::test(start_paused = true)]
    async fn an_object_is_remembered_for_its_client_and_chain_version_and_for_a_while() {
        let failed = FailedObjects::default();
        let (key, other) = (ClientKey::test(1), ClientKey::test(2));
        let path = PathAndQuery::from_static("/api/v1/namespaces/a/services/b");
        failed.insert(key, version(1), path.clone());
        assert_eq!(failed.find(&key, version(1)), Some(path));
        assert_eq!(failed.find(&other, version(1)), None);
        assert_eq!(failed.find(&key, version(2)), None);
        tokio::time::advance(LIFETIME).await;
        assert_eq!(failed.find(&key, version(1)), None);
    }

    #[test]
    fn the_number_of_objects_is_bounded() {
        let failed = FailedObjects::default();
        for n in 0..=u8::MAX {
            failed.insert(ClientKey::test(n), version(1), PathAndQuery::from_static("/a"));
        }
        failed.insert(ClientKey::test(0), version(2), PathAndQuery::from_static("/b"));
        assert_eq!(failed.locked(|objects| objects.len()), CAPACITY);
    }
}
