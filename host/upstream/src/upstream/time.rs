//! Asks the API servers for the time, by probes of a fixed path alone.
//!
//! A server is asked when it has answered something and the time is due ([`clock::is_due`]), so that a quiet link stays quiet.
//! Health probes report the time, too.
//!
//! A machine whose clock is wrong cannot verify certificates. If a probe fails for that reason, Weir asks the server without a
//! credential, on a connection that verifies the certificate at one of its own limits. To check that the certificate is valid
//! at a time, Weir does a handshake at that time. The response on that connection must report the same time.

use std::time::{Duration, SystemTime};

use http::uri::PathAndQuery;
use http::{HeaderMap, Method};
use rustls::pki_types::UnixTime;
use tokio::time::timeout;

use super::{ServerRole, Upstream};
use crate::clock::{self, TimeReport};
use crate::error::certificate_error;
use crate::h2_pool::send_unpooled;
use crate::request::no_request_body;
use crate::server::Server;
use crate::user_agent::set_user_agent;
use crate::{AnsweredBy, RequestHead, UpstreamError};

/// The path of a request for the time. A response with status 404 has a `Date`, too.
const PATH: &str = "/readyz";
/// The timeout of a request: connecting, TLS and the head of the response.
const TIMEOUT: Duration = Duration::from_secs(5);
/// How often a server whose certificate seems to be out of time is asked at most.
const INTERVAL: Duration = Duration::from_secs(5);
/// The most certificates of a chain whose limits are tried.
const MAX_CHAIN: usize = 4;

impl Upstream {
    /// Asks a server for the time when it is due. Runs until it is dropped.
    pub(super) async fn keep_time(&self, index: usize) {
        let Some(server) = self.servers.get(index) else { return };
        loop {
            server.time_due.notified().await;
            let asked = timeout(TIMEOUT, self.request_probe(index, PathAndQuery::from_static(PATH))).await;
            if let Some(time) = asked.ok().and_then(Result::ok).and_then(|head| clock::date(&head.headers)) {
                self.note_time(index, time).await;
            }
        }
    }

    /// Has a server that has answered something asked for the time, if that is due.
    pub(super) fn ask_time_if_due(&self, server: &Server) {
        if self.role == ServerRole::ApiServer && clock::is_due() {
            server.time_due.notify_one();
        }
    }

    /// Takes the time that a server reported to a probe. Cancel safe.
    pub(super) async fn note_time(&self, index: usize, reported: SystemTime) {
        let Some(server) = self.servers.get(index).filter(|_| self.role == ServerRole::ApiServer) else { return };
        let is_certified = clock::needs_certificate(reported) && self.is_certified(index, server, reported).await;
        let time = jiff::Timestamp::try_from(reported).unwrap_or(jiff::Timestamp::MAX);
        match clock::report(reported, &server.address.name(), is_certified) {
            TimeReport::Accepted => tracing::info!(server = %server.name, %time, "the API server reported the time"),
            TimeReport::Pending => tracing::warn!(
                server = %server.name, %time,
                "the API server reports a time outside the validity of its certificate, or before the known time: it counts once \
                 another server, or this one minutes later, reports the same"
            ),
            TimeReport::Known | TimeReport::PendingAgain => {}
        }
    }

    /// Asks a server whose certificate seems to be out of time. Returns whether it reported the time. Cancel safe.
    pub(super) async fn ask_time_despite_certificate(&self, index: usize, error: &UpstreamError) -> bool {
        let Some(server) = self.servers.get(index).filter(|_| self.role == ServerRole::ApiServer) else { return false };
        let Some(mut limit) = certificate_error(error).and_then(out_of_time) else { return false };
        if !server.may_ask_time(INTERVAL) {
            return false;
        }
        for _ in 0..MAX_CHAIN {
            match self.time_at(index, server, limit).await {
                Ok(Some(time)) => {
                    self.note_time(index, time).await;
                    return true;
                }
                Ok(None) => return false,
                Err(error) => match certificate_error(&error).and_then(out_of_time) {
                    Some(next) => limit = next,
                    None => return false,
                },
            }
        }
        false
    }

    /// Whether the certificate of a server is valid at a time, on a connection on which the server reports this time.
    async fn is_certified(&self, index: usize, server: &Server, time: SystemTime) -> bool {
        let reported = self.time_at(index, server, clock::unix_time(time)).await;
        matches!(reported, Ok(Some(reported)) if clock::agree(reported, time))
    }

    /// Asks a server for the time, without a credential, on a connection of its own whose certificate is verified as if it were
    /// `at`. `None`: it reports none, or the connection is not secure.
    async fn time_at(&self, index: usize, server: &Server, at: UnixTime) -> Result<Option<SystemTime>, UpstreamError> {
        if !server.address.is_secure() {
            return Ok(None);
        }
        let transport = self.passthrough.load_full();
        let Some(connector) = transport.unpooled(index) else { return Ok(None) };
        let connector = connector.at(at)?;
        let mut headers = HeaderMap::new();
        set_user_agent(&mut headers);
        let path = PathAndQuery::from_static(PATH);
        let head = RequestHead { method: Method::GET, path, headers, answered_by: AnsweredBy::Server };
        let request = server.address.request(head, no_request_body())?;
        match timeout(TIMEOUT, send_unpooled(&connector, request)).await {
            Ok(Ok((response, _permit))) => Ok(clock::date(response.headers())),
            Ok(Err(error)) => Err(transport.error(error, server)),
            Err(_) => Ok(None),
        }
    }
}

/// The time to which a certificate was valid, or from which it will be, if that is what is wrong with it.
fn out_of_time(error: &rustls::CertificateError) -> Option<UnixTime> {
    match error {
        rustls::CertificateError::ExpiredContext { not_after, .. } => Some(*not_after),
        rustls::CertificateError::NotValidYetContext { not_before, .. } => Some(*not_before),
        _ => None,
    }
}
