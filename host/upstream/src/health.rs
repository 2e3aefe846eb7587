//! Probes of several API servers: a request that waits too long has its server looked at, a server that fell is looked
//! at until it stands again, an idle one now and then.
//!
//! A probe asks `/readyz` (`/healthz` where that is unknown) over a connection of its own, as the daemon itself. On a thin
//! link probes are not free: those in the background are rare and spread, those on suspicion are shared.

use std::sync::Arc;
use std::time::Duration;

use http::uri::PathAndQuery;
use http::{HeaderMap, Method, StatusCode};
use tokio::time::{Instant, sleep, timeout};

use crate::Tasks;
use crate::body::no_request_body;
use crate::spread;
use crate::{Head, Purpose, Upstream, UpstreamError};

/// How long a request waits for an answer's head before its server is looked at, first and then.
const SUSPICION: Duration = Duration::from_millis(400);
const SUSPICION_AGAIN: Duration = Duration::from_secs(2);
/// The longest that a probe takes. With [`SUSPICION`] it bounds how long a dead server holds up a request: below 2 s.
const PROBE: Duration = Duration::from_secs(1);
/// A result that is younger is good enough for who asks next.
const FRESH: Duration = Duration::from_millis(300);
/// Between probes of a server that works.
const IDLE: Duration = Duration::from_secs(10);
/// Between probes of one that does not: doubled up to the longest.
const DOWN: Duration = Duration::from_millis(500);
const DOWN_LONGEST: Duration = Duration::from_secs(8);

impl Upstream {
    /// Keeps an eye on the servers until the daemon stops, if there are several.
    pub fn watch_servers(self: &Arc<Self>, tasks: &Tasks) {
        for at in 0..self.servers.len() {
            let Some(server) = self.servers.get(at) else { return };
            self.metrics.server_up(&server.name, true);
            if self.servers.len() > 1 {
                let upstream = self.clone();
                tasks.spawn_until_stop(async move { upstream.look_after(at).await });
            }
        }
    }

    async fn look_after(&self, at: usize) {
        let Some(server) = self.servers.get(at) else { return };
        let mut down = DOWN;
        loop {
            if server.is_up() {
                down = DOWN;
                // Whether it fell or was idle: look.
                let _ = timeout(spread(IDLE), server.fell.notified()).await;
            } else {
                sleep(spread(down)).await;
                down = (down * 2).min(DOWN_LONGEST);
            }
            self.stands(at).await;
        }
    }

    /// Resolves when a server from which an answer is awaited turns out to be down. Cancel-safe.
    pub(super) async fn lost(&self, at: usize) {
        sleep(SUSPICION).await;
        while self.stands(at).await {
            sleep(SUSPICION_AGAIN).await;
        }
    }

    /// Whether a server works, by a probe unless there just was one.
    async fn stands(&self, at: usize) -> bool {
        let Some(server) = self.servers.get(at) else { return false };
        let mut probed = server.probed.lock().await;
        if probed.is_some_and(|at| at.elapsed() < FRESH) {
            return server.is_up();
        }
        let result = timeout(PROBE, self.probe(at)).await;
        *probed = Some(Instant::now());
        match result {
            Ok(Ok(())) => self.turned(at, true, "it is ready"),
            Ok(Err(reason)) => self.turned(at, false, &reason),
            Err(_) => self.turned(at, false, &format!("no answer within {PROBE:?}")),
        }
        server.is_up()
    }

    async fn probe(&self, at: usize) -> Result<(), String> {
        let mut answer = None;
        for path in ["/readyz", "/healthz"] {
            let head = Head { method: Method::GET, path: PathAndQuery::from_static(path), headers: HeaderMap::new() };
            let code = self.ask(at, head).await.map_err(|error| crate::in_full(&error))?;
            answer = Some(code);
            if code != StatusCode::NOT_FOUND {
                break;
            }
        }
        match answer {
            Some(code) if code.is_server_error() => Err(format!("it answers {}", code.as_u16())),
            // Whatever else it says of our right to ask: it speaks.
            _ => Ok(()),
        }
    }

    async fn ask(&self, at: usize, mut head: Head) -> Result<StatusCode, UpstreamError> {
        let wire = self.own.load_full();
        if let Some(credential) = &wire.credential {
            credential.apply(&mut head.headers).await?;
        }
        let Some(server) = self.servers.get(at) else { return Err(UpstreamError::Busy) };
        let request = server.base.request(head, no_request_body())?;
        Ok(wire.send(at, &server.name, Purpose::Probe, request).await?.status())
    }

    /// Takes note of whether a server works. One that fell loses its connections: they may be half-open.
    pub(super) fn turned(&self, at: usize, up: bool, reason: &str) {
        let Some(server) = self.servers.get(at) else { return };
        if !server.turns(up) {
            return;
        }
        self.metrics.server_up(&server.name, up);
        if up {
            tracing::info!(server = %server.name, "the API server works again");
        } else {
            tracing::warn!(server = %server.name, reason, "the API server is down; others are asked first");
            self.retire(at);
        }
    }
}
