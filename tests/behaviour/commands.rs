//! Commands as people and scripts type them: help that fits a terminal, errors of `-o json`, kubeconfigs as kubectl reads them.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};
use weir_tests::built;
use weir_tests::daemon::manifest;
use weir_tests::pki::{self, base64, kubeconfig};

use super::edge;

/// The width of the terminal.
const WIDTH: usize = 80;

fn run(program: &Path, arguments: &[&str], environment: &[(&str, &str)]) -> Output {
    let mut command = Command::new(program);
    command.args(arguments).env_clear().envs(environment.iter().copied()).stdin(Stdio::null());
    command.output().unwrap()
}

fn weir(arguments: &[&str]) -> Output {
    run(&built::weir(), arguments, &[])
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The subcommands that a program shows.
fn subcommands(help: &str) -> Vec<String> {
    let (_, list) = help.split_once("\nCommands:\n").unwrap();
    let list = list.lines().take_while(|line| !line.is_empty());
    // Lines that begin further to the right continue the text of a command.
    let names = list.filter_map(|line| line.strip_prefix("  ").filter(|line| !line.starts_with(' ')));
    names.map(|line| line.split(' ').next().unwrap().to_owned()).collect()
}

#[test]
fn help_fits_the_width_of_the_terminal() {
    for (program, known) in [(built::weir(), "explain"), (built::operator(), "remove-finalizers")] {
        let help = |arguments: &[&str]| {
            let output = run(&program, arguments, &[("COLUMNS", "80")]);
            assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", stderr(&output));
            stdout(&output)
        };
        let commands = subcommands(&help(&["--help"]));
        assert!(commands.iter().any(|command| command == known), "{commands:?}");
        let mut pages = vec![vec!["--help"], vec!["-h"]];
        for command in commands.iter().filter(|command| *command != "help") {
            pages.extend([vec![command.as_str(), "--help"], vec![command.as_str(), "-h"]]);
        }
        for page in pages {
            let text = help(&page);
            // A single word, such as a default, cannot be broken.
            let wide = |line: &&str| line.chars().count() > WIDTH && line.split_whitespace().count() > 1;
            let wide: Vec<_> = text.lines().filter(wide).collect();
            assert!(wide.is_empty(), "{page:?} is wider than {WIDTH} columns: {wide:#?}");
        }
    }
}

#[test]
fn the_operator_prints_its_version_and_completions() {
    let operator = |arguments: &[&str]| stdout(&run(&built::operator(), arguments, &[]));
    assert_eq!(operator(&["version"]), operator(&["--version"]));
    assert!(operator(&["version"]).starts_with("weir-operator "));
    for (shell, words) in [("bash", "complete -F _weir__operator"), ("zsh", "#compdef weir-operator")] {
        let script = operator(&["completion", shell]);
        assert!(script.contains(words) && script.contains("remove-finalizers"), "{shell}: {script}");
    }
}

/// What a command prints as JSON when it fails, and its exit code.
fn failed(arguments: &[&str]) -> (Value, i32) {
    let output = weir(&[arguments, &["-o", "json"]].concat());
    assert!(stderr(&output).starts_with("weir: "), "people read standard error: {arguments:?}: {}", stderr(&output));
    let printed = serde_json::from_str(&stdout(&output));
    (printed.unwrap_or_else(|error| panic!("{arguments:?}: {error}")), output.status.code().unwrap())
}

#[test]
fn a_command_that_fails_prints_its_error_as_json() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let broken = file("broken.yaml", &manifest("filters:\n  - {name: a, modul: a.wasm}\n  - {name: b, mode: x}\n"));
    let good = file("good.yaml", &manifest("filters: []\n"));
    let missing = folder.path().join("missing").display().to_string();
    // Lists have an item for each error.
    for arguments in [&["check", &*broken][..], &["diff", &broken, "--node-name", "n"]] {
        let (printed, code) = failed(arguments);
        let errors = printed.as_array().unwrap();
        assert!(code == 64 && errors.len() >= 2, "{arguments:?}: {code}: {printed}");
        for error in errors {
            assert!(error["source"] == *broken && error["error"].is_string(), "{arguments:?}: {printed}");
        }
        assert!(errors.iter().any(|error| error["key"].as_str().unwrap().contains("filters[1]")), "{printed}");
    }
    for (arguments, code, words) in [
        (&["check", &*missing][..], 64, "No such file"),
        (&["check", "-"], 64, "standard input: it is empty"),
        (&["check", "."], 64, "not a regular file"),
        (&["diff", "-", "--node-name", "n"], 64, "standard input: it is empty"),
        (&["diff", &good, "--node-name", "n", "--kubeconfig", &missing], 64, "No such file"),
    ] {
        let (printed, ended) = failed(arguments);
        assert_eq!((ended, printed.as_array().unwrap().len()), (code, 1), "{arguments:?}: {printed}");
        assert!(printed[0]["error"].as_str().unwrap().contains(words), "{arguments:?}: {printed}");
    }
    // Port 1 needs privileges and has no service, so that no other test listens there.
    for arguments in [
        &["status", "--admin-port", "1"][..],
        &["explain", "svc/a", "--component", "c", "--admin-port", "1"],
        &["explain", "svc", "--component", "c"],
        &["explain", "svc/a", "--component", "c", "--node", "n", "--kubeconfig", &missing],
    ] {
        let (printed, code) = failed(arguments);
        assert!(code == 1 && printed["error"].is_string(), "{arguments:?}: {code}: {printed}");
    }
}

