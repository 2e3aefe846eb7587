//! Clients of the API server with a bound on their requests: never more than a number in any second.
//!
//! The bound is ours: tower's `RateLimit` counts in windows and governor's cells come back while others are used, so that both let
//! nearly twice the number pass within one second.

use std::collections::VecDeque;
use std::future::Future as _;
use std::num::NonZeroU32;
use std::path::Path;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http::{HeaderValue, Request, header};
use kube::client::{Body, ClientBuilder};
use kube::{Client, Config};
use tokio::time::{Instant, Sleep};
use tower::Service;
use weir_kubeconfig::{ConfigError, KubeconfigFiles};

use crate::config::ClusterFlags;
use crate::health::report;
use crate::metrics::Metrics;

/// The window of the bound.
const WINDOW: Duration = Duration::from_secs(1);

/// A cluster, and what has named it.
pub struct Cluster {
    /// How it is reached.
    pub config: Config,
    /// `None`: the environment and the account of the pod.
    files: Option<KubeconfigFiles>,
}

impl Cluster {
    /// What has named it.
    #[must_use]
    pub fn source(&self) -> String {
        self.files.as_ref().map_or_else(|| "the account of this pod".to_owned(), ToString::to_string)
    }

    /// What a command says if the API server does not answer.
    #[must_use]
    pub fn no_answer(&self) -> String {
        let server = &self.config.cluster_url;
        self.files.as_ref().map_or_else(
            || format!("no answer from the API server {server}, which this pod's environment names: see its NetworkPolicies and its node"),
            |files| files.no_answer(server),
        )
    }
}

/// The cluster of the given kubeconfig, or else of `~/.kube/config`, or else of the pod.
///
/// # Errors
/// There is none, or it is invalid.
pub async fn cluster(flags: &ClusterFlags) -> Result<Cluster, String> {
    let of_user = || KubeconfigFiles::of_user(std::env::var_os("HOME"));
    let default = || of_user().filter(|files| files.paths().all(Path::exists));
    let files = flags.given().or_else(default);
    let mut config = match &files {
        Some(files) => of_kubeconfig(files).await.map_err(|error| report(&error))?,
        None => Config::incluster().map_err(|error| {
            let error = report(&error);
            format!("there is no ~/.kube/config, and this is not a pod ({error}): name a kubeconfig with --kubeconfig or KUBECONFIG")
        })?,
    };
    let agent = HeaderValue::from_static(concat!("weir-operator/", env!("CARGO_PKG_VERSION")));
    config.headers.push((header::USER_AGENT, agent));
    Ok(Cluster { config, files })
}

async fn of_kubeconfig(files: &KubeconfigFiles) -> Result<Config, ConfigError> {
    let merged = weir_kubeconfig::merge(files, files.paths().map(std::fs::read))?;
    weir_kubeconfig::client_config(files, merged).await
}

/// A client with at most so many requests in any second. `None`: without a bound.
///
/// # Errors
/// The credentials of the configuration cannot be used.
pub fn client(config: &Config, rate: Option<NonZeroU32>, metrics: &Metrics) -> Result<Client, kube::Error> {
    let builder = ClientBuilder::try_from(config.clone())?;
    let layer = tower::layer::layer_fn(|inner| Paced {
        inner,
        window: rate.map(|rate| Window { rate, recent: VecDeque::new(), waits: None, granted: false }),
        metrics: metrics.clone(),
    });
    Ok(builder.with_layer(&layer).build())
}

/// Delays requests, and counts them.
struct Paced<S> {
    inner: S,
    window: Option<Window>,
    metrics: Metrics,
}

/// The times of the last requests. At most `rate` of them.
struct Window {
    rate: NonZeroU32,
    recent: VecDeque<Instant>,
    waits: Option<Pin<Box<Sleep>>>,
    granted: bool,
}

impl Window {
    /// Grants the next request when the one that is `rate` requests before it is a second old.
    fn poll_grant(&mut self, context: &mut Context<'_>) -> Poll<()> {
        while !self.granted {
            if let Some(sleep) = &mut self.waits {
                ready!(sleep.as_mut().poll(context));
                self.waits = None;
            }
            let now = Instant::now();
            let is_full = self.recent.len() >= usize::try_from(self.rate.get()).unwrap_or(usize::MAX);
            match self.recent.front() {
                Some(oldest) if is_full && now < *oldest + WINDOW => {
                    self.waits = Some(Box::pin(tokio::time::sleep_until(*oldest + WINDOW)));
                }
                _ => {
                    if is_full {
                        self.recent.pop_front();
                    }
                    self.recent.push_back(now);
                    self.granted = true;
                }
            }
        }
        Poll::Ready(())
    }
}

impl<S: Service<Request<Body>>> Service<Request<Body>> for Paced<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        if let Some(window) = &mut self.window {
            ready!(window.poll_grant(context));
        }
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        if let Some(window) = &mut self.window {
            window.granted = false;
        }
        self.metrics.request(request.method());
        self.inner.call(request)
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn no_second_has_more_requests_than_the_bound() {
        let rate = NonZeroU32::new(10).unwrap();
        let mut window = Window { rate, recent: VecDeque::new(), waits: None, granted: false };
        let mut times = Vec::new();
        for step in 0..60 {
            // Bursts and pauses.
            tokio::time::advance(Duration::from_millis(if step % 7 == 0 { 180 } else { 0 })).await;
            poll_fn(|context| window.poll_grant(context)).await;
            window.granted = false;
            times.push(Instant::now());
        }
        for (at, begin) in times.iter().enumerate() {
            let within = times[at..].iter().filter(|time| **time < *begin + WINDOW).count();
            assert!(within <= 10, "{within} requests in the second from number {at}");
        }
        let took = *times.last().unwrap() - times[0];
        assert!(took < Duration::from_secs(6), "{took:?}: it does not wait longer than needed");
    }
}
