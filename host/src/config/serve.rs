//! The configuration of `weir serve`: validates all flags in one step and reports all errors at once.

use std::fmt;
use std::net::SocketAddr;
use std::num::NonZeroU64;
use std::path::PathBuf;
use std::time::Duration;

use weir_kube::{duration, node_name, quantity};

use super::disk::DiskCacheConfig;
use super::flags::{InCluster, ServeFlags};
use super::memory::MemoryParts;
use super::peers::PeersConfig;
use super::registry::TrustFlags;
use super::resend::Resend;
use super::secure::{PodsConfig, SecureConfig, secure_config};
use super::upstream;
use weir_runtime::Endpoint;
use weir_upstream::{ServerMode, ServerSource};
use weir_view::CachedResources;

/// A validated `weir serve`.
#[derive(Debug, Clone)]
pub struct ServeConfig {
    /// The API servers and the daemon's own credential.
    pub upstream: ServerSource,
    /// The selection among several API servers.
    pub server_mode: ServerMode,
    /// The kubeconfig of the node credential, which Weir attaches to requests of local clients without a credential.
    pub node_kubeconfig: Option<PathBuf>,
    /// The uids of the processes whose requests get it.
    pub node_credential_uids: Vec<u32>,
    /// The service accounts of the node's own components, as `namespace/name`.
    pub node_service_accounts: Vec<String>,
    /// The name of this node.
    pub node_name: String,
    /// The plain HTTP port.
    pub bind: SocketAddr,
    /// Whether `bind` may be another address than loopback. Validated.
    pub allow_remote_plaintext: bool,
    /// The HTTPS port, if there is one.
    pub secure: Option<SecureConfig>,
    /// The address for pods, if they can reach the daemon.
    pub pods: Option<PodsConfig>,
    /// The other Weirs of the pool, if they are named.
    pub peers: Option<PeersConfig>,
    /// The admin port.
    pub admin: SocketAddr,
    /// The source of the filters' configuration.
    pub source: ConfigSource,
    /// The directory of modules. Without it, only modules inside the ConfigMap are available.
    pub modules_dir: Option<PathBuf>,
    /// How registries are reached and what is trusted.
    pub trust: TrustFlags,
    /// The cache directory. Without it, nothing is kept between starts.
    pub cache_dir: Option<PathBuf>,
    /// The resources whose informers are served from shared watch caches.
    pub cache_resources: CachedResources,
    /// The client components, in lower case, whose lists of Secrets are cached.
    pub cache_secrets_for: Vec<String>,
    /// How watches send what filters show in another state.
    pub resend: Resend,
    /// The watch cache on disk. `None` keeps it in memory only.
    pub disk_cache: Option<DiskCacheConfig>,
    /// The longest time between two comparisons of a watch cache with the API server; `None`: there are none.
    pub cache_check: Option<Duration>,
    /// Whether kubelet's reports stand in for the API server's objects while it cannot be reached.
    pub local_status: bool,
    /// Whether the state of the filters is a condition of the Node.
    pub node_condition: bool,
    /// The file that identifies the boot of the node.
    pub boot_id_file: PathBuf,
    /// Bytes a second that this node relays for its peers; `None`: relays are off.
    pub relay_rate: Option<NonZeroU64>,
    /// How long a peer may give no sign of life.
    pub peer_silence: Duration,
    /// The longest time that a client keeps its permission to read while no API server can be reached.
    pub offline_grace: Duration,
    /// The longest time that a request waits for the first filter set.
    pub start_wait: Duration,
    /// The longest time to finish open requests when the daemon stops.
    pub drain: Duration,
    /// The clients whose large filtered responses are compressed.
    pub compression: Compression,
    /// The parts of the memory budget.
    pub memory: MemoryParts,
    /// Bytes per second that lists of watch caches may take; `None` is no limit.
    pub uplink_rate: Option<NonZeroU64>,
    /// The OTLP/HTTP endpoint that gets traces. `None` sends none.
    pub otlp_endpoint: Option<http::Uri>,
    /// Format and level of the log.
    pub log: LogConfig,
}

/// The source of the filters' configuration. `Display` is its name in messages: `ConfigMap kube-system/weir-filters`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConfigSource {
    /// A ConfigMap, watched through the API.
    ConfigMap {
        /// The namespace.
        namespace: String,
        /// The name.
        name: String,
    },
    /// A manifest file, watched through the file system.
    File(PathBuf),
}

/// Format and level of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogConfig {
    /// Text or JSON.
    pub format: LogFormat,
    /// 0: info; 1: debug; 2 and more: trace.
    pub verbosity: u8,
}

/// The clients whose large filtered responses are compressed with gzip, if they accept it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum Compression {
    /// None.
    Never,
    /// All but loopback clients, for which compression costs CPU and saves nothing.
    #[default]
    Remote,
    /// All.
    Always,
}

