//! The command line: what the user typed → a [`Command`], or the message and exit code that end the program. Every flag
//! of `serve` may also be given as an environment variable `WEIR_*`; the environment is read here and nowhere else.

use std::ffi::OsString;
use std::net::IpAddr;
use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{ArgAction, Args, Parser, Subcommand};

use super::serve::{Compression, LogFormat, ServeConfig};
use weir_upstream::ServerMode;

/// How `--server-mode` is read.
fn server_mode() -> impl TypedValueParser<Value = ServerMode> {
    PossibleValuesParser::new(["round-robin", "priority"]).map(|mode| match mode.as_str() {
        "priority" => ServerMode::Priority,
        _ => ServerMode::RoundRobin,
    })
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
    /// Compile one module: what the daemon starts as its own child.
    Compile(CompileFlags),
}

/// The program ends before it began.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// For the user; complete lines.
    pub message: String,
    /// 64 for bad usage; 0 for `--help` and `--version`, whose message belongs on standard output.
    pub code: u8,
}

/// Flags of `weir run`.
#[derive(Debug, Clone, Args)]
pub struct RunFlags {
    /// The filter module, a WebAssembly component
    pub module: PathBuf,
    /// Objects to filter, YAML or JSON, several documents or a list; `-` is standard input
    #[arg(long, value_name = "FILE|-")]
    pub object: PathBuf,
    /// The module's settings
    #[arg(long, value_name = "JSON", default_value = "{}", value_parser = settings)]
    pub settings: String,
    /// Objects that the filter may look up; may be repeated
    #[arg(long, value_name = "FILE")]
    pub cluster: Vec<PathBuf>,
    /// The local node's name
    #[arg(long, value_name = "NAME", default_value = "node")]
    pub node_name: String,
    /// Where pods of the node would reach the daemon
    #[arg(long, value_name = "IP")]
    pub pod_address: Option<IpAddr>,
    /// The port beside --pod-address
    #[arg(long, value_name = "PORT", default_value_t = 10268)]
    pub secure_port: u16,
}

/// Flags of `weir check`.
#[derive(Debug, Clone, Args)]
pub struct CheckFlags {
    /// A ConfigMap manifest
    pub config: PathBuf,
    /// Where the modules are that the manifest does not hold itself
    #[arg(long, value_name = "DIR")]
    pub modules_dir: Option<PathBuf>,
}

/// Flags of the hidden `weir compile`.
#[derive(Debug, Clone, Args)]
pub struct CompileFlags {
    /// The daemon's cache directory; the module comes on standard input
    #[arg(long, value_name = "DIR")]
    pub cache_dir: PathBuf,
}

/// A Kubernetes API proxy whose response filters are WebAssembly components
#[derive(Debug, Parser)]
#[command(name = "weir", version, disable_help_subcommand = true)]
struct Line {
    #[command(subcommand)]
    command: RawCommand,
}

#[derive(Debug, Subcommand)]
enum RawCommand {
    /// Stand between a node's clients and the Kubernetes API server
    Serve(Box<ServeFlags>),
    /// Run one filter on objects from files and print what it changes
    Run(RunFlags),
    /// Validate a filters configuration with its modules
    Check(CheckFlags),
    #[command(hide = true)]
    Compile(CompileFlags),
}

