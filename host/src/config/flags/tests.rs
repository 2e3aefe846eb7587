//! The rules of the command line.

use serde_json::json;
use weir_upstream::ServerSource;

use super::*;
use crate::config::ConfigSource;
use weir_front::ServingCertificate;

fn line(text: &str) -> Result<Command, UsageMessage> {
    line_in(None, text)
}

fn line_in(in_cluster: Option<InCluster>, text: &str) -> Result<Command, UsageMessage> {
    parse_in(in_cluster, |_| false, arguments(text))
}

/// In an environment that has every variable.
fn line_with_variables(text: &str) -> Result<Command, UsageMessage> {
    parse_in(None, |_| true, arguments(text))
}

fn arguments(text: &str) -> Vec<OsString> {
    std::iter::once("weir").chain(text.split_whitespace()).map(OsString::from).collect()
}

fn serve(text: &str) -> ServeConfig {
    match line(&format!("serve --server http://127.0.0.1:6443 --node-name n1 {text}")) {
        Ok(Command::Serve(config)) => *config,
        other => panic!("{other:?}"),
    }
}

fn refused(text: &str) -> String {
    let usage = line(text).unwrap_err();
    assert_eq!(usage.code, 64, "{}", usage.message);
    usage.message
}

#[test]
fn the_defaults_of_serve() {
    let config = serve("");
    assert_eq!(config.bind.to_string(), "127.0.0.1:10261");
    assert_eq!(config.admin.to_string(), "127.0.0.1:10267");
    assert_eq!(config.source, ConfigSource::ConfigMap { namespace: "kube-system".into(), name: "weir-filters".into() });
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
    for text in ["--help", "serve --help", "help serve", "run --help", "--version", "version"] {
        assert_eq!(line(text).unwrap_err().code, 0, "{text}");
        assert_eq!(
            line_with_variables(text).unwrap_err(),
            line(text).unwrap_err(),
            "{text}: removed variables are set"
        );
    }
}

#[test]
fn all_errors_of_serve_are_reported_at_once() {
    let message = refused(
        "serve --config-map weir --config-file f --start-wait soon --bind-address 0.0.0.0 --pod-address 127.0.0.1 --client-key k --cache-dir c",
    );
    for part in [
        "--node-name: missing",
        "--server or --kubeconfig: give one of them",
        r#"--config-map: "weir" is not NAMESPACE/NAME"#,
        "--config-map and --config-file",
        r#"--start-wait: "soon" is not a duration"#,
        "--bind-address: 0.0.0.0 is not a loopback address",
        "--pod-address: pods cannot reach the loopback address 127.0.0.1",
        "--client-certificate and --client-key",
    ] {
        assert!(message.contains(part), "{part:?} in {message}");
    }
    assert_eq!(message.lines().count(), 8, "{message}");
}

#[test]
fn the_name_of_the_node_is_read_as_kubelet_reads_it() {
    assert!(
        refused("serve --node-name edge_a --server http://a").contains("--node-name: \"edge_a\" is not the name of")
    );
    assert!(refused("run m.wasm --object - --node-name edge_a").contains("is not the name of a node"));
}

#[test]
fn server_and_kubeconfig_exclude_each_other_and_their_flags() {
    assert!(refused("serve --node-name n --server http://a --kubeconfig k").contains("--server and --kubeconfig"));
    assert!(refused("serve --node-name n --kubeconfig k --token-file t").contains("--token-file: needs --server"));
    assert!(refused("serve --node-name n --server a").contains("--server: \"a\" is not a URL"));
    assert!(refused("serve --node-name n --server http://a/prefix").contains("without a path"));
    assert!(refused("serve --node-name n --server http://a,b").contains("--server: \"b\" is not a URL"));
    assert!(refused("serve --node-name n --server http://a,https://b").contains("all with http, or all with https"));
    assert!(refused("serve --node-name n --server http://a,http://a").contains("given twice"));
}

#[test]
fn version_help_and_completion_are_printed() {
    let printed = |text: &str| line(text).map(|_| ()).unwrap_err();
    assert_eq!(printed("version"), printed("--version"));
    assert_eq!(printed("version").message, format!("weir {}\n", env!("CARGO_PKG_VERSION")));
    assert!(printed("help check").message.contains("--modules-dir"));
    for (shell, expected) in [("bash", "complete -F _weir"), ("zsh", "#compdef weir"), ("fish", "complete -c weir")] {
        let script = printed(&format!("completion {shell}"));
        assert!(script.code == 0 && script.message.contains(expected), "{shell}");
        assert!(script.message.contains("explain") && !script.message.contains("dev-daemon"), "{shell}");
    }
}

