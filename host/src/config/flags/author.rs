//! The flags of the commands for filter authors.

use std::ffi::OsString;
use std::net::IpAddr;
use std::path::PathBuf;

use clap::{ArgAction, Args, ValueEnum};

use super::super::registry::{RegistryFlags, TrustFlags};
use super::cluster::ClusterFlags;
use super::json_object;
use super::operator::OutputFormat;
use weir_kube::GroupResource;
use weir_spec::OciReference;

/// Flags of all commands that run modules.
#[derive(Debug, Clone, Args)]
pub struct ModuleFlags {
    /// Where compiled modules are.
    #[command(flatten)]
    pub compiled: CompiledFlags,
    /// Show debug lines of filters; -vv shows trace lines
    #[arg(short = 'v', long = "verbose", action = ArgAction::Count)]
    pub verbosity: u8,
}

/// Flags that say where compiled modules are.
#[derive(Debug, Clone, Args)]
pub struct CompiledFlags {
    /// Directory of compiled modules [default: weir in $XDG_CACHE_HOME or ~/.cache]
    #[arg(long, env = "WEIR_CACHE_DIR", value_name = "DIR")]
    cache_dir: Option<PathBuf>,
}

/// Flags that say what a filter sees beside its objects.
#[derive(Debug, Clone, Args)]
pub struct WorldFlags {
    /// Objects that the filter can look up; may be repeated
    #[arg(long, value_name = "FILE")]
    pub cluster: Vec<PathBuf>,
    /// Name of this node
    #[arg(long, value_name = "NAME", default_value = "node", value_parser = weir_kube::node_name)]
    pub node_name: String,
    /// Address at which pods of this node reach the daemon
    #[arg(long, value_name = "IP")]
    pub pod_address: Option<IpAddr>,
    /// Port at --pod-address
    #[arg(long, value_name = "PORT", default_value_t = 10268)]
    pub secure_port: u16,
}

/// Flags that say how a filter is configured.
#[derive(Debug, Clone, Args)]
pub struct EntryFlags {
    /// Settings of the filter
    #[arg(long, value_name = "JSON", default_value = "{}", value_parser = json_object, conflicts_with = "filters")]
    pub settings: String,
    /// Filters file or ConfigMap with the filter's settings, limits and grants
    #[arg(long, value_name = "FILE")]
    pub filters: Option<PathBuf>,
    /// Name of the filter in --filters [default: the one with this module, or the only one]
    #[arg(long, value_name = "NAME", requires = "filters")]
    pub filter: Option<String>,
}

/// Flags of `weir run`.
#[derive(Debug, Clone, Args)]
pub struct RunFlags {
    /// Filter module, a WebAssembly component
    pub module: PathBuf,
    /// Objects to filter, as YAML or JSON: one or several documents, or a list; - reads standard input
    #[arg(long, value_name = "FILE|-")]
    pub object: PathBuf,
    /// Measure the time to compile, to start and to filter, and the memory, instead of printing outcomes
    #[arg(long)]
    pub bench: bool,
    /// How the filter is configured.
    #[command(flatten)]
    pub entry: EntryFlags,
    /// What the filter sees.
    #[command(flatten)]
    pub world: WorldFlags,
    /// How modules run.
    #[command(flatten)]
    pub modules: ModuleFlags,
}

/// Flags of `weir check`.
#[derive(Debug, Clone, Args)]
pub struct CheckFlags {
    /// Filters file, manifest of the filters ConfigMap, or one module; - is standard input
    pub config: PathBuf,
    /// Format of the output
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    pub output: OutputFormat,
    /// Directory of the modules that the manifest does not contain
    #[arg(long, value_name = "DIR")]
    pub modules_dir: Option<PathBuf>,
    /// How registries are reached, and what is trusted.
    #[command(flatten)]
    pub trust: TrustFlags,
    /// Settings of the filter, for one module
    #[arg(long, value_name = "JSON", default_value = "{}", value_parser = json_object)]
    pub settings: String,
    /// How modules run.
    #[command(flatten)]
    pub modules: ModuleFlags,
}

/// Flags of `weir test`.
#[derive(Debug, Clone, Args)]
pub struct TestFlags {
    /// Filter module [default: that of weir.toml]
    pub module: Option<PathBuf>,
    /// Directory of the case files
    #[arg(long, value_name = "DIR", default_value = "cases")]
    pub cases: PathBuf,
    /// Write the results as JUnit XML, too
    #[arg(long, value_name = "FILE")]
    pub junit: Option<PathBuf>,
    /// How modules run.
    #[command(flatten)]
    pub modules: ModuleFlags,
}