/// The flags of `weir serve`, as typed.
#[derive(Debug, Args)]
pub(super) struct ServeFlags {
    /// The API servers, the preferred one first; or give --kubeconfig. Without both, in a pod, the cluster's own
    #[arg(long, env = "WEIR_SERVER", value_name = "URL[,URL…]", value_delimiter = ',')]
    pub(super) server: Vec<http::Uri>,
    /// Which of several API servers is asked
    #[arg(long, env = "WEIR_SERVER_MODE", value_name = "MODE", default_value = "round-robin", value_parser = server_mode())]
    pub(super) server_mode: ServerMode,
    /// Server and identity of the daemon's own requests
    #[arg(long, env = "WEIR_KUBECONFIG", value_name = "FILE")]
    pub(super) kubeconfig: Option<PathBuf>,
    /// The node credential: attached to requests of local clients that send no credential of their own
    #[arg(long, env = "WEIR_NODE_KUBECONFIG", value_name = "FILE")]
    pub(super) node_kubeconfig: Option<PathBuf>,
    /// Attach the node credential only to requests of processes with these uids [default: 0]
    #[arg(long, env = "WEIR_NODE_CREDENTIAL_UIDS", value_name = "UID[,UID…]", value_delimiter = ',')]
    pub(super) node_credential_uids: Vec<u32>,
    /// CA bundle that proves the API server, with --server
    #[arg(long, env = "WEIR_CERTIFICATE_AUTHORITY", value_name = "FILE")]
    pub(super) certificate_authority: Option<PathBuf>,
    /// The daemon's own client certificate, with --server
    #[arg(long, env = "WEIR_CLIENT_CERTIFICATE", value_name = "FILE")]
    pub(super) client_certificate: Option<PathBuf>,
    /// Key of --client-certificate
    #[arg(long, env = "WEIR_CLIENT_KEY", value_name = "FILE")]
    pub(super) client_key: Option<PathBuf>,
    /// The daemon's own bearer token, with --server; re-read when it changes
    #[arg(long, env = "WEIR_TOKEN_FILE", value_name = "FILE")]
    pub(super) token_file: Option<PathBuf>,
    /// The local node's name in the cluster
    #[arg(long, env = "WEIR_NODE_NAME", value_name = "NAME")]
    pub(super) node_name: Option<String>,
    /// Address of the plain HTTP port
    #[arg(long, env = "WEIR_BIND_ADDRESS", value_name = "IP", default_value = "127.0.0.1")]
    pub(super) bind_address: IpAddr,
    /// The plain HTTP port; 0 picks a free one and logs it
    #[arg(long, env = "WEIR_PORT", value_name = "PORT", default_value_t = 10261)]
    pub(super) port: u16,
    /// Which clients get large filtered answers as gzip, if they accept it: loopback is left out of `remote`
    #[arg(long, env = "WEIR_COMPRESS", value_name = "WHOM", default_value = "remote")]
    pub(super) compress: Compression,
    /// Memory for answers that are held until they are whole (protobuf lists, Tables), all together
    #[arg(long, env = "WEIR_ANSWER_MEMORY", value_name = "SIZE", default_value = "256Mi")]
    pub(super) answer_memory: String,
    /// Let --bind-address be other than loopback: anyone who reaches it can send requests in clear text
    #[arg(long, env = "WEIR_ALLOW_REMOTE_PLAINTEXT")]
    pub(super) allow_remote_plaintext: bool,
    /// Certificate chain of the HTTPS port, PEM. Taken anew when it changes. Without it the cluster is asked for one if
    /// there is a --pod-address, else there is no such port
    #[arg(long, env = "WEIR_TLS_CERT_FILE", value_name = "FILE")]
    pub(super) tls_cert_file: Option<PathBuf>,
    /// Key of --tls-cert-file
    #[arg(long, env = "WEIR_TLS_PRIVATE_KEY_FILE", value_name = "FILE")]
    pub(super) tls_private_key_file: Option<PathBuf>,
    /// CA bundle that client certificates on the HTTPS port are verified by; without it none is asked for
    #[arg(long, env = "WEIR_CLIENT_CA_FILE", value_name = "FILE")]
    pub(super) client_ca_file: Option<PathBuf>,
    /// Address of the HTTPS port [default: --pod-address, else --bind-address]
    #[arg(long, env = "WEIR_SECURE_BIND_ADDRESS", value_name = "IP")]
    pub(super) secure_bind_address: Option<IpAddr>,
    /// Where pods of this node reach the daemon's HTTPS port
    #[arg(long, env = "WEIR_POD_ADDRESS", value_name = "IP")]
    pub(super) pod_address: Option<IpAddr>,
    /// The interface that is made for --pod-address where no other has it; empty: nothing is made
    #[arg(long, env = "WEIR_POD_INTERFACE", value_name = "NAME", default_value = "weir0")]
    pub(super) pod_interface: String,
    /// The HTTPS port
    #[arg(long, env = "WEIR_SECURE_PORT", value_name = "PORT", default_value_t = 10268)]
    pub(super) secure_port: u16,
    /// Address of livez, readyz, metrics and filters
    #[arg(long, env = "WEIR_ADMIN_ADDRESS", value_name = "IP", default_value = "127.0.0.1")]
    pub(super) admin_address: IpAddr,
    /// Port of livez, readyz, metrics and filters; 0 picks a free one and logs it
    #[arg(long, env = "WEIR_ADMIN_PORT", value_name = "PORT", default_value_t = 10267)]
    pub(super) admin_port: u16,
    /// The filters' ConfigMap [default: kube-system/weir-filters]
    #[arg(long, env = "WEIR_CONFIG_MAP", value_name = "NAMESPACE/NAME")]
    pub(super) config_map: Option<String>,
    /// The filters' ConfigMap as a manifest file, instead of --config-map
    #[arg(long, env = "WEIR_CONFIG_FILE", value_name = "FILE")]
    pub(super) config_file: Option<PathBuf>,
    /// Where filter modules are dropped
    #[arg(long, env = "WEIR_MODULES_DIR", value_name = "DIR")]
    pub(super) modules_dir: Option<PathBuf>,
    /// Where compiled modules are kept
    #[arg(long, env = "WEIR_CACHE_DIR", value_name = "DIR")]
    pub(super) cache_dir: Option<PathBuf>,
    /// How long a request may wait for the first complete set of filters
    #[arg(long, env = "WEIR_START_WAIT", value_name = "DURATION", default_value = "10s")]
    pub(super) start_wait: String,
    /// How long requests may take to finish when the daemon stops
    #[arg(long, env = "WEIR_DRAIN_TIMEOUT", value_name = "DURATION", default_value = "10s")]
    pub(super) drain_timeout: String,
    /// How log lines are written
    #[arg(long, env = "WEIR_LOG_FORMAT", value_name = "FORMAT", default_value = "text")]
    pub(super) log_format: LogFormat,
    /// More log lines; twice for all
    #[arg(short = 'v', long = "verbose", action = ArgAction::Count)]
    pub(super) verbosity: u8,
}

