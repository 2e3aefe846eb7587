//! The flags of the commands for operators of a cluster.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use clap::{ArgAction, Args, ValueEnum};

use super::super::registry::TrustFlags;
use super::author::CompiledFlags;
use super::cluster::ClusterFlags;

/// Flags that name a cluster and its filters.
#[derive(Debug, Clone, Args)]
pub struct SiteFlags {
    /// Where the cluster is.
    #[command(flatten)]
    pub cluster: ClusterFlags,
    /// ConfigMap with the configuration in force
    #[arg(long, env = "WEIR_CONFIG_MAP", value_name = "NAMESPACE/NAME", default_value = "kube-system/weir-filters")]
    pub config_map: String,
    /// Address at which pods of the node reach the daemon, for filters that redirect pods to it
    #[arg(long, env = "WEIR_POD_ADDRESS", value_name = "IP", default_value = "169.254.20.10")]
    pub pod_address: IpAddr,
    /// Port at --pod-address
    #[arg(long, env = "WEIR_SECURE_PORT", value_name = "PORT", default_value_t = 10268)]
    pub secure_port: u16,
    /// Directory of the modules that the configuration does not contain
    #[arg(long, value_name = "DIR")]
    pub modules_dir: Option<PathBuf>,
    /// How registries are reached, and what is trusted.
    #[command(flatten)]
    pub trust: TrustFlags,
    /// Where compiled modules are.
    #[command(flatten)]
    pub compiled: CompiledFlags,
}

/// Flags of `weir diff`.
#[derive(Debug, Clone, Args)]
pub struct DiffFlags {
    /// New configuration: a filters file, or the manifest of a ConfigMap; - is standard input
    pub config: PathBuf,
    /// Configuration to compare with, instead of the one in force
    #[arg(long, value_name = "FILE")]
    pub against: Option<PathBuf>,
    /// Name of the node as which the filters run
    #[arg(long, value_name = "NAME", value_parser = weir_kube::node_name)]
    pub node_name: String,
    /// Format of the output
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    pub output: OutputFormat,
    /// The cluster and its filters.
    #[command(flatten)]
    pub site: SiteFlags,
    /// Show debug lines of filters; -vv shows trace lines
    #[arg(short = 'v', long = "verbose", action = ArgAction::Count)]
    pub verbosity: u8,
}

/// Flags of `weir explain`.
#[derive(Debug, Clone, Args)]
pub struct ExplainFlags {
    /// Object: RESOURCE/NAME, or RESOURCE and NAME, as for kubectl get
    pub object: String,
    /// Name of the object, if the first argument is only the resource
    pub name: Option<String>,
    /// Namespace of the object [default: default, for built-in resources that have namespaces]
    #[arg(short, long, value_name = "NAME")]
    pub namespace: Option<String>,
    /// Client component whose view is explained, such as kube-proxy
    #[arg(long, value_name = "NAME")]
    pub component: String,
    /// Show what each filter read, its digest, and which filters do not match; with --node, -vv shows debug lines of
    /// filters, too
    #[arg(short = 'v', long = "verbose", action = ArgAction::Count)]
    pub verbosity: u8,
    /// Format of the output
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    pub output: OutputFormat,
    /// Where the daemon is.
    #[command(flatten)]
    pub admin: AdminFlags,
    /// File with a bearer token that may read the object [default: that of the pod, or the uid decides]
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// Explain what the filters in force make of it on this node, with the objects of the cluster, instead of asking the
    /// daemon of this node
    #[arg(long, value_name = "NAME", conflicts_with = "token_file")]
    pub node: Option<String>,
    /// The cluster and its filters.
    #[command(flatten)]
    pub site: SiteFlags,
}

/// Flags of `weir status`.
#[derive(Debug, Clone, Args)]
pub struct StatusFlags {
    /// Where the daemon is.
    #[command(flatten)]
    pub admin: AdminFlags,
    /// Format of the output: text, wide for more columns and whole names, or json for what /status has
    #[arg(short, long, value_name = "FORMAT", default_value = "text", hide_possible_values = true)]
    pub output: StatusFormat,
}

/// Flags that say where the admin port of a daemon is.
#[derive(Debug, Clone, Copy, Args)]
pub struct AdminFlags {
    /// Address of the daemon's admin port
    #[arg(long, env = "WEIR_ADMIN_ADDRESS", value_name = "IP", default_value = "127.0.0.1")]
    admin_address: IpAddr,
    /// Admin port of the daemon
    #[arg(long, env = "WEIR_ADMIN_PORT", value_name = "PORT", default_value_t = 10267)]
    admin_port: u16,
}

impl AdminFlags {
    /// Returns the address with the port.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        SocketAddr::new(self.admin_address, self.admin_port)
    }
}

/// A format of the output of `weir status`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum StatusFormat {
    /// For people, in 80 columns.
    Text,
    /// For people, all of it.
    Wide,
    /// For programs.
    Json,
}

/// A format of output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum OutputFormat {
    /// For people.
    Text,
    /// For programs.
    Json,
}