/// Flags of `weir dev`.
#[derive(Debug, Clone, Args)]
pub struct DevFlags {
    /// Objects whose outcomes are compared from build to build, and that lookups read; may be repeated
    #[arg(long, value_name = "FILE")]
    pub object: Vec<PathBuf>,
    /// Directory of the case files
    #[arg(long, value_name = "DIR", default_value = "cases")]
    pub cases: PathBuf,
    /// End after the first build, with the result of its cases
    #[arg(long)]
    pub once: bool,
    /// How modules run.
    #[command(flatten)]
    pub modules: ModuleFlags,
    /// Flags of `weir serve`: run a daemon with the last good build
    #[arg(last = true, value_name = "SERVE-FLAG")]
    pub serve: Vec<OsString>,
}

/// Flags of `weir record`.
#[derive(Debug, Clone, Args)]
pub struct RecordFlags {
    /// Filter module [default: that of weir.toml]
    pub module: Option<PathBuf>,
    /// Where the cluster is.
    #[command(flatten)]
    pub cluster: ClusterFlags,
    /// Resources to record, as resource.group; may be repeated [default: those that the filter matches]
    #[arg(long, value_name = "RESOURCE")]
    pub resource: Vec<GroupResource>,
    /// Namespace of the objects [default: all]
    #[arg(short, long, value_name = "NAME")]
    pub namespace: Option<String>,
    /// Directory of the files to write
    #[arg(short, long, value_name = "DIR", default_value = "recorded")]
    pub output: PathBuf,
    /// Name of the node that the filter sees
    #[arg(long, value_name = "NAME", default_value = "node", value_parser = weir_kube::node_name)]
    pub node_name: String,
    /// How the filter is configured.
    #[command(flatten)]
    pub entry: EntryFlags,
    /// How modules run.
    #[command(flatten)]
    pub modules: ModuleFlags,
}

/// Flags of `weir inspect`.
#[derive(Debug, Clone, Args)]
pub struct InspectFlags {
    /// Filter module, a WebAssembly component
    pub module: PathBuf,
    /// How the filter is configured.
    #[command(flatten)]
    pub entry: EntryFlags,
    /// How modules run.
    #[command(flatten)]
    pub modules: ModuleFlags,
}

/// Flags of `weir push`.
#[derive(Debug, Clone, Args)]
pub struct PushFlags {
    /// Filter module, a WebAssembly component
    pub module: PathBuf,
    /// Where to push it: REGISTRY/NAME:TAG, or REGISTRY/NAME for no tag
    pub reference: OciReference,
    /// How registries are reached.
    #[command(flatten)]
    pub registries: RegistryFlags,
}

/// Flags of `weir pull` and `weir save`.
#[derive(Debug, Clone, Args)]
pub struct PullFlags {
    /// What to pull: REGISTRY/NAME:TAG or REGISTRY/NAME@sha256:DIGEST
    pub reference: OciReference,
    /// File to write [default: NAME.wasm, for save sha256-DIGEST.tar]
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// How registries are reached, and what is trusted.
    #[command(flatten)]
    pub trust: TrustFlags,
}

/// Flags of `weir load`.
#[derive(Debug, Clone, Args)]
pub struct LoadFlags {
    /// File that `weir save` has written
    pub file: PathBuf,
    /// Where to push it: REGISTRY/NAME:TAG, or REGISTRY/NAME for no tag
    pub reference: OciReference,
    /// How registries are reached.
    #[command(flatten)]
    pub registries: RegistryFlags,
}

/// Flags of `weir wit`.
#[derive(Debug, Clone, Args)]
pub struct WitFlags {
    /// Write the files into a directory instead of printing them
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
}

/// Flags of `weir new`.
#[derive(Debug, Clone, Args)]
pub struct NewFlags {
    /// Name of the filter, and of the folder that is created
    pub name: String,
    /// Language of the filter
    #[arg(long, value_name = "LANGUAGE", default_value = "rust")]
    pub lang: Language,
}

/// A language that `weir new` has a template for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Language {
    /// Rust with the SDK `weir-filter`.
    Rust,
    /// Go with wit-bindgen.
    Go,
    /// JavaScript with componentize-js.
    Js,
    /// Python with componentize-py.
    Python,
    /// C with zig cc and wit-bindgen.
    C,
}

/// Returns the flags with docker's own file, if no other one is given and this user has it.
#[must_use]
pub fn with_login(flags: &RegistryFlags) -> RegistryFlags {
    let mut flags = flags.clone();
    if flags.registry_auth.is_empty() {
        let folder = folder("DOCKER_CONFIG").or_else(|| Some(folder("HOME")?.join(".docker")));
        flags.registry_auth.extend(folder.map(|folder| folder.join("config.json")).filter(|file| file.exists()));
    }
    flags
}

/// A folder that the environment names.
fn folder(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from)
}

impl CompiledFlags {
    /// Returns the directory of compiled modules; `None` if the user has no home.
    #[must_use]
    pub fn cache_dir(&self) -> Option<PathBuf> {
        let default = || {
            let caches = folder("XDG_CACHE_HOME").or_else(|| Some(folder("HOME")?.join(".cache")))?;
            Some(caches.join("weir"))
        };
        self.cache_dir.clone().or_else(default)
    }
}
