//! Parses the command line to a [`Command`], or to a message and an exit code. Each flag of `serve` has an environment
//! variable `WEIR_*`. No other file reads the environment.

pub mod author;
pub mod cluster;
pub mod operator;
mod removed;

use std::ffi::OsString;
use std::net::IpAddr;
use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{ArgAction, Args, CommandFactory as _, Parser, Subcommand};

use self::author::{
    CheckFlags, DevFlags, InspectFlags, LoadFlags, NewFlags, PullFlags, PushFlags, RecordFlags, RunFlags, TestFlags,
    WitFlags,
};
use self::operator::{DiffFlags, ExplainFlags, StatusFlags};
use super::registry::TrustFlags;
use super::serve::{Compression, LogFormat, NodeConditionMode, ServeConfig};
use weir_upstream::ServerMode;

/// Parses `--server-mode`.
fn server_mode() -> impl TypedValueParser<Value = ServerMode> {
    PossibleValuesParser::new(["round-robin", "priority"]).map(|mode| match mode.as_str() {
        "priority" => ServerMode::Priority,
        _ => ServerMode::RoundRobin,
    })
}

/// Parses a switch.
fn on_or_off() -> impl TypedValueParser<Value = bool> {
    PossibleValuesParser::new(["on", "off"]).map(|value| value == "on")
}

/// A validated command line.
#[derive(Debug, Clone)]
pub enum Command {
    /// Run the daemon.
    Serve(Box<ServeConfig>),
    /// Run one filter on objects from files.
    Run(RunFlags),
    /// Validate a configuration with its modules.
    Check(CheckFlags),
    /// Compare a configuration with the one in force.
    Diff(DiffFlags),
    /// Explain what a client component sees of an object.
    Explain(ExplainFlags),
    /// Show what a running daemon does.
    Status(StatusFlags),
    /// Run case files against a module.
    Test(TestFlags),
    /// Build and test a filter after each change of its sources.
    Dev(DevFlags),
    /// Write objects of a cluster into files.
    Record(RecordFlags),
    /// Describe a module.
    Inspect(InspectFlags),
    /// Create a project for a filter.
    New(NewFlags),
    /// Print the contract.
    Wit(WitFlags),
    /// Push a module to a registry.
    Push(PushFlags),
    /// Pull a module from a registry.
    Pull(PullFlags),
    /// Pull a module with its signatures into one file.
    Save(PullFlags),
    /// Push such a file to a registry.
    Load(LoadFlags),
    /// Pull one module. The daemon runs this as its child process.
    PullChild,
    /// Compile one module. The daemon runs this as its child process.
    Compile(CompileFlags),
    /// Run the daemon as a child process of `weir dev`.
    DevDaemon(Box<ServeConfig>),
}

/// A message to print instead of running a command: a usage error, `--help` or `--version`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsageMessage {
    /// Complete lines.
    pub message: String,
    /// The exit code: 64 for a usage error. With 0, the message belongs on standard output.
    pub code: u8,
}

/// Flags of the hidden `weir compile`.
#[derive(Debug, Clone, Args)]
pub struct CompileFlags {
    /// Cache directory of the daemon; the module is read from standard input
    #[arg(long, value_name = "DIR")]
    pub cache_dir: PathBuf,
    /// Memory that the process may use, in bytes
    #[arg(long, value_name = "BYTES")]
    pub memory: u64,
}

/// A Kubernetes API proxy whose response filters are WebAssembly components
#[derive(Debug, Parser)]
#[command(name = "weir", version, max_term_width = 100)]
struct CommandLine {
    #[command(subcommand)]
    command: RawCommand,
}

