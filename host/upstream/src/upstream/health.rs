//! Health probes of the API servers.
//!
//! Weir probes a server that is slow to respond to a request, and one that is down until it is up again. If there are
//! several servers, or another way than these, it also probes idle ones in the background.
//!
//! A way through a peer is probed while there is no better one, and not used otherwise. Then a direct way counts again once it has
//! answered for a while.
//!
//! A probe requests `/readyz`, or `/healthz` if the former does not exist, with the daemon's credential on its own
//! connection. Probes cost traffic on thin links. So background probes are rare and jittered, and requests share probes.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use http::response::Parts;
use http::uri::PathAndQuery;
use http::{HeaderMap, Method, StatusCode};
use tokio::time::{sleep, timeout};

use super::Upstream;
use crate::clock;
use crate::error::certificate_error;
use crate::request::no_request_body;
use crate::server::Probe;
use crate::user_agent::set_user_agent;
use crate::ways::Condition;
use crate::{AnsweredBy, Purpose, RequestHead, Tasks, UpstreamError, error_report, jitter};

/// How long a request waits for the head of a response before Weir probes its server.
const PROBE_DELAY: Duration = Duration::from_millis(400);
/// The time between further probes while the request waits.
const PROBE_INTERVAL: Duration = Duration::from_secs(2);
/// The timeout of a probe. With [`PROBE_DELAY`] it limits the delay that a dead server causes to less than 2 s.
const PROBE_TIMEOUT: Duration = Duration::from_secs(1);
/// The same through a peer: two connections, each with TLS.
const RELAYED_PROBE_TIMEOUT: Duration = Duration::from_secs(3);
/// The time until the second probe of a server that was down and has answered.
const CONFIRMATION_INTERVAL: Duration = PROBE_VALIDITY.saturating_mul(2);
/// How long a direct way must have answered before it replaces the way through a peer.
const STABLE: Duration = Duration::from_secs(5);
/// The time between probes until then.
const STABLE_INTERVAL: Duration = Duration::from_secs(1);
/// How long the result of a probe is valid for other requests.
const PROBE_VALIDITY: Duration = Duration::from_millis(300);
/// The time between background probes of a server that is up.
const UP_INTERVAL: Duration = Duration::from_secs(10);
/// The first time between probes of a server that is down, doubled up to [`DOWN_INTERVAL_MAX`].
const DOWN_INTERVAL: Duration = Duration::from_millis(500);
const DOWN_INTERVAL_MAX: Duration = Duration::from_secs(8);
/// The maximum while all servers are unresponsive. With [`PROBE_TIMEOUT`] it limits how long requests fail after the
/// link is up again.
const UNRESPONSIVE_INTERVAL_MAX: Duration = Duration::from_secs(2);

impl Upstream {
    /// Starts the background probes, which run until the daemon stops.
    pub fn start_probes(self: &Arc<Self>, tasks: &Tasks) {
        for (index, server) in self.servers.iter().enumerate() {
            let (upstream, asking) = (self.clone(), self.clone());
            tasks.spawn_until_stop(async move { asking.keep_time(index).await });
            if server.relay.is_some() {
                tasks.spawn_until_stop(async move { upstream.probe_relayed(index).await });
            } else {
                self.metrics.server_up(&server.name, true);
                tasks.spawn_until_stop(async move { upstream.probe_in_background(index).await });
            }
        }
    }

    async fn probe_in_background(&self, index: usize) {
        let Some(server) = self.servers.get(index) else { return };
        let mut interval = DOWN_INTERVAL;
        loop {
            if server.is_up() {
                interval = DOWN_INTERVAL;
                let went_down = server.went_down.notified();
                // Without an alternative there is nothing to choose. Keep the link quiet until a request needs it.
                if self.has_alternative() {
                    let _ = timeout(jitter(UP_INTERVAL), went_down).await;
                } else {
                    went_down.await;
                }
            } else {
                let unresponsive = self.servers.are_unresponsive();
                let max = if unresponsive { UNRESPONSIVE_INTERVAL_MAX } else { DOWN_INTERVAL_MAX };
                interval = interval.min(max);
                sleep(jitter(interval)).await;
                interval *= 2;
            }
            if self.check(index).await && !server.is_up() {
                interval = if server.is_confirmed() { STABLE_INTERVAL } else { CONFIRMATION_INTERVAL };
            }
        }
    }

