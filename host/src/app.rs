//! The wiring of the daemon, one straight function, and its end.

use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tracing::Instrument;

use prometheus_client::registry::Registry;
use weir_runtime::{Compiler, Engine, EngineError, Loader, LookupSource as _, RuntimeMetrics, Serving, code_cache};
use weir_store::{ReflectorClient, Reflectors, watch_addresses};
use weir_upstream::{
    Renewal, ServerSource, SetupError, SourceError, Tasks, Upstream, UpstreamConfig, UpstreamMetrics, Workers, in_full,
};

use crate::admin::Admin;
use crate::admin::status::StatusBoard;
use crate::config::{LogConfig, LogFormat, ServeConfig, ServingCertificate};
use crate::lookups::{ReflectorLookups, ReflectorView};
use crate::pods::{PodAddress, PodMetrics, ServingKeeper};
use crate::proxy::{ListenError, Proxy, ProxyConfig, ProxyMetrics, ServerTls, TlsError};
use crate::reload::{Place, ReloadMetrics, Reloader};
use crate::revalidate::validate_reads;
use crate::sockets::Sockets;

/// Why the daemon did not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The runtime, a signal handler or the cache directory.
    #[error("{what}")]
    System {
        /// What failed.
        what: String,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// A port can't be bound.
    #[error("{flag}: {address} can not be bound")]
    Bind {
        /// The flag that named it.
        flag: &'static str,
        /// The address.
        address: std::net::SocketAddr,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// A socket was passed on that is none of the daemon's.
    #[error("systemd passed on a socket for {0}, which no flag names")]
    Socket(std::net::SocketAddr),
    /// The daemon's or the node's credentials.
    #[error(transparent)]
    Upstream(#[from] SourceError),
    /// They can't be used for the API server.
    #[error(transparent)]
    Setup(#[from] SetupError),
    /// The HTTPS port has no certificate to show.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The plain port was refused.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// No WebAssembly engine.
    #[error(transparent)]
    Engine(#[from] EngineError),
}

/// Runs the daemon until it is told to stop.
///
/// # Errors
/// When it can't start. Once it serves, nothing but a signal ends it.
pub fn serve(config: ServeConfig) -> Result<(), ServeError> {
    log_to_stderr(config.log);
    // For what is no connection of a client: configuration, modules, lookups, the admin port.
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().thread_name("weir").build();
    runtime.map_err(system("the runtime could not be started"))?.block_on(run(config))
}

/// The wiring. Ports are bound first, so that a conflict ends the start before anything else began; they accept before
/// the first set is in force, and make what may be filtered wait for it.
async fn run(config: ServeConfig) -> Result<(), ServeError> {
    let began = std::time::Instant::now();
    let workers = Workers::start().map_err(system("the threads for connections could not be started"))?;
    let tasks = Tasks::default().with_workers(workers);
    let mut registry = Registry::default();
    let (proxy_metrics, upstream_metrics, runtime_metrics, reload_metrics, pod_metrics) = (
        Arc::<ProxyMetrics>::default(),
        Arc::<UpstreamMetrics>::default(),
        Arc::<RuntimeMetrics>::default(),
        Arc::<ReloadMetrics>::default(),
        Arc::<PodMetrics>::default(),
    );
    runtime_metrics.register(&mut registry);
    reload_metrics.register(&mut registry);
    proxy_metrics.register(&mut registry);
    upstream_metrics.register(&mut registry);
    pod_metrics.register(&mut registry);
    let board = Arc::new(StatusBoard::default());
    let mut interrupt = signal(SignalKind::interrupt()).map_err(system("SIGINT can not be handled"))?;
    let mut terminate = signal(SignalKind::terminate()).map_err(system("SIGTERM can not be handled"))?;

    let mut sockets = Sockets::passed_on().map_err(system("the sockets that were passed on can not be used"))?;
    let admin_listener = listen(&mut sockets, "--admin-address/--admin-port", config.admin).await?;
    let proxy_listener = listen(&mut sockets, "--bind-address/--port", config.bind).await?;
    let secure = match config.secure.clone() {
        Some(secure) => {
            // Pods' address may come later, and go and come again.
            let ahead = config.pods.as_ref().is_some_and(|pods| pods.address == secure.address.ip());
            let listener = match ahead {
                true => sockets.listen_ahead(secure.address).await,
                false => sockets.listen(secure.address).await,
            };
            let listener = listener.map_err(bind("--secure-bind-address/--secure-port", secure.address))?;
            Some((listener, ServerTls::load(secure, proxy_metrics.clone())?))
        }
        None => None,
    };

    let requested = config.secure.as_ref().is_some_and(|secure| secure.certificate == ServingCertificate::Requested);
    if let Some(pods) = &config.pods {
        let address = PodAddress::new(pods, pod_metrics, tasks.clone());
        tasks.spawn_until_stop(address.keep().instrument(tracing::info_span!("pods")));
    }
    if let Some(address) = sockets.left().first() {
        return Err(ServeError::Socket(*address));
    }

    // The API servers: clients' requests and the daemon's own go to the same ones.
    let own = config.upstream.load().await?;

    let mut upstream_config = UpstreamConfig::new(own.config);
    upstream_config.other_servers = own.servers.iter().skip(1).cloned().collect();
    upstream_config.server_mode = config.server_mode;
    let node = config.node_kubeconfig.clone().map(ServerSource::Kubeconfig);
    // The file may come later: kubelet writes it when it has joined the cluster.
    upstream_config.node_credential = match &node {
        Some(node) => Some(match node.load().await {
            Ok(loaded) => Ok(loaded.config),
            Err(error) => {
                let reason = in_full(&error);
                tracing::error!(
                    reason,
                    "the node credential is not usable yet; requests without a credential of their own get 503 until it is"
                );
                Err(reason)
            }
        }),
        None => None,
    };
    let upstream = Arc::new(Upstream::new(&upstream_config, upstream_metrics)?);
    upstream.watch_servers(&tasks);
    let renewals = node.map(|node| (Renewal::Node, node));
    for (which, source) in std::iter::once((Renewal::Own, config.upstream.clone())).chain(renewals) {
        tasks.spawn_until_stop(upstream.clone().renew(which, source));
    }
    let client = upstream.client();

    let proxy_config = ProxyConfig {
        node_credential_uids: config.node_credential_uids.clone(),
        start_wait: config.start_wait,
        drain: config.drain,
        compression: config.compression,
        answer_memory: config.answer_memory,
        allow_remote_plaintext: config.allow_remote_plaintext,
        ..ProxyConfig::default()
    };
    let (serving, served) = watch::channel(Serving::Unknown);
    let proxy = Proxy::new(proxy_config, upstream.clone(), served.clone(), proxy_metrics, tasks.clone());

    // What filters look up.
    let server = ReflectorClient { client: client.clone(), reach: upstream.reach() };
    let reflectors = Reflectors::new(Some(server), tasks.clone());
    // Read once before anything looks at them: the first outcomes need not be made again.
    watch_addresses(&reflectors, &tasks).instrument(tracing::info_span!("node")).await;
    let world = ReflectorView::new(reflectors.clone(), &config.node_name, config.secure_endpoint());

    // Modules.
    let (cache, _temporary) = cache_directory(config.cache_dir)?;
    let engine = Engine::new(Some(&code_cache(&cache)))?;
    let workers = std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
    let lookups = Arc::new(ReflectorLookups::new(world));
    let world = lookups.world();
    let compiler = Some(Compiler::new(&cache));
    let loader = Loader::new(engine.clone(), compiler, lookups, runtime_metrics, 2 * workers);

    // The set in force.
    let place = Place::of(config.source, client);
    let found = place.follow(&tasks);
    let reloader = Reloader {
        place,
        found,
        modules: config.modules_dir,
        loader,
        serving,
        board: board.clone(),
        metrics: reload_metrics,
    };
    tasks.spawn_until_stop(reloader.run().instrument(tracing::info_span!("reload")));
    tasks.spawn_until_stop(
        validate_reads(reflectors.clone(), world, served.clone()).instrument(tracing::info_span!("lookups")),
    );

    // The ports.
    let admin = Admin::new(board, registry, engine, reflectors);
    let admin_address = admin_listener.local_addr().map_err(system("the admin port has no address"))?;
    tracing::info!(address = %admin_address, "admin port listens");
    admin.serve(admin_listener, &tasks);
    let address = proxy_listener.local_addr().map_err(system("the proxy's port has no address"))?;
    let servers: Vec<_> = own.servers.iter().map(ToString::to_string).collect();
    tracing::info!(%address, upstream = servers.join(","), node = config.node_name, "proxy listens");
    proxy.serve(proxy_listener)?;
    if let Some((listener, tls)) = secure {
        let address = listener.local_addr().map_err(system("the HTTPS port has no address"))?;
        tracing::info!(%address, "HTTPS port listens");
        if let Some(pods) = &config.pods
            && requested
        {
            let keeper =
                ServingKeeper::new(upstream.node_client(), &config.node_name, pods.address, &cache, tls.clone());
            tasks.spawn_until_stop(keeper.keep().instrument(tracing::info_span!("certificate")));
        }
        proxy.serve_tls(listener, tls);
    }
    tasks.spawn_until_stop(tell_ready(served, began));

    tokio::select! {
        _ = interrupt.recv() => tracing::info!("SIGINT: stopping"),
        _ = terminate.recv() => tracing::info!("SIGTERM: stopping"),
    }
    // Connections end by the same deadline; the moment more is for what they leave behind.
    if tasks.drain(config.drain + Duration::from_millis(500)).await {
        tracing::info!("stopped");
    } else {
        tracing::warn!("stopped with work unfinished after {:?}", config.drain);
    }
    Ok(())
}

async fn listen(
    sockets: &mut Sockets,
    flag: &'static str,
    address: std::net::SocketAddr,
) -> Result<TcpListener, ServeError> {
    sockets.listen(address).await.map_err(bind(flag, address))
}

fn bind(flag: &'static str, address: std::net::SocketAddr) -> impl FnOnce(std::io::Error) -> ServeError {
    move |source| ServeError::Bind { flag, address, source }
}

/// Says once when the first set is in force.
async fn tell_ready(mut served: watch::Receiver<Serving>, began: std::time::Instant) {
    if served.wait_for(|serving| matches!(serving, Serving::Live(_))).await.is_ok() {
        tracing::info!(after = ?began.elapsed(), "ready");
    }
}

/// The cache directory, or one that is gone with the process.
fn cache_directory(given: Option<PathBuf>) -> Result<(PathBuf, Option<tempfile::TempDir>), ServeError> {
    if let Some(path) = given {
        return Ok((path, None));
    }
    let temporary = tempfile::tempdir().map_err(system("no temporary directory for compiled modules"))?;
    tracing::info!("no --cache-dir: modules are compiled anew at each start");
    Ok((temporary.path().to_owned(), Some(temporary)))
}

fn log_to_stderr(config: LogConfig) {
    use tracing_subscriber::EnvFilter;
    let level = match config.verbosity {
        0 => "warn,weir=info",
        1 => "info,weir=debug",
        _ => "debug,weir=trace",
    };
    let lines = tracing_subscriber::fmt().with_env_filter(EnvFilter::new(level)).with_writer(std::io::stderr);
    match config.format {
        LogFormat::Json => lines.json().with_current_span(false).init(),
        LogFormat::Text => lines.with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr())).init(),
    }
}

fn system(what: &str) -> impl FnOnce(std::io::Error) -> ServeError {
    let what = what.to_owned();
    move |source| ServeError::System { what, source }
}

/// Compile-time proof that the daemon can be moved between threads.
const _: fn() = || {
    fn is_send<T: Future + Send>(_: fn(ServeConfig) -> T) {}
    is_send(run);
};