/// Whether the state of the filters is a condition of the Node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum NodeConditionMode {
    /// If there is a node credential.
    #[default]
    Auto,
    /// Yes: with the node credential, else with the daemon's own.
    On,
    /// No.
    Off,
}

/// The format of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum LogFormat {
    /// Human-readable text.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

/// Only root. A hostNetwork pod reaches the loopback port, too, but usually runs as another user.
const DEFAULT_NODE_CREDENTIAL_UIDS: [u32; 1] = [0];

impl ServeConfig {
    /// Uses another cache directory.
    pub(crate) fn put_cache_dir(&mut self, directory: PathBuf) {
        if let Some(disk) = &mut self.disk_cache {
            disk.directory.clone_from(&directory);
        }
        self.cache_dir = Some(directory);
    }

    pub(super) fn validate(mut flags: ServeFlags, in_cluster: Option<InCluster>) -> Result<Self, Vec<String>> {
        let mut errors = Vec::new();
        for port in [&mut flags.port, &mut flags.secure_port, &mut flags.admin_port] {
            match port.checked_add(flags.port_offset) {
                // The system chooses it.
                _ if *port == 0 => {}
                Some(moved) => *port = moved,
                None => errors.push(format!("--port-offset: {port} + {} is no port", flags.port_offset)),
            }
        }
        let upstream = upstream::from_flags(&flags, in_cluster, &mut errors);
        let node_name = match flags.node_name.as_deref().filter(|name| !name.is_empty()).map(node_name) {
            Some(Ok(name)) => Some(name),
            Some(Err(reason)) => {
                errors.push(format!("--node-name: {reason}"));
                None
            }
            None => {
                errors.push("--node-name: missing: give the name of this node in the cluster".to_owned());
                None
            }
        };
        let peers = PeersConfig::from_flags(&flags, node_name.as_deref(), &mut errors);
        let secure = secure_config(&flags, peers.as_ref(), &mut errors);
        let pods = PodsConfig::from_flags(&flags, &mut errors);
        let cache_resources = CachedResources::from_flag(flags.cache_resources.as_deref(), &mut errors);
        let resend = Resend::from_flag(&flags.resend, &mut errors);
        let disk_cache = DiskCacheConfig::from_flags(&flags, &mut errors);
        let cache_check = parse_duration("--cache-check-interval", &flags.cache_check_interval, &mut errors);
        let cache_check = cache_check.filter(|interval| !interval.is_zero());
        if !flags.node_credential_uids.is_empty() && flags.node_kubeconfig.is_none() {
            errors.push("--node-credential-uids: needs --node-kubeconfig, which names the credential".to_owned());
        }
        let node_credential_uids = match flags.node_credential_uids {
            uids if uids.is_empty() => DEFAULT_NODE_CREDENTIAL_UIDS.to_vec(),
            uids => uids,
        };
        for name in flags.node_service_accounts.iter().filter(|name| !is_namespaced_name(name)) {
            errors.push(format!("--node-service-accounts: {name:?} is not NAMESPACE/NAME"));
        }
        if !flags.bind_address.is_loopback() && !flags.allow_remote_plaintext {
            errors.push(format!(
                "--bind-address: {} is not a loopback address: this needs --allow-remote-plaintext",
                flags.bind_address
            ));
        }
        if flags.config_map.is_some() && flags.config_file.is_some() {
            errors.push("--config-map and --config-file: give only one of them".to_owned());
        }
        let named = config_map(flags.config_map.as_deref().unwrap_or("kube-system/weir-filters"), &mut errors);
        let source = flags.config_file.map(ConfigSource::File).or(named);
        let start_wait = parse_duration("--start-wait", &flags.start_wait, &mut errors);
        let offline_grace = parse_duration("--offline-grace", &flags.offline_grace, &mut errors);
        let peer_silence = parse_duration("--peer-silence", &flags.peer_silence, &mut errors);
        let drain = parse_duration("--drain-timeout", &flags.drain_timeout, &mut errors);
        let memory = flags.memory.validate(weir_process::memory_limit(), &mut errors);
        let uplink_rate = flags.uplink_rate.as_ref().and_then(|rate| {
            let parsed = quantity(rate).and_then(NonZeroU64::new);
            if parsed.is_none() {
                errors.push(format!("--uplink-rate: {rate:?} is not a number of bytes above 0: write it as 64Ki"));
            }
            parsed
        });
        let relay_rate = quantity(&flags.relay_rate);
        if relay_rate.is_none() {
            let rate = &flags.relay_rate;
            errors.push(format!("--relay-rate: {rate:?} is not a number of bytes: write it as 1Mi, or 0 for no relay"));
        }
        check_otlp_endpoint(flags.otlp_endpoint.as_ref(), &mut errors);
        let durations = offline_grace.zip(start_wait).zip(drain).zip(peer_silence);
        let node_condition = match flags.node_condition {
            // The node credential may change no other Node. The daemon's own could change all of them.
            NodeConditionMode::Auto => flags.node_kubeconfig.is_some(),
            NodeConditionMode::On => true,
            NodeConditionMode::Off => false,
        };
        match (upstream, node_name, source, durations) {
            (
                Some(upstream),
                Some(node_name),
                Some(source),
                Some((((offline_grace, start_wait), drain), peer_silence)),
            ) if errors.is_empty() => Ok(Self {
                upstream,
                server_mode: flags.server_mode,
                node_kubeconfig: flags.node_kubeconfig,
                node_credential_uids,
                node_service_accounts: flags.node_service_accounts,
                node_name,
                bind: SocketAddr::new(flags.bind_address, flags.port),
                allow_remote_plaintext: flags.allow_remote_plaintext,
                secure,
                pods,
                peers,
                admin: SocketAddr::new(flags.admin_address, flags.admin_port),
                source,
                modules_dir: flags.modules_dir,
                trust: flags.trust,
                cache_dir: flags.cache_dir,
                cache_resources,
                cache_secrets_for: flags.cache_secrets_for.iter().map(|name| name.trim().to_lowercase()).collect(),
                resend,
                disk_cache,
                cache_check,
                local_status: flags.local_status,
                node_condition,
                boot_id_file: flags.boot_id_file,
                relay_rate: relay_rate.and_then(NonZeroU64::new),
                peer_silence,
                offline_grace,
                start_wait,
                drain,
                compression: flags.compress,
                memory,
                uplink_rate,
                otlp_endpoint: flags.otlp_endpoint,
                log: LogConfig { format: flags.log_format, verbosity: flags.verbosity },
            }),
            _ => Err(errors),
        }
    }