    /// Probes a way through a peer while there is no better one: none is direct, and no peer before this one relays.
    async fn probe_relayed(&self, index: usize) {
        let Some(server) = self.servers.get(index) else { return };
        let mut in_use = self.servers.used();
        let mut interval = DOWN_INTERVAL;
        // The client owns the sender.
        while in_use.wait_for(|in_use| *in_use >= index).await.is_ok() {
            let pause = match self.check(index).await {
                true => UP_INTERVAL,
                false => interval,
            };
            interval = if server.is_up() { DOWN_INTERVAL } else { (2 * interval).min(DOWN_INTERVAL_MAX) };
            tokio::select! {
                _ = in_use.wait_for(|in_use| *in_use < index) => {
                    self.end_relay(index);
                    interval = DOWN_INTERVAL;
                }
                () = server.went_down.notified() => {}
                () = sleep(jitter(pause)) => {}
            }
        }
    }

    /// Continues an outage that began before the start: one probe decides about each server, instead of three. Returns when they
    /// have. Cancel safe.
    pub async fn resume_outage(&self, since: SystemTime) {
        let servers = self.servers.direct().iter().enumerate();
        let probes = servers.map(|(index, server)| {
            server.resume_outage(since);
            self.check(index)
        });
        futures_util::future::join_all(probes).await;
    }

    /// Resolves when [`Upstream::is_reachable`] is no longer so. Cancel safe.
    pub async fn reachable_changed(&self, was_reachable: bool) {
        // The client owns the sender.
        let _ = self.servers.reachable().wait_for(|reachable| *reachable != was_reachable).await;
    }

    /// Returns whether a server responds directly. It probes them, unless they were probed within the last ten seconds. Cancel
    /// safe.
    pub async fn responds(&self) -> bool {
        for index in 0..self.servers.direct().len() {
            if self.check_within(index, UP_INTERVAL).await {
                return true;
            }
        }
        false
    }

    /// Resolves when probes find that a server is down while a request waits for its response.
    ///
    /// If the request has no next server, it resolves only when all servers are unresponsive, or when later requests go through
    /// a peer. Cancel safe.
    pub(super) async fn server_lost(&self, index: usize, has_next: bool) {
        sleep(PROBE_DELAY).await;
        loop {
            let up = self.check(index).await;
            let is_over = has_next || self.servers.are_unresponsive() || self.is_replaced(index);
            if !up && is_over {
                return;
            }
            sleep(if up { PROBE_INTERVAL } else { PROBE_VALIDITY }).await;
        }
    }

    /// Returns whether a server answers. It probes the server unless the last result is still valid.
    ///
    /// Cancel safe: a cancelled probe leaves the last result in place.
    async fn check(&self, index: usize) -> bool {
        self.check_within(index, PROBE_VALIDITY).await
    }

    async fn check_within(&self, index: usize, validity: Duration) -> bool {
        let Some(server) = self.servers.get(index) else { return false };
        let mut last_probe = server.last_probe.lock().await;
        if let Some(probe) = last_probe.filter(|probe| probe.at.elapsed() < validity) {
            return probe.is_answered();
        }
        let limit = if server.relay.is_some() { RELAYED_PROBE_TIMEOUT } else { PROBE_TIMEOUT };
        let mut result = timeout(limit, self.probe(index)).await;
        if let Ok(Err(error)) = &result
            && self.ask_time_despite_certificate(index, error).await
        {
            result = timeout(limit, self.probe(index)).await;
        }
        if let Ok(Ok((_, Some(time)))) = &result {
            self.note_time(index, *time).await;
        }
        server.note_stranger(matches!(&result, Ok(Err(error)) if is_of_stranger(error)));
        let result = result.map(|answered| answered.map(|(status, _)| status).map_err(|error| error_report(&error)));
        let probe = Probe::after(*last_probe, matches!(&result, Ok(Ok(status)) if !status.is_server_error()));
        *last_probe = Some(probe);
        match result {
            Ok(Ok(_)) if !server.confirm() => {}
            Ok(Ok(status)) if status.is_server_error() => {
                let reason = format!("its probe returned status {}", status.as_u16());
                self.set_server(index, Condition::NotReady, &reason);
            }
            Ok(Ok(_)) if server.relay.is_none() && probe.answers_for() < STABLE && self.servers.has_relayed() => {}
            Ok(Ok(_)) => self.set_server(index, Condition::Up, "it is ready"),
            Ok(Err(reason)) => self.set_server(index, Condition::Down, &reason),
            Err(_) => {
                server.unanswered_probes.count();
                self.daemon.load().disconnect_probe(index);
                // Without an alternative, a server keeps its connections after one slow response.
                let is_relayed = server.relay.is_some();
                if is_relayed || self.has_alternative() || server.unanswered_probes.is_unresponsive() {
                    self.set_server(index, Condition::Down, &format!("no response within {limit:?}"));
                }
            }
        }
        probe.is_answered()
    }