#[derive(Debug, Subcommand)]
enum RawCommand {
    /// Proxy the Kubernetes API to the clients of this node
    Serve(Box<ServeFlags>),
    /// Run one filter on objects from files and print its changes as a diff
    Run(RunFlags),
    /// Validate a filters configuration and its modules
    Check(CheckFlags),
    /// Compare what clients of a node see with a new configuration and with the one in force: exit code 1 if anything differs
    Diff(DiffFlags),
    /// Explain what a client component sees of an object: what each filter read, decided and edited
    Explain(ExplainFlags),
    /// Show whether a running daemon is well and what it does: filters, the last reload, caches, API servers and clients. Exit code 0
    /// if it is ready, 2 if it is degraded, offline or not ready, 1 if none answers
    Status(StatusFlags),
    /// Create a project for a filter
    New(NewFlags),
    /// Run the test cases of a filter against its module
    Test(TestFlags),
    /// Build, test and serve a filter after each change of its sources
    Dev(DevFlags),
    /// Write the objects that a filter matches and looks up in a cluster into files, for run, dev and test
    Record(RecordFlags),
    /// Describe a module: what it needs, its size, and an entry for the configuration
    Inspect(InspectFlags),
    /// Print the contract between Weir and filters, as WIT
    Wit(WitFlags),
    /// Push a module to a registry and print the entry for the configuration
    Push(PushFlags),
    /// Pull a module from a registry
    Pull(PullFlags),
    /// Pull a module with its signatures into one file, for a network without a registry
    Save(PullFlags),
    /// Push what `weir save` has written to a registry
    Load(LoadFlags),
    /// Print the version
    Version,
    /// Print a script that completes the commands and flags of weir: `source <(weir completion bash)`
    Completion(CompletionFlags),
    #[command(hide = true)]
    PullChild,
    #[command(hide = true)]
    Compile(CompileFlags),
    #[command(hide = true)]
    DevDaemon(Box<ServeFlags>),
}

/// Flags of `weir completion`.
#[derive(Debug, Args)]
struct CompletionFlags {
    /// Shell
    shell: clap_complete::Shell,
}

impl CompletionFlags {
    fn script(&self) -> String {
        // The crate completes hidden commands, too.
        let all = CommandLine::command();
        let shown = all.get_subcommands().filter(|command| !command.is_hide_set());
        let mut shown = clap::Command::new("weir").args(all.get_arguments()).subcommands(shown);
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut shown, "weir", &mut script);
        String::from_utf8_lossy(&script).into_owned()
    }
}

