//! The command line, validated in one step.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, CommandFactory as _, Parser, Subcommand, ValueEnum};
use weir_kubeconfig::KubeconfigFiles;

use crate::api::{invalid_pool_name, is_label_key};
use crate::template::Surroundings;

/// Runs an ingress controller in each chosen node pool, and keeps the pods of offline nodes from eviction.
#[derive(Debug, Parser)]
#[command(name = "weir-operator", version, max_term_width = 100)]
pub struct CommandLine {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the operator.
    Serve(Box<ServeFlags>),
    /// Print the CustomResourceDefinition of YurtIngress.
    Crd,
    /// Print the objects of a pool, as the operator would apply them.
    Render(RenderFlags),
    /// Take the operator's finalizer from all YurtIngresses, so that they can be deleted when no operator runs any more. Stop the
    /// operator first: a running one adds it again.
    RemoveFinalizers(RemoveFinalizersFlags),
    /// Print the version.
    Version,
    /// Print a script that completes the commands and flags of weir-operator: `source <(weir-operator completion bash)`.
    Completion(CompletionFlags),
}

/// `weir-operator completion`.
#[derive(Debug, Args)]
pub struct CompletionFlags {
    /// Shell
    shell: clap_complete::Shell,
}

/// Parses the name of a pool.
fn pool_name(text: &str) -> Result<String, String> {
    invalid_pool_name(text).map_or_else(|| Ok(text.to_owned()), Err)
}

/// Parses the name of a namespace.
fn namespace(text: &str) -> Result<String, String> {
    if text.contains('.') || invalid_pool_name(text).is_some() {
        return Err(format!("{text:?} is not the name of a namespace: at most 63 lower case letters, digits and '-'"));
    }
    Ok(text.to_owned())
}

/// Parses the key of a label.
fn label_key(text: &str) -> Result<String, String> {
    match is_label_key(text) {
        true => Ok(text.to_owned()),
        false => Err(format!(
            "{text:?} is not the key of a label: at most 63 letters, digits, '-', '_' and '.', after the name of a domain and '/' if \
             it has one, such as example.com/pool"
        )),
    }
}

/// What the objects depend on.
#[derive(Debug, Clone, Args)]
pub struct ObjectFlags {
    /// Namespace of the ingress controllers. It must exist
    #[arg(
        long,
        value_name = "NAME",
        default_value = "ingress-nginx",
        env = "WEIR_INGRESS_NAMESPACE",
        value_parser = namespace
    )]
    pub namespace: String,
    /// Label of a Node that names its pool
    #[arg(
        long,
        value_name = "LABEL",
        default_value = "apps.openyurt.io/nodepool",
        env = "WEIR_POOL_LABEL",
        value_parser = label_key
    )]
    pub pool_label: String,
    /// Where pods reach the API server through Weir, as HOST:PORT, such as 169.254.20.10:10268: templates set the environment of
    /// their pods. Without it, pods need Weir's filter masterservice
    #[arg(long, value_name = "HOST:PORT", env = "WEIR_POD_API_SERVER")]
    pub pod_api_server: Option<String>,
    /// A value of a template's variable, such as traefik.image=registry.example/traefik:v3.5.0; may be repeated
    #[arg(long = "set", value_name = "TEMPLATE.VARIABLE=VALUE")]
    pub set: Vec<String>,
}

/// `weir-operator render`.
#[derive(Debug, Args)]
pub struct RenderFlags {
    /// Name of the pool
    #[arg(long, value_name = "NAME", value_parser = pool_name)]
    pub pool: String,
    /// Name of a built-in template, or of the template in --config-map
    #[arg(long, value_name = "NAME", default_value = "traefik")]
    pub controller: String,
    /// A manifest of a ConfigMap with a template
    #[arg(long, value_name = "FILE")]
    pub config_map: Option<PathBuf>,
    /// Replicas
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(i32).range(1..))]
    pub replicas: i32,
    #[command(flatten)]
    pub(crate) objects: ObjectFlags,
}