#[test]
fn each_command_names_the_fault_of_a_kubeconfig_and_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let config = file("filters.yaml", &manifest("filters: []\n"));
    let module = built::module("servicetopology").display().to_string();
    let cache = folder.path().join("cache").display().to_string();
    let explain = ["explain", "svc/a", "--component", "c"];
    let commands: [(_, Vec<&str>); 6] = [
        (built::weir(), vec!["diff", &config, "--node-name", "n", "--cache-dir", &cache]),
        (built::weir(), explain.to_vec()),
        (built::weir(), [&explain[..], &["--node", "n", "--cache-dir", &cache]].concat()),
        (built::weir(), vec!["record", &module, "--cache-dir", &cache]),
        (built::weir(), vec!["serve", "--node-name", "n", "--port", "0", "--admin-port", "0"]),
        (built::operator(), vec!["remove-finalizers"]),
    ];
    let contexts = "contexts: [{name: c, context: {cluster: a, user: u}}]\n";
    let clusters = "clusters: [{name: a, cluster: {server: 'http://127.0.0.1:1'}}]\n";
    let users = "users: [{name: u, user: {token: t}}]\n";
    let use_context = "`kubectl config use-context NAME";
    for (name, text, words) in [
        ("none-set", [contexts, clusters, users].concat(), ["no current-context is set (there is c)", use_context]),
        ("empty", String::new(), ["no current-context is set (there is none)", use_context]),
        (
            "no-context",
            [contexts, clusters, users, "current-context: d\n"].concat(),
            ["the current-context \"d\" does not exist (there is c)", use_context],
        ),
        (
            "no-cluster",
            [contexts, users, "current-context: c\n"].concat(),
            ["names the cluster \"a\", which does not exist", use_context],
        ),
        (
            "no-user",
            [contexts, clusters, "current-context: c\n"].concat(),
            ["names the user \"u\", which does not exist", use_context],
        ),
        ("text", "clusters: 7\n".to_owned(), ["it is not valid", "line 1"]),
    ] {
        let path = file(name, &text);
        for (program, arguments) in &commands {
            let output = run(program, &[&arguments[..], &["--kubeconfig", &path]].concat(), &[]);
            let error = stderr(&output);
            assert!(!output.status.success(), "{arguments:?} with {name}");
            for words in words.iter().chain(&[&*path]) {
                assert!(error.contains(words), "{arguments:?} with {name}: no {words:?} in {error}");
            }
        }
    }
}