/// The flags of `weir serve`, before validation.
#[derive(Debug, Args)]
pub(super) struct ServeFlags {
    /// URLs of the API servers, the preferred one first. Excludes --kubeconfig [default: in a pod, the API server of its cluster]
    #[arg(long, env = "WEIR_SERVER", value_name = "URL[,URL…]", value_delimiter = ',')]
    pub(super) server: Vec<http::Uri>,
    /// Selection among several API servers: round-robin, or priority for the first one that is up
    #[arg(long, env = "WEIR_SERVER_MODE", value_name = "MODE", default_value = "round-robin", value_parser = server_mode())]
    pub(super) server_mode: ServerMode,
    /// Kubeconfig with the API server and the daemon's own credential. Excludes --server
    #[arg(long, env = "WEIR_KUBECONFIG", value_name = "FILE")]
    pub(super) kubeconfig: Option<PathBuf>,
    /// Kubeconfig of the node credential, which Weir attaches to requests of local clients without a credential
    #[arg(long, env = "WEIR_NODE_KUBECONFIG", value_name = "FILE")]
    pub(super) node_kubeconfig: Option<PathBuf>,
    /// Uids of the processes whose requests get the node credential [default: 0]
    #[arg(long, env = "WEIR_NODE_CREDENTIAL_UIDS", value_name = "UID[,UID…]", value_delimiter = ',')]
    pub(super) node_credential_uids: Vec<u32>,
    /// Service accounts of the node's own components, as NAMESPACE/NAME: no other client's share shuts them out
    #[arg(
        long,
        env = "WEIR_NODE_SERVICE_ACCOUNTS",
        value_name = "NAMES",
        value_delimiter = ',',
        default_value = "kube-system/kube-proxy,kube-system/coredns"
    )]
    pub(super) node_service_accounts: Vec<String>,
    /// CA bundle of the API server for --server
    #[arg(long, env = "WEIR_CERTIFICATE_AUTHORITY", value_name = "FILE")]
    pub(super) certificate_authority: Option<PathBuf>,
    /// Client certificate of the daemon for --server
    #[arg(long, env = "WEIR_CLIENT_CERTIFICATE", value_name = "FILE")]
    pub(super) client_certificate: Option<PathBuf>,
    /// Private key of --client-certificate
    #[arg(long, env = "WEIR_CLIENT_KEY", value_name = "FILE")]
    pub(super) client_key: Option<PathBuf>,
    /// File with the daemon's bearer token for --server. Weir reloads it when it changes
    #[arg(long, env = "WEIR_TOKEN_FILE", value_name = "FILE")]
    pub(super) token_file: Option<PathBuf>,
    /// Required. Name of this node in the cluster
    #[arg(long, env = "WEIR_NODE_NAME", value_name = "NAME")]
    pub(super) node_name: Option<String>,
    /// Address of the plain HTTP port
    #[arg(long, env = "WEIR_BIND_ADDRESS", value_name = "IP", default_value = "127.0.0.1")]
    pub(super) bind_address: IpAddr,
    /// Plain HTTP port; 0 selects a free port, which is logged
    #[arg(long, env = "WEIR_PORT", value_name = "PORT", default_value_t = 10261)]
    pub(super) port: u16,
    /// Clients whose large filtered responses are compressed with gzip, if they accept it: never, remote (all but loopback) or always
    #[arg(long, env = "WEIR_COMPRESS", value_name = "CLIENTS", default_value = "remote")]
    pub(super) compress: Compression,
    /// Allow a --bind-address other than loopback, where tokens travel in clear text
    #[arg(long, env = "WEIR_ALLOW_REMOTE_PLAINTEXT")]
    pub(super) allow_remote_plaintext: bool,
    /// PEM certificate chain of the HTTPS port. Weir reloads it when it changes. Without it, Weir requests a certificate from
    /// the cluster if --pod-address is set, and has no HTTPS port otherwise
    #[arg(long, env = "WEIR_TLS_CERT_FILE", value_name = "FILE")]
    pub(super) tls_cert_file: Option<PathBuf>,
    /// Private key of --tls-cert-file
    #[arg(long, env = "WEIR_TLS_PRIVATE_KEY_FILE", value_name = "FILE")]
    pub(super) tls_private_key_file: Option<PathBuf>,
    /// CA bundle for client certificates on the HTTPS port. Without it, Weir requests no client certificates
    #[arg(long, env = "WEIR_CLIENT_CA_FILE", value_name = "FILE")]
    pub(super) client_ca_file: Option<PathBuf>,
    /// Other Weirs of the pool, which fill each other's caches over mTLS: the HTTPS port of each by its node. A list that names this node,
    /// too, is the same on all nodes of the pool; the flag may be repeated for several pools, and the list that names this node counts
    #[arg(long, env = "WEIR_PEER", value_name = "NODE=URL[,…]")]
    pub(super) peer: Vec<String>,
    /// CA bundle of the peers' serving certificates [default: the one of --node-kubeconfig]
    #[arg(long, env = "WEIR_PEER_CA_FILE", value_name = "FILE")]
    pub(super) peer_ca_file: Option<PathBuf>,
    // Hidden: only tests need another value, as they do not wait so long.
    /// How long a peer may give no sign of life before the endpoints of its pods count as not ready: six signs that are missing
    #[arg(long, hide = true, env = "WEIR_PEER_SILENCE", value_name = "DURATION", default_value = "30s")]
    pub(super) peer_silence: String,
    /// Bytes a second that this node relays for peers that cannot reach an API server themselves; 0 relays nothing, and uses no peer as a relay
    #[arg(long, env = "WEIR_RELAY_RATE", value_name = "BYTES", default_value = "1Mi")]
    pub(super) relay_rate: String,
    /// Address of the HTTPS port [default: all addresses if --peer names this node, --pod-address, else --bind-address]
    #[arg(long, env = "WEIR_SECURE_BIND_ADDRESS", value_name = "IP")]
    pub(super) secure_bind_address: Option<IpAddr>,
    /// Address at which pods of this node reach the HTTPS port
    #[arg(long, env = "WEIR_POD_ADDRESS", value_name = "IP")]
    pub(super) pod_address: Option<IpAddr>,
    /// Interface to create for --pod-address if no interface has this address; empty creates none
    #[arg(long, env = "WEIR_POD_INTERFACE", value_name = "NAME", default_value = "weir0")]
    pub(super) pod_interface: String,
    /// HTTPS port; 0 selects a free port, which is logged
    #[arg(long, env = "WEIR_SECURE_PORT", value_name = "PORT", default_value_t = 10268)]
    pub(super) secure_port: u16,
    /// Address of the admin port: the status page (/), /status, /livez, /readyz, /metrics, /filters, /caches and /explain
    #[arg(long, env = "WEIR_ADMIN_ADDRESS", value_name = "IP", default_value = "127.0.0.1")]
    pub(super) admin_address: IpAddr,
    /// Admin port; 0 selects a free port, which is logged
    #[arg(long, env = "WEIR_ADMIN_PORT", value_name = "PORT", default_value_t = 10267)]
    pub(super) admin_port: u16,
    /// Added to --port, --secure-port and --admin-port, for a trial on nodes where another proxy has these
    #[arg(long, env = "WEIR_PORT_OFFSET", value_name = "NUMBER", default_value_t = 0)]
    pub(super) port_offset: u16,
    /// ConfigMap with the filters. Excludes --config-file [default: kube-system/weir-filters]
    #[arg(long, env = "WEIR_CONFIG_MAP", value_name = "NAMESPACE/NAME")]
    pub(super) config_map: Option<String>,
    /// Manifest file of such a ConfigMap, watched for changes. Excludes --config-map
    #[arg(long, env = "WEIR_CONFIG_FILE", value_name = "FILE")]
    pub(super) config_file: Option<PathBuf>,
    /// Directory of filter modules, watched for changes
    #[arg(long, env = "WEIR_MODULES_DIR", value_name = "DIR")]
    pub(super) modules_dir: Option<PathBuf>,
    /// How registries are reached and what is trusted.
    #[command(flatten)]
    pub(super) trust: TrustFlags,
    /// Directory for compiled modules, modules of registries, the serving certificate, watch caches, lookups and the last good configuration. It must belong to this daemon alone [default: a temporary directory]
    #[arg(long, env = "WEIR_CACHE_DIR", value_name = "DIR")]
    pub(super) cache_dir: Option<PathBuf>,
    /// Resources whose informers are served from shared watch caches, as resource.group; an empty value turns caching off [default: what kubelet, kube-proxy, CoreDNS and ingress controllers read, and what a filter matches]
    #[arg(long, env = "WEIR_CACHE_RESOURCES", value_name = "RESOURCE[,RESOURCE…]")]
    pub(super) cache_resources: Option<String>,
    /// Client components whose lists of Secrets are cached, too, so that ingress controllers keep their certificates without the API server: encrypted, and for the client alone whose own token read them
    #[arg(long, env = "WEIR_CACHE_SECRETS_FOR", value_name = "COMPONENT[,COMPONENT…]", value_delimiter = ',')]
    pub(super) cache_secrets_for: Vec<String>,
    /// How watches of the watch caches send an object that filters show in another state at an unchanged resourceVersion, by client component: modified, or replace (DELETED, then ADDED) for clients that skip a MODIFIED with the version that they hold [default: traefik=replace, and modified for all others]
    #[arg(long, env = "WEIR_RESEND", value_name = "COMPONENT=MODE[,COMPONENT=MODE…]", value_delimiter = ',')]
    pub(super) resend: Vec<String>,
    /// Largest size of watch caches, lookups and the last good configuration on disk, in --cache-dir; their file takes up to two and a half times as much until it is compacted; 0 keeps them in memory only
    #[arg(long, env = "WEIR_CACHE_SIZE", value_name = "SIZE", default_value = "512Mi")]
    pub(super) cache_size: String,
    /// Longest time between a change and its commit to the watch cache on disk
    #[arg(long, env = "WEIR_CACHE_COMMIT_INTERVAL", value_name = "DURATION", default_value = "500ms")]
    pub(super) cache_commit_interval: String,
    /// Key that encrypts Secrets in the watch cache on disk: 32 bytes or 64 hexadecimal digits, in a file of mode 0600 [default: a generated key beside --cache-dir, e.g. /var/cache/weir.key]
    #[arg(long, env = "WEIR_CACHE_KEY_FILE", value_name = "FILE")]
    pub(super) cache_key_file: Option<PathBuf>,
    /// Directory of the generated key, so that a copy of --cache-dir has none. A key beside --cache-dir moves there. --cache-key-file goes before it [default: beside --cache-dir]
    #[arg(long, env = "WEIR_CACHE_KEY_DIR", value_name = "DIR")]
    pub(super) cache_key_dir: Option<PathBuf>,
    /// Longest time between two comparisons of a watch cache with the API server itself, which find what a peer has forged; 0 compares none
    #[arg(long, env = "WEIR_CACHE_CHECK_INTERVAL", value_name = "DURATION", default_value = "24h")]
    pub(super) cache_check_interval: String,
    /// Bytes per second that the lists of watch caches may take from the link to the API server, as 64Ki; watches, requests of clients and heartbeats are not limited [default: no limit]
    #[arg(long, env = "WEIR_UPLINK_RATE", value_name = "SIZE")]
    pub(super) uplink_rate: Option<String>,
    /// The budget of memory.
    #[command(flatten)]
    pub(super) memory: super::memory::MemoryFlags,
    /// Whether kubelet's reports of its pods stand in for the API server's objects while it cannot be reached: on or off
    #[arg(long, env = "WEIR_LOCAL_STATUS", value_name = "on|off", default_value = "on", action = ArgAction::Set, value_parser = on_or_off())]
    pub(super) local_status: bool,
    // Hidden: it is that of the kernel, and only tests, which restart no node, need another one.
    /// File that has other content after each restart of the node
    #[arg(
        long,
        hide = true,
        env = "WEIR_BOOT_ID_FILE",
        value_name = "FILE",
        default_value = "/proc/sys/kernel/random/boot_id"
    )]
    pub(super) boot_id_file: PathBuf,
    /// Whether the condition WeirFiltersReady is set on the Node: auto (with --node-kubeconfig), on (without it, with the daemon's own credential) or off
    #[arg(long, env = "WEIR_NODE_CONDITION", value_name = "MODE", default_value = "auto")]
    pub(super) node_condition: NodeConditionMode,
    /// Longest time that a client other than a node component keeps its permission to read while Weir runs without an API server, never past the expiry of its token
    #[arg(long, env = "WEIR_OFFLINE_GRACE", value_name = "DURATION", default_value = "24h")]
    pub(super) offline_grace: String,
    // Hidden: only tests need another value, as they do not wait so long.
    /// Longest time that a request waits for the first filter set, less than clients wait; then it gets 503
    #[arg(long, hide = true, env = "WEIR_START_WAIT", value_name = "DURATION", default_value = "10s")]
    pub(super) start_wait: String,
    // Hidden: only tests need another value, as they do not wait so long.
    /// Longest time to finish open requests after SIGTERM or SIGINT, a third of what kubelet waits
    #[arg(long, hide = true, env = "WEIR_DRAIN_TIMEOUT", value_name = "DURATION", default_value = "10s")]
    pub(super) drain_timeout: String,
    /// OTLP/HTTP endpoint that gets a trace of each request, as http://localhost:4318; needs a Weir that is built with the feature otlp [default: no traces]
    #[arg(long, env = "WEIR_OTLP_ENDPOINT", value_name = "URL")]
    pub(super) otlp_endpoint: Option<http::Uri>,
    /// Format of log lines on standard error
    #[arg(long, env = "WEIR_LOG_FORMAT", value_name = "FORMAT", default_value = "text")]
    pub(super) log_format: LogFormat,
    /// Log at debug level; twice for trace level
    #[arg(short = 'v', long = "verbose", action = ArgAction::Count)]
    pub(super) verbosity: u8,
}

