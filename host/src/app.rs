//! The wiring of the daemon: [`serve`] creates each part from those above it and runs until a signal.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tracing::Instrument;

use prometheus_client::registry::Registry;
use weir_front::{ListenSockets, Listener, ServerTls, ServerTlsError, ServingCertificate};
use weir_process::{WatchedFiles, files};
use weir_runtime::{Compiler, EngineError, Loader, LookupSource as _, Serving};
use weir_store::Reflectors;
use weir_upstream::{SetupError, SourceError, Tasks, Workers, refusals};

use crate::admin::status::FilterStatus;
use crate::admin::{Activity, ActivitySources, Admin, AdminParts, Caches, HealthSources, HttpsPort, Notices};
use crate::api_servers::ApiServers;
use crate::cache_directory::{daemon_cache_directory, take_over_former};
use crate::cache_wiring::{cache_check, local_status, open_views, resource_stores};
use crate::client_table::ClientTable;
use crate::config::{SecureConfig, ServeConfig};
use crate::disk_cache::{close_disk, flush_disk, open_disk};
use crate::file_limit::{connections_within, raise_file_limit};
use crate::local_status::layer;
use crate::logging::{LoggedOnce, log_to_stderr};
use crate::lookups::{ReflectorLookups, ReflectorView};
use crate::metrics::Metrics;
use crate::modules::{ModuleCache, Modules};
use crate::node_facts::follow_node;
use crate::node_name::trust_credential;
use crate::node_report::NodeReport;
use crate::peers::connect_peers;
use crate::pods::{CertificateManager, PodAddress};
use crate::proxy::{ListenError, Proxy, ProxyConfig, ProxyParts};
use crate::reload::{LastGood, LastTried, Reloader, watch_source};
use crate::revalidate::validate_dependencies;
use crate::time_file::TimeFile;
use crate::traces::{Traces, TracesError};
use weir_access::Outage;
use weir_process::ledger::Ledger;

/// How long the end waits for threads that use the disk.
const END: Duration = Duration::from_millis(500);

