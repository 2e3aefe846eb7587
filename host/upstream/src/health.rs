//! Probes of the API servers: of a server whose answer a request waits for too long, of a server that is down until it
//! works again, and now and then of an idle one if there are several.
//!
//! A probe asks `/readyz` (`/healthz` where that is unknown) over a connection of its own, as the daemon itself. On a thin
//! link probes are not free: those in the background are rare and jittered, those on suspicion are shared.

use std::sync::Arc;
use std::time::Duration;

use http::uri::PathAndQuery;
use http::{HeaderMap, Method, StatusCode};
use tokio::time::{Instant, sleep, timeout};

use crate::Tasks;
use crate::body::no_request_body;
use crate::own::sign;
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
/// The longest while none answers: with [`PROBE`] it bounds how long requests fail after the link is back.
const SILENT_LONGEST: Duration = Duration::from_secs(2);

impl Upstream {
    /// Probes the servers until the daemon stops.
    pub fn watch_servers(self: &Arc<Self>, tasks: &Tasks) {
        for at in 0..self.servers.len() {
            let Some(server) = self.servers.get(at) else { return };
            self.metrics.server_up(&server.name, true);
            let upstream = self.clone();
            tasks.spawn_until_stop(async move { upstream.look_after(at).await });
        }
    }

    async fn look_after(&self, at: usize) {
        let Some(server) = self.servers.get(at) else { return };
        let mut down = DOWN;
        loop {
            if server.is_up() {
                down = DOWN;
                let fell = server.fell.notified();
                // There is no choice to make between idle servers if there is only one: its link stays quiet.
                if self.servers.len() > 1 {
                    let _ = timeout(spread(IDLE), fell).await;
                } else {
                    fell.await;
                }
            } else {
                let longest = if self.servers.are_silent() { SILENT_LONGEST } else { DOWN_LONGEST };
                down = down.min(longest);
                sleep(spread(down)).await;
                down *= 2;
            }
            self.stands(at).await;
        }
    }

    /// Resolves when a server that owes an answer turns out to be down; if there are no `others` to ask instead, only when
    /// it and all others are silent. Cancel-safe.
    pub(super) async fn lost(&self, at: usize, others: bool) {
        sleep(SUSPICION).await;
        loop {
            let stands = self.stands(at).await;
            if !stands && (others || self.servers.are_silent()) {
                return;
            }
            sleep(if stands { SUSPICION_AGAIN } else { FRESH }).await;
        }
    }

    /// Whether a server works, by a probe unless there just was one.
    async fn stands(&self, at: usize) -> bool {
        let Some(server) = self.servers.get(at) else { return false };
        let mut probed = server.probed.lock().await;
        if let Some((_, stands)) = probed.filter(|(at, _)| at.elapsed() < FRESH) {
            return stands;
        }
        let result = timeout(PROBE, self.probe(at)).await;
        *probed = Some((Instant::now(), matches!(result, Ok(Ok(())))));
        match result {
            Ok(Ok(())) => self.turned(at, true, "it is ready"),
            Ok(Err(reason)) => self.turned(at, false, &reason),
            Err(_) => {
                server.silence.unanswered();
                self.own.load().retire_probe(at);
                // Where there is no other server to ask, one slow answer is no reason to give up this one's connections.
                if self.servers.len() > 1 || server.silence.is_silent() {
                    self.turned(at, false, &format!("no answer within {PROBE:?}"));
                }
            }
        }
        matches!(*probed, Some((_, true)))
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
        sign(&mut head.headers);
        if let Some(credential) = &wire.credential {
            credential.apply(&mut head.headers).await?;
        }
        let Some(server) = self.servers.get(at) else { return Err(UpstreamError::Busy) };
        let request = server.base.request(head, no_request_body())?;
        Ok(wire.send(at, server, Purpose::Probe, request).await?.status())
    }

    /// Notes whether a server works. When that changes its connections are thrown away: they may be half-open, or still be
    /// dialled over a link that dropped their packets.
    pub(super) fn turned(&self, at: usize, up: bool, reason: &str) {
        let Some(server) = self.servers.get(at) else { return };
        if !server.turns(up) {
            return;
        }
        self.metrics.server_up(&server.name, up);
        if up {
            tracing::info!(server = %server.name, "the API server works again");
            self.reach.answered();
        } else {
            tracing::warn!(server = %server.name, reason, "the API server is down");
        }
        self.retire(at);
    }
}