/// Where the cluster is.
#[derive(Debug, Clone, Args)]
pub struct ClusterFlags {
    /// Kubeconfig of the cluster, one file [default: the files of KUBECONFIG, or else ~/.kube/config, or else the pod's
    /// service account]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<OsString>,
}

/// `weir-operator remove-finalizers`.
#[derive(Debug, Args)]
pub struct RemoveFinalizersFlags {
    /// Where the cluster is.
    #[command(flatten)]
    pub cluster: ClusterFlags,
}

/// `weir-operator serve`.
#[derive(Debug, Args)]
pub struct ServeFlags {
    /// Where the cluster is.
    #[command(flatten)]
    pub cluster: ClusterFlags,
    /// Namespace of the operator's Lease and of the ConfigMaps with templates
    #[arg(long, value_name = "NAME", default_value = "weir-operator", env = "WEIR_OPERATOR_NAMESPACE")]
    pub operator_namespace: String,
    /// Name of the Lease, by which one of several replicas acts
    #[arg(long, value_name = "NAME", default_value = "weir-operator")]
    pub lease_name: String,
    /// Who holds the Lease [default: the host name]
    #[arg(long, value_name = "NAME", env = "POD_NAME")]
    pub identity: Option<String>,
    /// Seconds until another replica takes over from one that does not respond
    #[arg(long, value_name = "SECONDS", default_value_t = 15, value_parser = clap::value_parser!(u32).range(3..=3600))]
    pub lease_seconds: u32,
    /// Address of /livez, /readyz and /metrics
    #[arg(long, value_name = "ADDRESS", default_value = "0.0.0.0:10270", env = "WEIR_ADMIN_ADDRESS")]
    pub admin_address: SocketAddr,
    /// Which pools exist: NodePools of OpenYurt, or the values of --pool-label on Nodes
    #[arg(long, value_name = "SOURCE", default_value = "nodepools", env = "WEIR_POOL_SOURCE")]
    pub pool_source: PoolSource,
    /// Most requests to the API server in a second, without those for the Lease and for pods
    #[arg(long, value_name = "N", default_value = "10")]
    pub requests_per_second: NonZeroU32,
    /// Most pods in a second whose tolerations are set after the annotation of a node has changed. New pods do not wait
    #[arg(long, value_name = "N", default_value = "20")]
    pub pods_per_second: NonZeroU32,
    /// Leave the tolerations of pods alone
    #[arg(long)]
    pub no_evictions: bool,
    /// Write the log as JSON
    #[arg(long)]
    pub log_json: bool,
    /// Log debug lines, too
    #[arg(short, long)]
    pub verbose: bool,
    #[command(flatten)]
    pub(crate) objects: ObjectFlags,
}

/// Which pools exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum PoolSource {
    /// NodePools of OpenYurt.
    #[value(name = "nodepools")]
    NodePools,
    /// The values of the pool label on Nodes.
    #[value(name = "nodelabels")]
    NodeLabels,
}

/// A flag that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct FlagError(String);

impl CommandLine {
    /// What `weir-operator version` prints.
    #[must_use]
    pub fn version() -> String {
        Self::command().render_version()
    }
}

impl CompletionFlags {
    /// The script.
    #[must_use]
    pub fn script(&self) -> String {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut CommandLine::command(), "weir-operator", &mut script);
        String::from_utf8_lossy(&script).into_owned()
    }
}

impl ClusterFlags {
    /// The file of the flag, or else the files of `KUBECONFIG`.
    #[must_use]
    pub fn given(&self) -> Option<KubeconfigFiles> {
        KubeconfigFiles::given(self.kubeconfig.as_deref(), std::env::var_os("KUBECONFIG"))
    }
}