    /// The endpoint that the `node` import returns: none without `--pod-address`.
    #[must_use]
    pub fn secure_endpoint(&self) -> Option<Endpoint> {
        self.pods.as_ref().map(|pods| Endpoint { host: pods.address.to_string(), port: pods.port })
    }
}

pub(super) fn parse_duration(flag: &str, text: &str, errors: &mut Vec<String>) -> Option<Duration> {
    let parsed = duration(text);
    if parsed.is_none() {
        errors.push(format!("{flag}: {text:?} is not a duration: write it as 10s or 500ms"));
    }
    parsed
}

/// Refuses an endpoint that no trace could be sent to.
fn check_otlp_endpoint(endpoint: Option<&http::Uri>, errors: &mut Vec<String>) {
    let Some(endpoint) = endpoint else { return };
    if !cfg!(feature = "otlp") {
        errors.push("--otlp-endpoint: this Weir is built without traces: build it with `--features otlp`".to_owned());
    } else if !matches!(endpoint.scheme_str(), Some("http" | "https")) || endpoint.query().is_some() {
        errors.push(format!(
            "--otlp-endpoint: {endpoint} is not an http or https URL: write it as http://localhost:4318"
        ));
    }
}

fn config_map(text: &str, errors: &mut Vec<String>) -> Option<ConfigSource> {
    let word = |part: &str| {
        !part.is_empty()
            && part.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(&byte))
    };
    match text.split_once('/') {
        Some((namespace, name)) if word(namespace) && word(name) => {
            Some(ConfigSource::ConfigMap { namespace: namespace.to_owned(), name: name.to_owned() })
        }
        _ => {
            errors.push(format!("--config-map: {text:?} is not NAMESPACE/NAME, e.g. kube-system/weir-filters"));
            None
        }
    }
}

impl ConfigSource {
    /// The namespace of the ConfigMap.
    #[must_use]
    pub fn namespace(&self) -> Option<&str> {
        match self {
            Self::ConfigMap { namespace, .. } => Some(namespace),
            Self::File(_) => None,
        }
    }

    /// The manifest file.
    #[must_use]
    pub fn file(&self) -> Option<&PathBuf> {
        match self {
            Self::File(path) => Some(path),
            Self::ConfigMap { .. } => None,
        }
    }
}

impl fmt::Display for ConfigSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ConfigMap { namespace, name } => write!(f, "ConfigMap {namespace}/{name}"),
            Self::File(path) => write!(f, "{}", path.display()),
        }
    }
}
/// Whether a text is the namespace and the name of an object.
fn is_namespaced_name(text: &str) -> bool {
    text.split_once('/').is_some_and(|(namespace, name)| {
        !namespace.is_empty() && !name.is_empty() && !name.contains('/') && !text.contains(char::is_whitespace)
    })
}