/// A reason why the daemon cannot start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// An operating system call failed: for the runtime, a signal handler, a socket or the cache directory.
    #[error("{what}")]
    System {
        /// The failed operation.
        what: String,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// An address cannot be bound.
    #[error("{flag}: cannot listen on {address}")]
    Bind {
        /// The flags of the address.
        flag: &'static str,
        /// The address.
        address: SocketAddr,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// systemd passed a socket whose address no flag names.
    #[error("systemd passed a socket for {0}, but no flag names this address")]
    Socket(SocketAddr),
    /// The daemon's own credential is not usable.
    #[error(transparent)]
    Upstream(#[from] SourceError),
    /// The connection to the API servers cannot be set up.
    #[error(transparent)]
    Setup(#[from] SetupError),
    /// The certificate of the HTTPS port is not usable.
    #[error(transparent)]
    Tls(#[from] ServerTlsError),
    /// The plain port is not allowed on this address.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// Traces cannot be sent.
    #[error(transparent)]
    Traces(#[from] TracesError),
    /// This machine cannot run compiled modules.
    #[error(transparent)]
    Engine(#[from] EngineError),
}

/// Runs the daemon until SIGTERM or SIGINT.
///
/// # Errors
/// The daemon cannot start. After the start, only a signal ends it.
pub fn serve(mut config: ServeConfig) -> Result<(), ServeError> {
    let name = trust_credential(&mut config);
    let traces = Traces::start(config.otlp_endpoint.as_ref(), &config.node_name)?;
    let _log = log_to_stderr(config.log, &traces);
    name.log(&config.node_name);
    // Client connections have threads of their own (`Workers`). This runtime is for all other tasks.
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().thread_name("weir").build();
    let runtime = runtime.map_err(system("cannot start the tokio runtime"))?;
    let result = runtime.block_on(run(config));
    // Without a limit this waits for threads that wait for a disk that does not answer.
    runtime.shutdown_timeout(END);
    traces.end();
    result
}

/// Binds the ports first, so that a conflict ends the start before anything else has begun. The ports accept connections
/// before the first filter set is active: requests that a filter may match wait for it.
async fn run(mut config: ServeConfig) -> Result<(), ServeError> {
    let started = std::time::Instant::now();
    let files = raise_file_limit();
    let mut interrupt = signal(SignalKind::interrupt()).map_err(system("cannot handle SIGINT"))?;
    let mut terminate = signal(SignalKind::terminate()).map_err(system("cannot handle SIGTERM"))?;
    let workers = Workers::start().map_err(system("cannot start the threads for client connections"))?;
    let tasks = Tasks::default().with_workers(workers);
    let mut registry = Registry::default();
    let metrics = Metrics::register(&mut registry);
    let status = Arc::new(FilterStatus::default());

    // The ports, and the address of one of them for pods.
    let ports = Ports::bind(&config).await?;
    let secure = match ports.secure {
        Some((listener, SecureConfig { certificate, client_ca, .. })) => {
            Some((listener, ServerTls::load(certificate, client_ca, metrics.serving_certificate.clone()).await?))
        }
        None => None,
    };
    if let Some(pods) = &config.pods {
        let address = PodAddress::new(pods, metrics.pods.clone(), tasks.clone());
        tasks.spawn_until_stop(address.run().instrument(tracing::info_span!("pods")));
    }

    if let Some(directory) = config.cache_dir.clone() {
        config.put_cache_dir(take_over_former(directory).await);
    }
    let kept = daemon_cache_directory(&mut config).await.map_err(system("--cache-dir cannot be used"))?;
    let cache = kept.path.clone();
    let time_file = match &config.cache_dir {
        Some(directory) => Some(TimeFile::restore(directory).await),
        None => None,
    };
    if let Some(file) = time_file.clone() {
        tasks.spawn_until_stop(file.run());
    }

    // The API servers, for clients' requests and for the daemon's own.
    let servers = ApiServers::load(&config).await?;
    let server_names = servers.names();
    let upstream_metrics = metrics.upstream;
    let peers = connect_peers(&config, &upstream_metrics, &tasks).await?;
    let (upstream, addresses) = servers.connect(&config, &peers, upstream_metrics, &tasks)?;
    let client = upstream.client();
    let outage = Outage::new(upstream.clone(), config.offline_grace);
    if let (Some(directory), Some(_)) = (&config.cache_dir, &config.disk_cache) {
        tasks.spawn_until_stop(outage.clone().run(directory.clone()));
    }

    // Modules: from the configuration, a directory, or once from elsewhere and then from the cache.
    let module_cache = Arc::new(ModuleCache::open(&cache));
    let modules = Modules {
        directory: config.modules_dir.clone(),
        trust: config.trust.clone(),
        cache: Some(module_cache.clone()),
        config_maps: config.source.namespace().map(|namespace| (client.clone(), namespace.to_owned())),
        peers: peers.clone(),
        files: WatchedFiles::default(),
        keeps_files: config.disk_cache.is_some(),
        logged_once: LoggedOnce::default(),
    };

    // The proxy. It receives the active filter set through a channel.
    let (serving, served) = watch::channel(Serving::Unknown);
    let disk = open_disk(&config, metrics.disk, (upstream.connectivity(), &status), &tasks);
    let check = cache_check(&config, metrics.checks);
    let (refusal, refused) = refusals();
    let stores = resource_stores(&config, &upstream, peers.clone(), disk.clone(), check.clone(), (refusal, &tasks));
    let cluster = stores.cluster_watch();
    tasks.spawn_until_stop(stores.clone().confirm_cluster().instrument(tracing::info_span!("cache")));
    let local_status = local_status(&config, &upstream, &stores, (disk.clone(), &peers), metrics.local_status, &tasks);
    let served = match &local_status {
        Some(status) => layer(status.clone(), served, &tasks),
        None => served,
    };
    let ledger = Ledger::new(config.memory.held);
    let views = open_views(
        &config,
        stores.clone(),
        client.clone(),
        (metrics.caches.clone(), ledger.clone()),
        served.clone(),
        &tasks,
    );
    tasks.spawn_until_stop(views.clone().follow_history(check.findings.subscribe()));
    let caches = Caches {
        upstream: Some(upstream.clone()),
        views: Some(views.clone()),
        local_status: local_status.clone(),
        metrics: metrics.caches,
    };
    let clients = Arc::<ClientTable>::default();
    let parts = ProxyParts {
        ledger,
        upstream: upstream.clone(),
        outage: outage.clone(),
        serving: served.clone(),
        views,
        local_status,
        metrics: metrics.proxy.clone(),
        clients: clients.clone(),
        relay_metrics: metrics.relay,
        modules: Some(module_cache),
    };
    let proxy = Proxy::new(proxy_config(&config, files), parts, tasks.clone());

    // Lookups of filters: reflectors of other resources, the addresses of the node, and the endpoint for pods. The
    // addresses are read before the first filter runs, so that their arrival does not invalidate outcomes.
    let reflectors = Reflectors::new(stores);
    reflectors.watch_addresses(&tasks).instrument(tracing::info_span!("node")).await;
    let view = ReflectorView::new(reflectors.clone(), &config.node_name, config.secure_endpoint());
    let lookups = Arc::new(ReflectorLookups::new(view));
    let view = lookups.view();

    // A child process compiles modules, and the cache directory keeps the result.
    let directory = cache.clone();
    let opened = files::at(&cache, files::DEADLINE, move || Ok(Compiler::open(&directory))).await;
    let (engine, compiler) = match opened {
        Ok(opened) => opened?,
        Err(error) => Compiler::in_memory(&cache, &error)?,
    };
    let instances = 2 * std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
    let loader = Loader::new(engine.clone(), Some(compiler), lookups, metrics.runtime.clone(), instances);

    // The filter set: loaded from the configuration, and validated again when a lookup changes.
    let last_good = disk.clone().zip(config.disk_cache.as_ref());
    let last_good = last_good.map(|(disk, flags)| LastGood::new(disk, &flags.directory, &config.source));
    let node = follow_node(&reflectors, &config.node_name, &tasks);
    let reloader = Reloader {
        state: watch_source(&config.source, (client, upstream.connectivity().reconnects()), last_good.clone(), &tasks),
        last_good,
        node: node.clone(),
        source: config.source,
        modules,
        loader,
        serving,
        status: status.clone(),
        metrics: metrics.reload,
        tried: LastTried::default(),
    };
    tasks.spawn_until_stop(reloader.run().instrument(tracing::info_span!("reload")));
    tasks.spawn_until_stop(
        validate_dependencies(reflectors.clone(), view, served.clone()).instrument(tracing::info_span!("lookups")),
    );

    tracing::info!(address = %local(&ports.admin)?, "admin port listens");
    let notices = Arc::new(Notices {
        outage: Some(outage),
        node: Some((config.node_name.clone(), node.clone())),
        upstream: Some(upstream.clone()),
        servers: Some(addresses),
        https: config.secure.as_ref().map(|secure| HttpsPort::new(&secure.certificate, metrics.serving_certificate)),
        pod_address: config.pods.clone().map(|pods| (pods, metrics.pods)),
        disk: Some(disk.clone()),
        unusable_cache: kept.unusable.clone(),
        history: Arc::default(),
    });
    tasks.spawn_until_stop(notices.clone().log());
    tasks.spawn_until_stop(Notices::follow_history(notices.history.clone(), check.findings.subscribe()));
    let health = HealthSources { status: status.clone(), reflectors, notices, caches: caches.clone() };
    let changes = metrics.runtime.breaker_changes();
    let report = NodeReport::new(&config.node_name, health.clone(), changes, upstream.clone(), config.node_condition)
        .with_differences(check.findings.subscribe());
    tasks.spawn_until_stop(report.run().instrument(tracing::info_span!("node_report")));
    let activity = Arc::<Activity>::default();
    let sources = ActivitySources { clients: clients.clone(), caches, status, runtime: metrics.runtime.clone() };
    tasks.spawn_until_stop(activity.clone().follow(sources));
    let admin = AdminParts {
        activity,
        sources: health,
        registry,
        metrics: metrics.admin,
        runtime: metrics.runtime,
        engine,
        clients,
        node_name: config.node_name.clone(),
        proxy: Some(proxy.clone()),
    };
    Admin::new(admin).serve(ports.admin.socket, &tasks);
    let address = local(&ports.plain)?;
    tracing::info!(%address, upstream = server_names, node = config.node_name, "proxy listens");
    proxy.keep_discovery();
    proxy.note_refusals(refused);
    proxy.forget_other_clusters(&cluster);
    proxy.serve(ports.plain)?;
    if let Some((listener, tls)) = secure {
        tracing::info!(address = %local(&listener)?, "HTTPS port listens");
        let requested = |secure: &SecureConfig| secure.certificate == ServingCertificate::Requested;
        if let (Some(pods), true) = (&config.pods, config.secure.as_ref().is_some_and(requested)) {
            let for_peers = config.peers.as_ref().and_then(|peers| peers.own_host.clone());
            let hosts = std::iter::once(pods.address.to_string()).chain(for_peers).collect();
            let manager = CertificateManager::new(upstream.clone(), &config.node_name, hosts, &cache, tls.clone());
            tasks.spawn_until_stop(manager.run().instrument(tracing::info_span!("certificate")));
        }
        proxy.serve_tls(listener, tls);
    }
    tasks.spawn_until_stop(log_when_ready(served, started));

    tokio::select! {
        _ = interrupt.recv() => tracing::info!("received SIGINT, stopping"),
        _ = terminate.recv() => tracing::info!("received SIGTERM, stopping"),
    }
    // Stores and lookups end with their tasks, so what they have is committed before.
    let until = flush_disk(disk.as_ref()).await;
    // Connections end within the drain timeout. The rest is for tasks that end after them.
    let drained = tasks.drain(config.drain + Duration::from_millis(500)).await;
    close_disk(disk, time_file, until).await;
    if drained {
        tracing::info!("stopped");
    } else {
        tracing::warn!(timeout = ?config.drain, "stopped, but open requests did not finish within the drain timeout");
    }
    Ok(())
}

/// The listening sockets of all ports.
struct Ports {
    admin: Listener,
    plain: Listener,
    secure: Option<(Listener, SecureConfig)>,
}

impl Ports {
    async fn bind(config: &ServeConfig) -> Result<Self, ServeError> {
        let mut sockets = ListenSockets::inherited().map_err(system("cannot use the sockets that systemd passed"))?;
        let admin = listen(&mut sockets, "--admin-address/--admin-port", config.admin).await?;
        let plain = listen(&mut sockets, "--bind-address/--port", config.bind).await?;
        let secure = match config.secure.clone() {
            Some(secure) => {
                // The pod address may not be on an interface yet, and may leave and return.
                let pods = config.pods.as_ref().is_some_and(|pods| pods.address == secure.address.ip());
                let listener = match pods {
                    true => sockets.listen_freebind(secure.address).await,
                    false => sockets.listen(secure.address).await,
                };
                let listener = listener.map_err(bind("--secure-bind-address/--secure-port", secure.address))?;
                Some((listener, secure))
            }
            None => None,
        };
        match sockets.unclaimed().first() {
            Some(address) => Err(ServeError::Socket(*address)),
            None => Ok(Self { admin, plain, secure }),
        }
    }
}

fn proxy_config(config: &ServeConfig, files: u64) -> ProxyConfig {
    let ports = 1 + u64::from(config.secure.is_some());
    let wanted = ProxyConfig::default().max_connections;
    let peer_nodes = config.peers.iter().flat_map(|peers| &peers.others);
    ProxyConfig {
        max_connections: connections_within(files, ports, wanted),
        node_credential_uids: config.node_credential_uids.clone(),
        node_service_accounts: config.node_service_accounts.clone(),
        start_wait: config.start_wait,
        drain: config.drain,
        compression: config.compression,
        resend: config.resend.clone(),
        response_memory: config.memory.responses,
        allow_remote_plaintext: config.allow_remote_plaintext,
        relay_rate: config.relay_rate,
        peer_nodes: peer_nodes.map(|(node, _)| node.clone()).collect(),
    }
}

async fn listen(sockets: &mut ListenSockets, flag: &'static str, address: SocketAddr) -> Result<Listener, ServeError> {
    sockets.listen(address).await.map_err(bind(flag, address))
}

fn bind(flag: &'static str, address: SocketAddr) -> impl FnOnce(std::io::Error) -> ServeError {
    move |source| ServeError::Bind { flag, address, source }
}

fn local(listener: &Listener) -> Result<SocketAddr, ServeError> {
    listener.socket.local_addr().map_err(system("a listening socket has no address"))
}

/// Logs when the first filter set is active.
async fn log_when_ready(mut served: watch::Receiver<Serving>, started: std::time::Instant) {
    if served.wait_for(|serving| matches!(serving, Serving::Live(_))).await.is_ok() {
        tracing::info!(after = ?started.elapsed(), "ready");
    }
}

fn system(what: &str) -> impl FnOnce(std::io::Error) -> ServeError {
    let what = what.to_owned();
    move |source| ServeError::System { what, source }
}

/// Compile-time check that the future of the daemon is `Send`.
const _: fn() = || {
    fn is_send<T: Future + Send>(_: fn(ServeConfig) -> T) {}
    is_send(run);
};