    /// Sends one probe. Any status below 500 means that the server is up, even if it denies access. Returns the time, too, if the
    /// response has one.
    async fn probe(&self, index: usize) -> Result<(StatusCode, Option<SystemTime>), UpstreamError> {
        let ask = async |path| {
            let head = self.request_probe(index, PathAndQuery::from_static(path)).await?;
            Ok::<_, UpstreamError>((head.status, clock::date(&head.headers)))
        };
        match ask("/readyz").await? {
            (StatusCode::NOT_FOUND, _) => ask("/healthz").await,
            answer => Ok(answer),
        }
    }

    /// Requests a path that Weir itself chooses with the daemon's credential, on a connection for probes. Returns the head.
    pub(super) async fn request_probe(&self, index: usize, path: PathAndQuery) -> Result<Parts, UpstreamError> {
        let transport = self.daemon.load_full();
        let mut headers = HeaderMap::new();
        set_user_agent(&mut headers);
        if let Some(credential) = &transport.credential {
            credential.apply(&mut headers).await?;
        }
        let Some(server) = self.servers.get(index) else { return Err(UpstreamError::Busy) };
        let head = RequestHead { method: Method::GET, path, headers, answered_by: AnsweredBy::Server };
        let request = server.address.request(head, no_request_body())?;
        Ok(transport.send(index, server, Purpose::Probe, request).await?.into_parts().0)
    }

    /// Sets the condition of a server. On a change it drops the connections, which may be half-open or stuck in connecting; not
    /// those to the only server while it answers.
    pub(super) fn set_server(&self, index: usize, condition: Condition, reason: &str) {
        let Some(server) = self.servers.get(index) else { return };
        let up = condition == Condition::Up;
        // Logged and counted in the order of the changes, too.
        let changing = self.servers.change();
        let was_down = server.is_down();
        let is_changed = changing.set(index, condition);
        if let Some(peer) = server.relay.as_ref().filter(|_| is_changed || (!up && server.note_reason(reason))) {
            self.log_relay(peer, &server.name, up, reason);
        }
        if !is_changed {
            return;
        }
        if !up {
            server.went_down.notify_one();
        }
        if server.relay.is_none() {
            match up {
                true => tracing::info!(server = %server.name, reason, "the {} is up again", self.role),
                false if condition == Condition::NotReady => {
                    tracing::warn!(server = %server.name, reason, "the {} is not ready", self.role)
                }
                false => tracing::warn!(server = %server.name, reason, "the {} is down", self.role),
            }
            self.metrics.server_up(&server.name, up);
        }
        if up {
            self.connectivity.record_success();
        } else if self.servers.are_down() {
            self.connectivity.record_failure();
        }
        drop(changing);
        if self.has_alternative() || was_down || condition == Condition::Down {
            self.disconnect(index);
        }
    }
}

/// Whether a certificate is not that of the server, apart from its time.
fn is_of_stranger(error: &UpstreamError) -> bool {
    use rustls::CertificateError::{Expired, ExpiredContext, NotValidYet, NotValidYetContext};
    certificate_error(error).is_some_and(|error| {
        !matches!(error, Expired | ExpiredContext { .. } | NotValidYet | NotValidYetContext { .. })
    })
}
