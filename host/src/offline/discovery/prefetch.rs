//! Fetches what kubectl asks for first, with the daemon's own identity, so that kubectl also starts without an API server on a
//! node where nobody has used it.
//!
//! Traffic: the first fetch waits until the node's components have started. Later ones are conditional: the API server answers
//! 304 to the large documents while nothing has changed.

use std::sync::Arc;
use std::time::Duration;
use weir_kube::Identity;

use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use tokio::time::timeout;
use weir_runtime::Serving;
use weir_upstream::jitter;

use super::{AGGREGATED, JSON, key};
use crate::offline::Offline;
use crate::offline::answer_memory::Answer;

/// The time from the first filter set to the first fetch.
const START_DELAY: Duration = Duration::from_secs(10);
/// The time between fetches.
const INTERVAL: Duration = Duration::from_secs(600);

/// What a fetch brought.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fetched {
    Changed,
    Same,
}

impl Offline {
    /// Keeps what kubectl asks for first, until the daemon stops. Without caches, nothing is kept.
    pub(crate) fn keep_discovery(self: &Arc<Self>) {
        if self.handlers.shared_views().is_some() {
            let offline = self.clone();
            self.handlers.tasks.spawn_until_stop(async move { offline.run_prefetch().await });
        }
    }

    async fn run_prefetch(&self) {
        let mut serving = self.handlers.chains.serving().clone();
        if serving.wait_for(|serving| matches!(serving, Serving::Live(_))).await.is_err() {
            return;
        }
        let mut reconnects = self.handlers.upstream.connectivity().reconnects();
        let mut pause = START_DELAY;
        loop {
            tokio::time::sleep(jitter(pause)).await;
            pause = INTERVAL;
            if let Err(reason) = self.fetch_discovery().await {
                tracing::debug!(reason, "discovery cannot be fetched, retrying later");
                let _ = timeout(INTERVAL, reconnects.next()).await;
                pause = START_DELAY;
            }
        }
    }

    /// The plain forms have no `ETag`. They change with the aggregated ones.
    async fn fetch_discovery(&self) -> Result<(), String> {
        let mut is_changed = false;
        for path in ["/api", "/apis"] {
            is_changed |= self.fetch_document(path, AGGREGATED).await? == Fetched::Changed;
        }
        for path in ["/api", "/apis", "/version"] {
            if is_changed || path == "/version" || self.answers.get(&key(path, JSON, false)).await.is_none() {
                self.fetch_document(path, JSON).await?;
            }
        }
        Ok(())
    }

    async fn fetch_document(&self, path: &'static str, form: &'static str) -> Result<Fetched, String> {
        let key = key(path, form, false);
        let known = self.answers.get(&key).await;
        let mut headers = HeaderMap::new();
        headers.insert(header::ACCEPT, HeaderValue::from_static(form));
        headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("gzip"));
        if let Some(etag) = known.as_ref().and_then(|known| known.headers.get(header::ETAG)) {
            headers.insert(header::IF_NONE_MATCH, etag.clone());
        }
        let (parts, body) = self.fetch(Identity::Daemon, PathAndQuery::from_static(path), headers, |_| true).await?;
        match (parts.status, known) {
            (StatusCode::NOT_MODIFIED, Some(known)) => {
                let answer = Answer { expires: key.expires, ..Answer::clone(&known) };
                self.answers.put(&key, answer);
                Ok(Fetched::Same)
            }
            (StatusCode::OK, known) => {
                let is_same = known.is_some_and(|known| known.body == body);
                self.answers.put(&key, Answer::of(&parts, body, key.expires));
                Ok(if is_same { Fetched::Same } else { Fetched::Changed })
            }
            (status, _) => Err(format!("{path}: the API server answers {status}")),
        }
    }
}