#[test]
fn each_command_that_gets_no_answer_names_the_server_and_the_kubeconfig() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let path = file("config", &kubeconfig("https://127.0.0.1:1", "", "token: t"));
    let filters = file("filters.yaml", &manifest("filters: []\n"));
    let module = built::module("servicetopology").display().to_string();
    let cache = folder.path().join("cache").display().to_string();
    for (program, arguments) in [
        (built::weir(), vec!["diff", &filters, "--node-name", "n", "--cache-dir", &cache]),
        (built::weir(), vec!["explain", "svc/a", "--component", "c", "--node", "n", "--cache-dir", &cache]),
        (built::weir(), vec!["record", &module, "--cache-dir", &cache]),
        (built::operator(), vec!["remove-finalizers"]),
    ] {
        for (more, environment) in [(vec!["--kubeconfig", &*path], None), (Vec::new(), Some(("KUBECONFIG", &*path)))] {
            let output = run(&program, &[&arguments[..], &more].concat(), environment.as_slice());
            let error = stderr(&output);
            assert!(!output.status.success(), "{arguments:?}: {error}");
            let named = format!(
                "no answer from the API server https://127.0.0.1:1 of the kubeconfig {path}, does it run there"
            );
            for words in [&*named, "--kubeconfig or KUBECONFIG names another cluster", "Connection refused"] {
                assert!(error.contains(words), "{arguments:?}: no {words:?} in {error}");
            }
        }
    }
}

#[test]
fn an_error_for_a_user_without_a_kubeconfig_says_how_to_name_one() {
    let home = tempfile::tempdir().unwrap();
    let home = home.path().to_str().unwrap();
    let explain = ["explain", "svc/a", "--component", "c", "--node", "n"];
    for (program, arguments) in [(built::weir(), &explain[..]), (built::operator(), &["remove-finalizers"])] {
        let failed = |more: &[&str], environment: &[(&str, &str)]| {
            let output = run(&program, &[arguments, more].concat(), environment);
            let error = stderr(&output);
            assert_eq!(output.status.code(), Some(1), "{arguments:?}, {more:?}, {environment:?}: {error}");
            error
        };
        for environment in [&[("HOME", home)][..], &[("HOME", home), ("KUBECONFIG", "")]] {
            for more in [&[][..], &["--kubeconfig", ""]] {
                let error = failed(more, environment);
                assert!(error.contains("name a kubeconfig with --kubeconfig or KUBECONFIG"), "{arguments:?}: {error}");
            }
        }
        // The flag is one path, and a list of empty names does not mean the default.
        let list = format!("{home}/a:{home}/b");
        let error = failed(&["--kubeconfig", &list], &[("HOME", home), ("KUBECONFIG", "/none")]);
        assert!(error.contains(&format!("kubeconfig {list}: No such file")), "{arguments:?}: {error}");
        let error = failed(&[], &[("HOME", home), ("KUBECONFIG", ":")]);
        assert!(error.contains("KUBECONFIG names no file"), "{arguments:?}: {error}");
    }
}

/// The cluster, the user and the context are in files of their own, one of the list does not exist, and the last one loses.
#[tokio::test]
async fn the_files_of_kubeconfig_are_merged_as_kubectl_merges_them() {
    let server = edge().await;
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, value: Value| {
        let path = folder.path().join(name);
        std::fs::write(&path, value.to_string()).unwrap();
        path.display().to_string()
    };
    let trusted = base64(pki::shared().authority.pem());
    let cluster = json!({"server": server.url(), "certificate-authority-data": trusted});
    let context = |name: &str, cluster: &str| json!({"name": name, "context": {"cluster": cluster, "user": "u"}});
    let list = [
        folder.path().join("missing").display().to_string(),
        file("clusters", json!({"clusters": [{"name": "a", "cluster": cluster}]})),
        file("contexts", json!({"current-context": "c", "contexts": [context("c", "a")]})),
        file(
            "others",
            json!({
                "current-context": "d", "contexts": [context("d", "b"), context("c", "b")],
                "clusters": [
                    {"name": "a", "cluster": {"server": "http://127.0.0.1:1"}},
                    {"name": "b", "cluster": {"server": "http://127.0.0.1:1"}},
                ],
                "users": [{"name": "u", "user": {"token": "operator"}}],
            }),
        ),
    ]
    .join(":");
    let cache = folder.path().join("cache").display().to_string();
    let arguments = ["explain", "svc/shop", "--component", "kube-proxy", "--node", "edge-a", "--cache-dir", &cache];
    let output = tokio::task::spawn_blocking({
        let arguments = arguments.map(str::to_owned);
        move || {
            let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
            run(&built::weir(), &arguments, &[("KUBECONFIG", &list)])
        }
    });
    let output = output.await.unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(stderr(&output).contains("ConfigMap kube-system/weir-filters does not exist"), "{}", stderr(&output));
}