/// Reads the command line, the program's name first.
///
/// # Errors
/// [`Refusal`]: what to print and the exit code, also for `--help`.
pub fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Command, Refusal> {
    parse_in(InCluster::from_environment(), arguments)
}

fn parse_in(in_cluster: Option<InCluster>, arguments: impl IntoIterator<Item = OsString>) -> Result<Command, Refusal> {
    let line = Line::try_parse_from(arguments)
        .map_err(|error| Refusal { message: error.to_string(), code: if error.use_stderr() { 64 } else { 0 } })?;
    match line.command {
        RawCommand::Serve(flags) => match ServeConfig::validate(*flags, in_cluster) {
            Ok(config) => Ok(Command::Serve(Box::new(config))),
            Err(problems) => Err(Refusal {
                message: problems.into_iter().fold(String::new(), |text, problem| text + "error: " + &problem + "\n"),
                code: 64,
            }),
        },
        RawCommand::Run(flags) => Ok(Command::Run(flags)),
        RawCommand::Check(flags) => Ok(Command::Check(flags)),
        RawCommand::Compile(flags) => Ok(Command::Compile(flags)),
    }
}

/// What kubelet tells every pod of where the API server is.
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

fn settings(text: &str) -> Result<String, String> {
    match serde_json::from_str::<serde_json::Value>(text) {
        Ok(serde_json::Value::Object(_)) => Ok(text.to_owned()),
        Ok(_) => Err("must be a JSON object".to_owned()),
        Err(error) => Err(format!("not JSON: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_upstream::ServerSource;

    use crate::config::{ConfigSource, ServingCertificate};

    fn line(text: &str) -> Result<Command, Refusal> {
        line_in(None, text)
    }

    fn line_in(in_cluster: Option<InCluster>, text: &str) -> Result<Command, Refusal> {
        parse_in(in_cluster, std::iter::once("weir").chain(text.split_whitespace()).map(OsString::from))
    }

    fn serve(text: &str) -> ServeConfig {
        match line(&format!("serve --server http://127.0.0.1:6443 --node-name n1 {text}")) {
            Ok(Command::Serve(config)) => *config,
            other => panic!("{other:?}"),
        }
    }

    fn refused(text: &str) -> String {
        let refusal = line(text).unwrap_err();
        assert_eq!(refusal.code, 64, "{}", refusal.message);
        refusal.message
    }

    #[test]
    fn defaults_are_those_of_the_design() {
        let config = serve("");
        assert_eq!(config.bind.to_string(), "127.0.0.1:10261");
        assert_eq!(config.admin.to_string(), "127.0.0.1:10267");
        assert_eq!(
            config.source,
            ConfigSource::ConfigMap { namespace: "kube-system".into(), name: "weir-filters".into() }
        );
        assert_eq!(config.start_wait, std::time::Duration::from_secs(10));
        assert_eq!(config.secure_endpoint(), None);
        assert!(matches!(config.upstream, ServerSource::Server { .. }));
    }

    #[test]
    fn unknown_flags_and_bad_values_end_with_64_and_name_the_flag() {
        assert!(refused("serve --nod-name x").contains("--nod-name"));
        assert!(refused("serve --port many").contains("--port"));
        assert!(refused("serve --log-format xml").contains("--log-format"));
        assert!(refused("").contains("Usage"));
        assert!(refused("run m.wasm --object - --settings []").contains("must be a JSON object"));
    }

    #[test]
    fn help_and_version_end_with_0() {
        for text in ["--help", "serve --help", "--version"] {
            assert_eq!(line(text).unwrap_err().code, 0, "{text}");
        }
    }

    #[test]
    fn all_problems_of_serve_are_told_at_once() {
        let message = refused(
            "serve --config-map weir --config-file f --start-wait soon --bind-address 0.0.0.0 --pod-address 127.0.0.1 --client-key k --cache-dir c",
        );
        for part in [
            "--node-name: missing",
            "--server or --kubeconfig: one of them is needed",
            r#"--config-map: "weir" is not NAMESPACE/NAME"#,
            "--config-map and --config-file",
            r#"--start-wait: "soon" is not a duration"#,
            "--bind-address: 0.0.0.0 is not a loopback address",
            "--pod-address: pods can not reach the loopback address 127.0.0.1",
            "--client-certificate and --client-key",
        ] {
            assert!(message.contains(part), "{part:?} in {message}");
        }
        assert_eq!(message.lines().count(), 8, "{message}");
    }

    #[test]
    fn server_and_kubeconfig_exclude_each_other_and_their_flags() {
        assert!(refused("serve --node-name n --server http://a --kubeconfig k").contains("--server and --kubeconfig"));
        assert!(
            refused("serve --node-name n --kubeconfig k --token-file t").contains("--token-file: goes with --server")
        );
        assert!(refused("serve --node-name n --server a").contains("--server: \"a\" is not a URL"));
        assert!(refused("serve --node-name n --server http://a/prefix").contains("without a path"));
        assert!(refused("serve --node-name n --server http://a,b").contains("--server: \"b\" is not a URL"));
        assert!(
            refused("serve --node-name n --server http://a,https://b").contains("all with http, or all with https")
        );
        assert!(refused("serve --node-name n --server http://a,http://a").contains("named twice"));
    }

    #[test]
    fn several_servers_keep_their_order() {
        let Ok(Command::Serve(config)) =
            line("serve --node-name n --server https://b:1,https://a --server-mode priority")
        else {
            panic!()
        };
        let ServerSource::Server { urls, .. } = &config.upstream else { panic!() };
        assert_eq!(urls.iter().map(ToString::to_string).collect::<Vec<_>>(), ["https://b:1/", "https://a/"]);
        assert_eq!(config.server_mode, ServerMode::Priority);
        assert_eq!(serve("").server_mode, ServerMode::RoundRobin);
    }

    #[test]
    fn the_https_port_needs_a_certificate_with_its_key_and_an_address_that_is_not_left_to_chance() {
        assert!(serve("").secure.is_none());
        let config = serve("--tls-cert-file c --tls-private-key-file k --pod-address 169.254.2.1");
        assert_eq!(config.secure.unwrap().address.to_string(), "169.254.2.1:10268");
        let config = serve("--pod-address 169.254.2.1 --client-ca-file a");
        assert_eq!(config.secure.unwrap().certificate, ServingCertificate::Requested);
        let config = serve("--tls-cert-file c --tls-private-key-file k --secure-port 0 --client-ca-file a");
        let secure = config.secure.unwrap();
        assert_eq!((secure.address.to_string().as_str(), secure.client_ca.is_some()), ("127.0.0.1:0", true));
        assert!(refused("serve --node-name n --server http://a --tls-cert-file c").contains("--tls-private-key-file"));
        assert!(refused("serve --node-name n --server http://a --client-ca-file c").contains("--client-ca-file"));
        assert!(
            refused("serve --node-name n --server http://a --secure-port 0 --pod-address 169.254.2.1")
                .contains("--secure-port")
        );
    }

    #[test]
    fn in_a_pod_the_clusters_own_server_is_the_default() {
        let in_cluster = |host: &str| Some(InCluster { host: host.to_owned(), port: "443".to_owned() });
        for (host, url) in [("10.96.0.1", "https://10.96.0.1:443/"), ("fd00::1", "https://[fd00::1]:443/")] {
            let Ok(Command::Serve(config)) = line_in(in_cluster(host), "serve --node-name n") else { panic!() };
            let ServerSource::Server { urls, certificate_authority, token_file, .. } = config.upstream else {
                panic!()
            };
            assert_eq!(urls[0].to_string(), url);
            let folder = std::path::Path::new("/var/run/secrets/kubernetes.io/serviceaccount");
            assert_eq!((certificate_authority, token_file), (Some(folder.join("ca.crt")), Some(folder.join("token"))));
        }
        let Ok(Command::Serve(config)) = line_in(in_cluster("10.96.0.1"), "serve --node-name n --server http://a")
        else {
            panic!()
        };
        let ServerSource::Server { urls, token_file, .. } = config.upstream else { panic!() };
        assert_eq!((urls[0].to_string().as_str(), token_file), ("http://a/", None), "what is said goes first");
    }

    #[test]
    fn a_remote_plain_port_must_be_asked_for() {
        assert_eq!(serve("--bind-address 0.0.0.0 --allow-remote-plaintext --port 0").bind.to_string(), "0.0.0.0:0");
    }

    #[test]
    fn the_pod_address_and_secure_port_are_the_endpoint_of_the_node_import() {
        let endpoint = serve("--pod-address 169.254.2.1").secure_endpoint().unwrap();
        assert_eq!((endpoint.host.as_str(), endpoint.port), ("169.254.2.1", 10268));
    }

    #[test]
    fn the_pod_address_has_an_interface_unless_that_is_left_to_others() {
        let interface = |text: &str| serve(text).pods.unwrap().interface;
        assert_eq!(interface("--pod-address 169.254.2.1").as_deref(), Some("weir0"));
        assert_eq!(interface("--pod-address fd00::1 --pod-interface=").as_deref(), None);
        for name in ["a-very-long-name", "a/b", "a:1", ".."] {
            let told = refused(&format!("serve --node-name n --server http://a --pod-interface {name}"));
            assert!(told.contains("--pod-interface"), "{told}");
        }
        for address in ["fe80::1", "224.0.0.1", "0.0.0.0"] {
            let told = refused(&format!("serve --node-name n --server http://a --pod-address {address}"));
            assert!(told.contains("--pod-address: pods can not reach"), "{told}");
        }
    }

    #[test]
    fn every_serve_flag_has_an_environment_variable() {
        use clap::CommandFactory;
        let command = Line::command();
        let serve = command.find_subcommand("serve").unwrap();
        for argument in
            serve.get_arguments().filter(|argument| !["help", "verbosity"].contains(&argument.get_id().as_str()))
        {
            let wanted = format!("WEIR_{}", argument.get_id().as_str().to_uppercase());
            assert_eq!(argument.get_env().and_then(|name| name.to_str()), Some(wanted.as_str()));
        }
    }

    #[test]
    fn run_takes_its_flags() {
        let Ok(Command::Run(flags)) = line("run m.wasm --object - --cluster a --cluster b --settings {\"a\":1}") else {
            panic!()
        };
        assert_eq!((flags.cluster.len(), flags.settings.as_str(), flags.node_name.as_str()), (2, "{\"a\":1}", "node"));
    }
}
