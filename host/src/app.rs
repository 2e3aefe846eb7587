//! The wiring of the daemon, one straight function, and its end.

use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, try_join_all};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tracing::Instrument;

use crate::admin::Admin;
use crate::admin::metrics::Metrics;
use crate::admin::status::StatusBoard;
use crate::config::{ConfigSource, LogConfig, LogFormat, ServeConfig, ServingCertificate, Upstream, UpstreamError};
use crate::feed::{FeedHandle, FeedWorld, Feeds, Server, follow_addresses};
use crate::filter::{Lookups, Serving, validate_dependencies};
use crate::module::{Compiler, Loader, LookupSource, Place, Reloader, code_cache};
use crate::pods::{PodAddress, ServingKeeper};
use crate::problem::in_full;
use crate::proxy::{ListenError, Proxy, ProxyConfig, ServerTls, SetupError, TlsError};
use crate::sockets::Sockets;
use crate::tasks::Tasks;
use crate::wasm::{ClusterView, Engine, EngineError, Lookup, LookupSubscription};
use crate::workers::Workers;

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
    Upstream(#[from] UpstreamError),
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
    let metrics = Arc::new(Metrics::default());
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
            Some((listener, ServerTls::load(secure, metrics.clone())?))
        }
        None => None,
    };

    let requested = config.secure.as_ref().is_some_and(|secure| secure.certificate == ServingCertificate::Requested);
    if let Some(pods) = &config.pods {
        let address = PodAddress::new(pods, metrics.clone(), tasks.clone());
        tasks.spawn_until_stop(address.keep().instrument(tracing::info_span!("pods")));
    }
    if let Some(address) = sockets.left().first() {
        return Err(ServeError::Socket(*address));
    }

    // The API servers: clients' requests and the daemon's own go to the same ones.
    let own = config.upstream.load().await?;

    let mut proxy_config = ProxyConfig::new(own.config);
    proxy_config.other_servers = own.servers.iter().skip(1).cloned().collect();
    proxy_config.server_mode = config.server_mode;
    let node = config.node_kubeconfig.clone().map(Upstream::Kubeconfig);
    // What is to be lent may come later: kubelet writes it when it has joined the cluster.
    proxy_config.lent = match &node {
        Some(node) => Some(match node.load().await {
            Ok(loaded) => Ok(loaded.config),
            Err(error) => {
                let reason = in_full(&error);
                tracing::error!(reason, "nothing can be lent yet: requests that bring no credential are answered 503");
                Err(reason)
            }
        }),
        None => None,
    };
    proxy_config.lend_to = config.lend_to.clone();
    proxy_config.start_wait = config.start_wait;
    proxy_config.drain = config.drain;
    proxy_config.compression = config.compression;
    proxy_config.answer_memory = config.answer_memory;
    proxy_config.allow_remote_plaintext = config.allow_remote_plaintext;
    let (serving, served) = watch::channel(Serving::Unknown);
    let proxy = Proxy::new(proxy_config, served.clone(), metrics.clone(), tasks.clone())?;
    proxy.renew_credentials(config.upstream.clone(), node);
    let client = proxy.client();

    // What filters look up.
    let server = Server { client: client.clone(), reach: proxy.reach() };
    let feeds = Feeds::new(Some(server), &config.node_name, tasks.clone());
    // Read once before anything looks at them: the first outcomes need not be made again.
    follow_addresses(&feeds, &tasks).instrument(tracing::info_span!("node")).await;
    let world = FeedWorld::new(feeds.clone(), config.secure_endpoint());

    // Modules.
    let (cache, _temporary) = cache_directory(config.cache_dir)?;
    let engine = Engine::new(Some(&code_cache(&cache)))?;
    let workers = std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
    let lookups = Arc::new(FeedLookups { feeds: feeds.clone(), world: Arc::new(world) });
    let compiler = Some(Compiler::new(&cache));
    let loader = Loader::new(engine.clone(), compiler, lookups, metrics.runtime().clone(), 2 * workers);

    // The set in force.
    let place = match config.source {
        ConfigSource::File(path) => Place::File(path),
        ConfigSource::ConfigMap { namespace, name } => Place::ConfigMap { client, namespace, name },
    };
    let found = place.follow(&tasks);
    let reloader = Reloader {
        place,
        found,
        modules: config.modules_dir,
        loader,
        serving,
        board: board.clone(),
        metrics: metrics.clone(),
    };
    tasks.spawn_until_stop(reloader.run().instrument(tracing::info_span!("reload")));
    tasks.spawn_until_stop(validate_dependencies(feeds.clone(), served.clone()).instrument(tracing::info_span!("lookups")));

    // The ports.
    let admin = Admin::new(board, metrics.clone(), engine, feeds);
    let admin_address = admin_listener.local_addr().map_err(system("the admin port has no address"))?;
    tracing::info!(address = %admin_address, "admin port listens");
    admin.serve(admin_listener, &tasks);
    let address = proxy_listener.local_addr().map_err(system("the proxy's port has no address"))?;
    let upstream: Vec<_> = own.servers.iter().map(ToString::to_string).collect();
    tracing::info!(%address, upstream = upstream.join(","), node = config.node_name, "proxy listens");
    proxy.serve(proxy_listener)?;
    if let Some((listener, tls)) = secure {
        let address = listener.local_addr().map_err(system("the HTTPS port has no address"))?;
        tracing::info!(%address, "HTTPS port listens");
        if let Some(pods) = &config.pods
            && requested
        {
            let keeper = ServingKeeper::new(proxy.node_client(), &config.node_name, pods.address, &cache, tls.clone());
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

/// Keeps the feeds of one filter open.
#[derive(Debug)]
struct FeedHandles(#[expect(dead_code, reason = "held for its drop")] Vec<FeedHandle>);

impl LookupSubscription for FeedHandles {}

/// Lookups answered from feeds.
#[derive(Debug)]
struct FeedLookups {
    feeds: Feeds,
    world: Arc<FeedWorld>,
}

impl LookupSource for FeedLookups {
    fn view(&self) -> Arc<dyn ClusterView> {
        self.world.clone()
    }

    fn follow(&self, lookups: Vec<Arc<Lookup>>) -> BoxFuture<'static, Result<Lookups, String>> {
        let handles: Vec<_> = lookups.iter().map(|lookup| self.feeds.open(lookup)).collect();
        async move {
            try_join_all(handles.iter().map(|handle| handle.synced())).await.map_err(|error| error.to_string())?;
            Ok(Box::new(FeedHandles(handles)) as Lookups)
        }
        .boxed()
    }
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
