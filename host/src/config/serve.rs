//! What `weir serve` runs with: the flags, validated in one step, every problem at once.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use super::flags::{InCluster, ServeFlags};
use super::secure::{PodsConfig, SecureConfig};
use super::upstream;
use weir_runtime::{Endpoint, duration, quantity};
use weir_upstream::{ServerMode, ServerSource};

/// A validated `weir serve`.
#[derive(Debug, Clone)]
pub struct ServeConfig {
    /// The API server and the daemon's own identity there.
    pub upstream: ServerSource,
    /// Which of several API servers is asked.
    pub server_mode: ServerMode,
    /// The node credential, attached to requests of local clients that send none of their own; none: nothing is attached.
    pub node_kubeconfig: Option<PathBuf>,
    /// The uids of the processes whose requests get it.
    pub node_credential_uids: Vec<u32>,
    /// The local node.
    pub node_name: String,
    /// The plain HTTP port.
    pub bind: SocketAddr,
    /// Whether `bind` may be other than loopback; checked already.
    pub allow_remote_plaintext: bool,
    /// The HTTPS port; none: there is no such port.
    pub secure: Option<SecureConfig>,
    /// How pods reach the daemon; none: they are not to.
    pub pods: Option<PodsConfig>,
    /// The admin port.
    pub admin: SocketAddr,
    /// Where the filters' configuration comes from.
    pub source: ConfigSource,
    /// Where modules are dropped; none: only those inside the ConfigMap.
    pub modules_dir: Option<PathBuf>,
    /// Where compiled modules are kept; none: nothing is kept between starts.
    pub cache_dir: Option<PathBuf>,
    /// How long a request may wait for the first complete set.
    pub start_wait: Duration,
    /// How long requests may take to finish when the daemon stops.
    pub drain: Duration,
    /// Which clients get large filtered answers compressed.
    pub compression: Compression,
    /// Bytes for answers that are held until they are whole, all together.
    pub answer_memory: usize,
    /// How to log.
    pub log: LogConfig,
}

/// Where the filters' configuration comes from. Shown as in messages: `ConfigMap kube-system/weir-filters`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConfigSource {
    /// Watched through the API.
    ConfigMap {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
    },
    /// A manifest, watched through the file system.
    File(PathBuf),
}

/// How to log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogConfig {
    /// Text or JSON lines.
    pub format: LogFormat,
    /// 0: info; 1: debug; 2 and more: trace.
    pub verbosity: u8,
}

/// Which clients get large filtered answers as gzip, if they accept it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum Compression {
    /// None.
    Never,
    /// Those that are not on loopback, where it costs CPU and saves nothing.
    #[default]
    Remote,
    /// All.
    Always,
}

/// How a log line is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// Only root: a hostNetwork pod reaches the loopback port, too, and runs as any other user.
const DEFAULT_NODE_CREDENTIAL_UIDS: [u32; 1] = [0];

impl ServeConfig {
    pub(super) fn validate(flags: ServeFlags, in_cluster: Option<InCluster>) -> Result<Self, Vec<String>> {
        let mut problems = Vec::new();
        let upstream = upstream::from_flags(&flags, in_cluster, &mut problems);
        let secure = SecureConfig::from_flags(&flags, &mut problems);
        let pods = PodsConfig::from_flags(&flags, &mut problems);
        if !flags.node_credential_uids.is_empty() && flags.node_kubeconfig.is_none() {
            problems.push("--node-credential-uids: needs --node-kubeconfig, which names the credential".to_owned());
        }
        let node_credential_uids = match flags.node_credential_uids {
            uids if uids.is_empty() => DEFAULT_NODE_CREDENTIAL_UIDS.to_vec(),
            uids => uids,
        };
        let node_name = flags.node_name.filter(|name| !name.is_empty());
        if node_name.is_none() {
            problems.push("--node-name: missing: the name of this node in the cluster".to_owned());
        }
        if !flags.bind_address.is_loopback() && !flags.allow_remote_plaintext {
            problems.push(format!(
                "--bind-address: {} is not a loopback address: give --allow-remote-plaintext if that is meant",
                flags.bind_address
            ));
        }
        if flags.config_map.is_some() && flags.config_file.is_some() {
            problems.push("--config-map and --config-file: only one of them".to_owned());
        }
        let named = config_map(flags.config_map.as_deref().unwrap_or("kube-system/weir-filters"), &mut problems);
        let source = flags.config_file.map(ConfigSource::File).or(named);
        let start_wait = duration(&flags.start_wait);
        if start_wait.is_none() {
            problems.push(format!("--start-wait: {:?} is not a duration: write it as 10s or 500ms", flags.start_wait));
        }
        let drain = duration(&flags.drain_timeout);
        if drain.is_none() {
            problems.push(format!(
                "--drain-timeout: {:?} is not a duration: write it as 10s or 500ms",
                flags.drain_timeout
            ));
        }
        let answer_memory = quantity(&flags.answer_memory).and_then(|bytes| usize::try_from(bytes).ok());
        if answer_memory.is_none() {
            problems.push(format!(
                "--answer-memory: {:?} is not an amount of memory: write it as 256Mi",
                flags.answer_memory
            ));
        }
        match (upstream, node_name, source, start_wait, drain, answer_memory) {
            (Some(upstream), Some(node_name), Some(source), Some(start_wait), Some(drain), Some(answer_memory))
                if problems.is_empty() =>
            {
                Ok(Self {
                    upstream,
                    server_mode: flags.server_mode,
                    node_kubeconfig: flags.node_kubeconfig,
                    node_credential_uids,
                    node_name,
                    bind: SocketAddr::new(flags.bind_address, flags.port),
                    allow_remote_plaintext: flags.allow_remote_plaintext,
                    secure,
                    pods,
                    admin: SocketAddr::new(flags.admin_address, flags.admin_port),
                    source,
                    modules_dir: flags.modules_dir,
                    cache_dir: flags.cache_dir,
                    start_wait,
                    drain,
                    compression: flags.compress,
                    answer_memory,
                    log: LogConfig { format: flags.log_format, verbosity: flags.verbosity },
                })
            }
            _ => Err(problems),
        }
    }

    /// What the `node` import answers: none without `--pod-address`.
    #[must_use]
    pub fn secure_endpoint(&self) -> Option<Endpoint> {
        self.pods.as_ref().map(|pods| Endpoint { host: pods.address.to_string(), port: pods.port })
    }
}

fn config_map(text: &str, problems: &mut Vec<String>) -> Option<ConfigSource> {
    let word = |part: &str| {
        !part.is_empty()
            && part.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(&byte))
    };
    match text.split_once('/') {
        Some((namespace, name)) if word(namespace) && word(name) => {
            Some(ConfigSource::ConfigMap { namespace: namespace.to_owned(), name: name.to_owned() })
        }
        _ => {
            problems.push(format!("--config-map: {text:?} is not NAMESPACE/NAME, e.g. kube-system/weir-filters"));
            None
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
