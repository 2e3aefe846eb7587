//! One identity's way to every server: its connections, apart from those of all other identities, and the headers that
//! carry its credential.

use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};

use crate::body::RequestBody;
use crate::connect::{Client, Credential, Protocols, SetupError, client};
use crate::lane::{Lanes, UpstreamBody};
use crate::server::Server;
use crate::{Purpose, UpstreamError};

/// An identity on its way up.
#[derive(Debug)]
pub(super) struct Wire {
    /// One for each server.
    channels: Vec<Channel>,
    /// None: the client's own headers are all there is.
    pub(super) credential: Option<Credential>,
    /// By whom servers are trusted, for people.
    trust: Arc<str>,
}

#[derive(Debug)]
struct Channel {
    short: Lanes,
    stream: Lanes,
    heartbeat: Lanes,
    probe: Lanes,
    upgrade: Client,
}

impl Wire {
    /// With the credential of a configuration, client certificate included.
    pub(super) fn new(config: &kube::Config, servers: usize, timeout: Duration) -> Result<Self, SetupError> {
        Ok(Self { credential: Some(Credential::new(config)?), ..Self::bare(config, servers, timeout)? })
    }

    /// Without any credential in headers.
    pub(super) fn bare(config: &kube::Config, servers: usize, timeout: Duration) -> Result<Self, SetupError> {
        let channels = (0..servers).map(|_| Channel::new(config, timeout)).collect::<Result<_, _>>()?;
        let trust = match (&config.root_cert_file, &config.root_cert) {
            (Some(path), _) => format!("the CA bundle {}", path.display()),
            (None, Some(_)) => "the CA bundle of its kubeconfig".to_owned(),
            (None, None) => "the system's CA bundle".to_owned(),
        };
        Ok(Self { channels, credential: None, trust: trust.into() })
    }

    /// Throws away the connections to a server: who asks next dials anew. What goes on over them does so.
    pub(super) fn retire(&self, server: usize) {
        if let Some(channel) = self.channels.get(server) {
            for lanes in [&channel.short, &channel.stream, &channel.heartbeat, &channel.probe] {
                lanes.retire();
            }
        }
    }

    /// Throws away the connection for probes to a server: it may be half-open, and the next probe dials.
    pub(super) fn retire_probe(&self, server: usize) {
        if let Some(channel) = self.channels.get(server) {
            channel.probe.retire();
        }
    }

    /// Sends a request to one server.
    pub(super) async fn send(
        &self,
        at: usize,
        server: &Server,
        purpose: Purpose,
        request: Request<RequestBody>,
    ) -> Result<Response<UpstreamBody>, UpstreamError> {
        let Some(channel) = self.channels.get(at) else { return Err(UpstreamError::Busy) };
        let (answer, slot) = match purpose {
            Purpose::Upgrade => (channel.upgrade.request(request).await, None),
            _ => {
                let slot = channel.lanes(purpose).slot().await.ok_or(UpstreamError::Busy)?;
                (slot.client().request(request).await, Some(slot))
            }
        };
        let answer = answer.map_err(|error| UpstreamError::from_client(error, &server.name, &self.trust))?;
        server.silence.heard();
        Ok(answer.map(|body| UpstreamBody::new(body, slot, server.silence.clone())))
    }
}

impl Channel {
    fn new(config: &kube::Config, timeout: Duration) -> Result<Self, SetupError> {
        let pooled = client(config, timeout, Protocols::Any)?;
        Ok(Self {
            short: Lanes::new(pooled.clone()),
            stream: Lanes::new(pooled.clone()),
            heartbeat: Lanes::new(pooled.clone()),
            probe: Lanes::new(pooled),
            upgrade: client(config, timeout, Protocols::Http1)?.build().0,
        })
    }

    fn lanes(&self, purpose: Purpose) -> &Lanes {
        match purpose {
            Purpose::Short | Purpose::Upgrade => &self.short,
            Purpose::Stream => &self.stream,
            Purpose::Heartbeat => &self.heartbeat,
            Purpose::Probe => &self.probe,
        }
    }
}