/// The definition of the command line, for the generated documentation.
#[cfg(test)]
pub(crate) fn definition() -> clap::Command {
    CommandLine::command()
}

/// Parses the command line; the first argument is the name of the program.
///
/// # Errors
/// A [`UsageMessage`], also for `--help`.
pub fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Command, UsageMessage> {
    parse_in(InCluster::from_environment(), |variable| std::env::var_os(variable).is_some(), arguments)
}

fn parse_in(
    in_cluster: Option<InCluster>,
    is_set: impl Fn(&str) -> bool,
    arguments: impl IntoIterator<Item = OsString>,
) -> Result<Command, UsageMessage> {
    let arguments: Vec<_> = arguments.into_iter().collect();
    let line = CommandLine::try_parse_from(&arguments)
        .map_err(|error| UsageMessage { message: error.to_string(), code: if error.use_stderr() { 64 } else { 0 } });
    // An environment with a variable that is gone must not take the help away that says what to set.
    let is_help = line.as_ref().is_err_and(|shown| shown.code == 0);
    if let Some(error) = removed::error(&arguments, is_set).filter(|_| !is_help) {
        return Err(error);
    }
    match line?.command {
        RawCommand::Serve(flags) => validated(*flags, in_cluster).map(Command::Serve),
        RawCommand::Run(flags) => Ok(Command::Run(flags)),
        RawCommand::Diff(flags) => Ok(Command::Diff(flags)),
        RawCommand::Explain(flags) => Ok(Command::Explain(flags)),
        RawCommand::Check(flags) => Ok(Command::Check(flags)),
        RawCommand::Status(flags) => Ok(Command::Status(flags)),
        RawCommand::New(flags) => Ok(Command::New(flags)),
        RawCommand::Test(flags) => Ok(Command::Test(flags)),
        RawCommand::Dev(flags) => Ok(Command::Dev(flags)),
        RawCommand::Record(flags) => Ok(Command::Record(flags)),
        RawCommand::Inspect(flags) => Ok(Command::Inspect(flags)),
        RawCommand::Wit(flags) => Ok(Command::Wit(flags)),
        RawCommand::Push(flags) => Ok(Command::Push(flags)),
        RawCommand::Pull(flags) => Ok(Command::Pull(flags)),
        RawCommand::Save(flags) => Ok(Command::Save(flags)),
        RawCommand::Load(flags) => Ok(Command::Load(flags)),
        RawCommand::Version => Err(printed(CommandLine::command().render_version())),
        RawCommand::Completion(flags) => Err(printed(flags.script())),
        RawCommand::PullChild => Ok(Command::PullChild),
        RawCommand::Compile(flags) => Ok(Command::Compile(flags)),
        RawCommand::DevDaemon(flags) => validated(*flags, in_cluster).map(Command::DevDaemon),
    }
}

/// What is printed instead of running a command.
fn printed(message: String) -> UsageMessage {
    UsageMessage { message, code: 0 }
}

fn validated(flags: ServeFlags, in_cluster: Option<InCluster>) -> Result<Box<ServeConfig>, UsageMessage> {
    ServeConfig::validate(flags, in_cluster).map(Box::new).map_err(|errors| UsageMessage {
        message: errors.into_iter().fold(String::new(), |text, error| text + "error: " + &error + "\n"),
        code: 64,
    })
}

/// The address of the API server, from the environment of a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct InCluster {
    pub(super) host: String,
    pub(super) port: String,
}

impl InCluster {
    fn from_environment() -> Option<Self> {
        let read = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
        Some(Self { host: read("KUBERNETES_SERVICE_HOST")?, port: read("KUBERNETES_SERVICE_PORT")? })
    }
}

fn json_object(text: &str) -> Result<String, String> {
    match serde_json::from_str::<serde_json::Value>(text) {
        Ok(serde_json::Value::Object(_)) => Ok(text.to_owned()),
        Ok(_) => Err("must be a JSON object".to_owned()),
        Err(error) => Err(format!("not JSON: {error}")),
    }
}

#[cfg(test)]
mod tests;