impl ObjectFlags {
    /// The validated flags.
    ///
    /// # Errors
    /// An address or an assignment is not of its form.
    pub fn surroundings(&self) -> Result<Surroundings, FlagError> {
        let api_server = self.pod_api_server.as_deref().map(|text| {
            let parsed = text.rsplit_once(':').and_then(|(host, port)| Some((host, port.parse::<u16>().ok()?)));
            let (host, port) = parsed
                .filter(|(host, port)| !host.is_empty() && *port > 0)
                .ok_or_else(|| FlagError(format!("--pod-api-server: {text:?} is not HOST:PORT")))?;
            Ok((host.trim_matches(['[', ']']).to_owned(), port))
        });
        let mut overrides = BTreeMap::new();
        for text in &self.set {
            let parsed = text
                .split_once('=')
                .filter(|(key, _)| key.split_once('.').is_some_and(|(a, b)| !a.is_empty() && !b.is_empty()));
            let (key, value) =
                parsed.ok_or_else(|| FlagError(format!("--set: {text:?} is not TEMPLATE.VARIABLE=VALUE")))?;
            overrides.insert(key.to_owned(), value.to_owned());
        }
        Ok(Surroundings {
            namespace: self.namespace.clone(),
            pool_label: self.pool_label.clone(),
            api_server: api_server.transpose()?,
            overrides,
        })
    }
}

impl ServeFlags {
    /// How long a Lease is valid.
    #[must_use]
    pub fn lease_duration(&self) -> Duration {
        Duration::from_secs(self.lease_seconds.into())
    }
}

#[cfg(test)]
mod tests {
    use clap::ArgAction;

    use super::*;

    fn surroundings(arguments: &[&str]) -> Result<Surroundings, String> {
        let line = ["weir-operator", "serve"].iter().chain(arguments);
        let parsed = CommandLine::try_parse_from(line).map_err(|error| error.to_string())?;
        let Command::Serve(flags) = parsed.command else { unreachable!() };
        flags.objects.surroundings().map_err(|error| error.to_string())
    }

    /// The chart refuses the others in `operator.extraArgs` if they are there twice.
    #[test]
    fn the_chart_knows_which_flags_may_be_repeated() {
        let command = CommandLine::command();
        let flags = command.find_subcommand("serve").unwrap().get_arguments();
        let repeatable = flags.filter(|flag| matches!(flag.get_action(), ArgAction::Append | ArgAction::Count));
        let repeatable: Vec<_> = repeatable.map(|flag| format!("--{}", flag.get_long().unwrap())).collect();
        let chart = include_str!("../../helm/weir/files/repeatable.yaml");
        assert!(chart.contains(&format!("\noperator: [{}]\n", repeatable.join(", "))), "{repeatable:?}: {chart}");
    }

    #[test]
    fn flags_are_validated() {
        let given = surroundings(&["--pod-api-server=169.254.20.10:10268", "--set=traefik.image=a.b/c:1"]).unwrap();
        assert_eq!(given.api_server, Some(("169.254.20.10".into(), 10268)));
        assert_eq!(given.overrides.get("traefik.image").map(String::as_str), Some("a.b/c:1"));
        assert_eq!(surroundings(&["--pod-api-server=[::1]:1"]).unwrap().api_server, Some(("::1".into(), 1)));
        for label in ["pool", "example.com/Pool_1.a"] {
            assert_eq!(surroundings(&["--pool-label", label]).unwrap().pool_label, label);
        }
        for bad in [
            "--pod-api-server=a",
            "--pod-api-server=:1",
            "--pod-api-server=a:0",
            "--set=a=b",
            "--set=.b=c",
            "--set=a.b",
            "--pool-label=",
            "--pool-label=a b",
            "--pool-label=/pool",
            "--pool-label=Example.com/pool",
            "--pool-label=example.com/",
            "--pool-label=example.com/pool/",
            "--pool-label=pool=a",
            &format!("--pool-label={}", "a".repeat(64)),
        ] {
            assert!(surroundings(&[bad]).is_err(), "{bad}");
        }
    }
}