/// clap checks this in debug builds only.
#[test]
fn no_command_has_a_flag_twice() {
    for command in definition().get_subcommands() {
        let short = command.get_arguments().filter_map(|argument| argument.get_short().map(String::from));
        let long = command.get_arguments().filter_map(|argument| argument.get_long().map(str::to_owned));
        let mut seen = std::collections::BTreeSet::new();
        let twice: Vec<_> = short.chain(long).filter(|name| !seen.insert(name.clone())).collect();
        assert!(twice.is_empty(), "{}: {twice:?}", command.get_name());
    }
}

#[test]
fn one_flag_moves_all_ports() {
    let config = serve("--port-offset 100 --pod-address 169.254.2.1 --admin-port 0");
    assert_eq!((config.bind.port(), config.admin.port()), (10361, 0));
    assert_eq!(config.secure_endpoint().unwrap().port, 10368, "filters pass it to pods");
    let error = refused("serve --node-name n --server http://a --port-offset 60000");
    assert!(error.contains("--port-offset: 10261 + 60000 is no port"), "{error}");
}

#[test]
fn several_servers_keep_their_order() {
    let Ok(Command::Serve(config)) = line("serve --node-name n --server https://b:1,https://a --server-mode priority")
    else {
        panic!()
    };
    let ServerSource::Server { urls, .. } = &config.upstream else { panic!() };
    assert_eq!(urls.iter().map(ToString::to_string).collect::<Vec<_>>(), ["https://b:1/", "https://a/"]);
    assert_eq!(config.server_mode, ServerMode::Priority);
    assert_eq!(serve("").server_mode, ServerMode::RoundRobin);
}

#[test]
fn the_https_port_needs_certificate_and_key_and_a_fixed_port_for_pods() {
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
fn in_a_pod_the_api_server_of_its_cluster_is_the_default() {
    let in_cluster = |host: &str| Some(InCluster { host: host.to_owned(), port: "443".to_owned() });
    for (host, url) in [("10.96.0.1", "https://10.96.0.1:443/"), ("fd00::1", "https://[fd00::1]:443/")] {
        let Ok(Command::Serve(config)) = line_in(in_cluster(host), "serve --node-name n") else { panic!() };
        let ServerSource::Server { urls, certificate_authority, token_file, .. } = config.upstream else { panic!() };
        assert_eq!(urls[0].to_string(), url);
        let folder = std::path::Path::new("/var/run/secrets/kubernetes.io/serviceaccount");
        assert_eq!((certificate_authority, token_file), (Some(folder.join("ca.crt")), Some(folder.join("token"))));
    }
    let Ok(Command::Serve(config)) = line_in(in_cluster("10.96.0.1"), "serve --node-name n --server http://a") else {
        panic!()
    };
    let ServerSource::Server { urls, token_file, .. } = config.upstream else { panic!() };
    assert_eq!((urls[0].to_string().as_str(), token_file), ("http://a/", None), "an explicit flag takes precedence");
}

#[test]
fn a_plain_port_beyond_loopback_must_be_allowed() {
    assert_eq!(serve("--bind-address 0.0.0.0 --allow-remote-plaintext --port 0").bind.to_string(), "0.0.0.0:0");
}

#[test]
fn the_pod_address_and_secure_port_are_the_endpoint_of_the_node_import() {
    let endpoint = serve("--pod-address 169.254.2.1").secure_endpoint().unwrap();
    assert_eq!((endpoint.host.as_str(), endpoint.port), ("169.254.2.1", 10268));
}

#[test]
fn the_pod_address_has_an_interface_unless_its_name_is_empty() {
    let interface = |text: &str| serve(text).pods.unwrap().interface;
    assert_eq!(interface("--pod-address 169.254.2.1").as_deref(), Some("weir0"));
    assert_eq!(interface("--pod-address fd00::1 --pod-interface=").as_deref(), None);
    for name in ["a-very-long-name", "a/b", "a:1", ".."] {
        let message = refused(&format!("serve --node-name n --server http://a --pod-interface {name}"));
        assert!(message.contains("--pod-interface"), "{message}");
    }
    for address in ["fe80::1", "224.0.0.1", "0.0.0.0"] {
        let message = refused(&format!("serve --node-name n --server http://a --pod-address {address}"));
        assert!(message.contains("--pod-address: pods cannot reach"), "{message}");
    }
}

#[test]
fn the_condition_of_the_node_is_set_with_the_node_credential_unless_a_flag_decides() {
    assert!(!serve("").node_condition);
    assert!(serve("--node-kubeconfig k").node_condition);
    assert!(serve("--node-condition on").node_condition);
    assert!(!serve("--node-kubeconfig k --node-condition off").node_condition);
}

#[test]
fn every_serve_flag_has_an_environment_variable() {
    let command = definition();
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
    assert_eq!(
        (flags.world.cluster.len(), flags.entry.settings.as_str(), flags.world.node_name.as_str()),
        (2, "{\"a\":1}", "node")
    );
}

#[test]
fn an_interval_of_zero_compares_no_watch_cache() {
    assert_eq!(serve("").cache_check, Some(std::time::Duration::from_secs(86_400)));
    assert_eq!(serve("--cache-check-interval 0").cache_check, None);
    assert!(refused("serve --cache-check-interval soon").contains("--cache-check-interval: \"soon\""));
}

#[test]
fn a_removed_flag_or_variable_is_named_with_what_to_do() {
    for (name, instead) in removed::REMOVED {
        for text in [format!("--{name} 1Gi"), format!("--{name}=1Gi")] {
            let message = refused(&format!("serve {text}"));
            assert_eq!(message, format!("error: --{name} is no flag any more: {instead}\n"));
        }
        let variable = removed::variable(name);
        let arguments = arguments("serve --server http://a --node-name n");
        let message = parse_in(None, |set| set == variable, arguments).unwrap_err().message;
        assert_eq!(message, format!("error: {variable} is no flag any more: {instead}\n"));
        let other = line(&format!("status --{name}")).unwrap_err().message;
        assert!(!other.contains(instead), "{name} was no flag of another command: {other}");
    }
    let all: String = removed::REMOVED.iter().map(|(name, _)| format!(" --{name}=1")).collect();
    assert_eq!(refused(&format!("serve{all}")).lines().count(), removed::REMOVED.len(), "all are reported at once");
    assert!(line_with_variables("status").is_ok(), "other commands have no such variables");
}

/// Before an upgrade, not in the log of a pod that does not start.
#[test]
fn the_chart_and_the_page_of_upgrades_name_each_removed_flag() {
    let schema: serde_json::Value =
        serde_json::from_str(include_str!("../../../../deploy/helm/weir/values.schema.json")).unwrap();
    let upgrade = include_str!("../../../../deploy/upgrade.md");
    let (mut of_flags, mut of_variables) = (Vec::new(), Vec::new());
    for (name, instead) in removed::REMOVED {
        let refused = |given: &str| json!({"const": format!("not {given}, which is no flag any more: {instead}")});
        let (flag, variable) = (format!("--{name}"), removed::variable(name));
        of_flags.push(json!({"if": {"pattern": format!("^{flag}(=|$)")}, "then": refused(&flag)}));
        of_variables.push(json!({"if": {"const": variable}, "then": refused(&variable)}));
        assert!(upgrade.contains(&format!("`{flag}`")), "upgrade.md does not name {flag}");
    }
    assert_eq!(schema["properties"]["extraArgs"]["items"]["allOf"], json!(of_flags));
    let variable = &schema["definitions"]["environmentVariable"]["properties"]["name"];
    assert_eq!(variable["allOf"], json!(of_variables));
}

/// The chart refuses the others in `extraArgs` if they are there twice. One with `--server` has it by another value.
#[test]
fn the_chart_knows_which_flags_may_be_repeated() {
    let command = definition();
    let flags = command.find_subcommand("serve").unwrap().get_arguments().filter(|flag| flag.get_id() != "server");
    let repeatable = flags.filter(|flag| matches!(flag.get_action(), ArgAction::Append | ArgAction::Count));
    let repeatable: Vec<_> = repeatable.map(|flag| format!("--{}", flag.get_long().unwrap())).collect();
    let chart = include_str!("../../../../deploy/helm/weir/files/repeatable.yaml");
    assert!(chart.contains(&format!("\nweir: [{}]\n", repeatable.join(", "))), "{repeatable:?}: {chart}");
}

#[test]
fn watch_caches_are_on_disk_if_there_is_a_cache_directory() {
    assert_eq!(serve("").disk_cache, None);
    assert_eq!(serve("--cache-dir c --cache-size 0").disk_cache, None);
    let disk = serve("--cache-dir c").disk_cache.unwrap();
    assert_eq!((disk.size, disk.commit_interval.as_millis(), disk.key_file), (512 << 20, 500, None));
    let message = refused(
        "serve --server http://a --node-name n --cache-size big --cache-commit-interval soon --cache-key-file k",
    );
    for flag in ["--cache-size", "--cache-commit-interval", "--cache-key-file"] {
        assert!(message.contains(flag), "{flag} in {message}");
    }
}
