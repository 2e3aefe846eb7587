//! Invalid input: flags, configurations, modules. Each error names the file, the key and the reason.

use std::io::Write as _;
use std::process::{Command, Output, Stdio};

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value, json};
use weir_tests::built;
use weir_tests::daemon::{Setup, manifest, replace};
use weir_tests::guests::hostile;

use super::edge;

fn weir(arguments: &[&str]) -> Output {
    Command::new(built::weir()).args(arguments).env_clear().output().unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn bad_flags_end_with_64_and_name_the_flag() {
    let ok = ["serve", "--server", "http://127.0.0.1:1", "--node-name", "n"];
    for (more, words) in [
        (vec!["--no-such-flag"], vec!["--no-such-flag"]),
        (vec!["--port", "99999"], vec!["--port", "99999"]),
        (vec!["--bind-address", "0.0.0.0"], vec!["--bind-address", "loopback"]),
        (vec!["--kubeconfig", "/x", "--config-map", "nonsense"], vec!["--server and --kubeconfig", "--config-map"]),
        (vec!["--pod-address", "127.0.0.1"], vec!["--pod-address", "loopback"]),
        (vec!["--pod-interface", "a/b"], vec!["--pod-interface", "a/b"]),
        (vec!["--start-wait", "soon"], vec!["--start-wait", "soon"]),
        (vec!["--compress", "sometimes"], vec!["--compress", "sometimes"]),
        (vec!["--memory", "much"], vec!["--memory", "much", "256Mi"]),
        (vec!["--memory-budget=1Gi"], vec!["--memory-budget is no flag any more: --memory"]),
        (vec!["--resend", "traefik=often"], vec!["--resend", "traefik=often", "COMPONENT=replace"]),
        (vec!["--log-format", "xml"], vec!["--log-format", "xml"]),
    ] {
        let arguments: Vec<_> = ok.iter().copied().chain(more.iter().copied()).collect();
        let output = weir(&arguments);
        assert_eq!(output.status.code(), Some(64), "{more:?}: {}", stderr(&output));
        for word in words {
            assert!(stderr(&output).contains(word), "{more:?}: {}", stderr(&output));
        }
    }
    assert_eq!(weir(&["serve"]).status.code(), Some(64));
    assert_eq!(weir(&["fly"]).status.code(), Some(64));
    assert_eq!(weir(&[]).status.code(), Some(64));
    assert_eq!(weir(&["--help"]).status.code(), Some(0));
    assert_eq!(weir(&["--version"]).status.code(), Some(0));
}

#[test]
fn a_port_that_is_taken_ends_the_start_with_1() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let output =
        weir(&["serve", "--server", "http://127.0.0.1:1", "--node-name", "n", "--port", &port, "--admin-port", "0"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("--port") && stderr(&output).contains(&port), "{}", stderr(&output));
}

#[test]
fn an_own_credential_that_cannot_be_read_ends_the_start_with_1() {
    let folder = tempfile::tempdir().unwrap();
    let text = folder.path().join("text");
    std::fs::write(&text, "neither YAML: nor: PEM").unwrap();
    let (text, none) = (text.display().to_string(), folder.path().join("none").display().to_string());
    let server = ["--server", "https://127.0.0.1:1"];
    for (flags, named) in [
        (vec!["--kubeconfig", &*none], &none),
        (vec!["--kubeconfig", &*text], &text),
        ([&server[..], &["--token-file", &*none]].concat(), &none),
        ([&server[..], &["--certificate-authority", &*none]].concat(), &none),
        ([&server[..], &["--client-certificate", &*none, "--client-key", &*none]].concat(), &none),
    ] {
        let ports = ["serve", "--node-name", "n", "--port", "0", "--admin-port", "0"];
        let output = weir(&[&ports[..], &flags].concat());
        assert_eq!(output.status.code(), Some(1), "{flags:?}: {}", stderr(&output));
        let error = stderr(&output);
        let line = error.lines().find(|line| line.starts_with("weir: "));
        assert!(line.is_some_and(|line| line.contains(named)), "{flags:?}: {error}");
    }
}

/// A configuration, and words that its error must contain.
const BROKEN: &[(&str, &[&str])] = &[
    ("filters: [{", &["filters.yaml"]),
    ("filters: 7", &["filters.yaml"]),
    ("filter: []", &["filters.yaml", "filter"]),
    ("filters:\n  - {name: a, module: a.wasm, colour: red}", &["filters.yaml", "colour"]),
    ("filters:\n  - {name: a, module: a.wasm, match: ['kube-proxy']}", &["match", "kube-proxy"]),
    ("filters:\n  - {name: a, module: a.wasm, match: ['a/b#fly']}", &["match", "fly"]),
    ("filters:\n  - {name: a, module: a.wasm, match: ['a/unheardof']}", &["match", "unheardof"]),
    ("filters:\n  - {name: a, module: ../a.wasm}", &["module", "../a.wasm"]),
    ("filters:\n  - {name: a, module: a.wasm, digest: 'md5:1'}", &["digest", "md5:1"]),
    ("filters:\n  - {name: a, module: a.wasm, failurePolicy: Maybe}", &["failurePolicy", "Maybe"]),
    ("filters:\n  - {name: a, module: a.wasm, limits: {time: soon}}", &["time", "soon"]),
    ("filters:\n  - {name: a, module: a.wasm, limits: {memory: 9Ti}}", &["memory"]),
    ("filters:\n  - {name: a, module: a.wasm, settings: [1]}", &["settings"]),
    ("filters:\n  - {name: a, module: a.wasm, grants: [secrets]}", &["grants", "secrets"]),
    ("filters:\n  - {name: a, module: a.wasm}\n  - {name: a, module: b.wasm}", &["a", "twice"]),
    (
        "filters:\n  - {name: discardcloudservice, module: discardcloudservice.wasm, settings: {services: 7}}",
        &["discardcloudservice", "services"],
    ),
    (
        "filters:\n  - {name: discardcloudservice, module: discardcloudservice.wasm, settings: {sevices: []}}",
        &["discardcloudservice", "sevices"],
    ),
    ("filters:\n  - {name: gone, module: gone.wasm}", &["gone.wasm", "No such file"]),
    ("filters:\n  - {name: bad, module: bad.wasm}", &["bad.wasm", "WebAssembly"]),
];

#[test]
fn check_names_file_key_and_reason() {
    let folder = tempfile::tempdir().unwrap();
    let modules = folder.path().join("modules");
    std::fs::create_dir(&modules).unwrap();
    std::fs::copy(built::module("discardcloudservice"), modules.join("discardcloudservice.wasm")).unwrap();
    std::fs::write(modules.join("bad.wasm"), "no WebAssembly").unwrap();
    let path = folder.path().join("filters-under-test.yaml");
    for (filters, words) in BROKEN {
        std::fs::write(&path, manifest(filters)).unwrap();
        let output = weir(&["check", path.to_str().unwrap(), "--modules-dir", modules.to_str().unwrap()]);
        assert_eq!(output.status.code(), Some(64), "{filters}: {}", stderr(&output));
        for word in words.iter().chain(&["filters-under-test.yaml"]) {
            assert!(stderr(&output).contains(word), "{filters}: no {word:?} in {}", stderr(&output));
        }
    }
    for text in ["", "just words", "kind: Secret", "\u{0}"] {
        std::fs::write(&path, text).unwrap();
        let output = weir(&["check", path.to_str().unwrap()]);
        assert_eq!(output.status.code(), Some(64), "{text:?}: {}", stderr(&output));
    }
    assert_eq!(weir(&["check", "/does/not/exist.yaml"]).status.code(), Some(64));
}

/// No reason is in the words of a library: it names what is wrong with the text, and the line.
#[test]
fn check_says_in_plain_words_what_is_wrong_with_a_text() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("filters.yaml");
    let utf16 = |text: &str| {
        let units = text.encode_utf16().flat_map(u16::to_le_bytes);
        [0xff, 0xfe].into_iter().chain(units).collect::<Vec<u8>>()
    };
    for (text, words) in [
        (
            b"filters:\n  - name: a\n    name: b\n".to_vec(),
            &["line 3", "the key \"name\" is there twice: keep one"][..],
        ),
        (b"filters: []\n---\nfilters: []\n".to_vec(), &["2 YAML documents", "`---`"]),
        (b"filters:\n  - {name: a, settings: {x: .inf}}\n".to_vec(), &["line 2", ".inf is not a number"]),
        (b"filters: *a\n".to_vec(), &["line 1", "names no anchor"]),
        (utf16("filters: []\n"), &["it is UTF-16 text: save it as UTF-8"]),
        (b"filters: []\n# \xe4\n".to_vec(), &["it is not UTF-8 text, see line 2"]),
        // kubectl puts a file that is not UTF-8 there.
        (
            b"apiVersion: v1\nkind: ConfigMap\nbinaryData:\n  filters.yaml: //5mAA==\n".to_vec(),
            &["binaryData.filters.yaml", "it is UTF-16 text: save it as UTF-8", "kubectl"],
        ),
    ] {
        std::fs::write(&path, &text).unwrap();
        let output = weir(&["check", path.to_str().unwrap()]);
        let error = stderr(&output);
        assert_eq!(output.status.code(), Some(64), "{error}");
        for word in words.iter().chain(&["filters.yaml"]) {
            assert!(error.contains(word), "no {word:?} in {error}");
        }
        for word in ["Options", "Policy", "from_", "module file name"] {
            assert!(!error.contains(word), "{error}");
        }
    }
}

/// As `kubectl` does, and as Helm writes it.
#[test]
fn check_accepts_empty_documents_and_numbers_as_kubectl_reads_them() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("filters.yaml");
    let modules = built::modules();
    let check = || weir(&["check", path.to_str().unwrap(), "--modules-dir", modules.to_str().unwrap()]);
    for text in ["filters: []\n---\n".to_owned(), format!("---\n{}---\n# end\n", manifest("filters: []"))] {
        std::fs::write(&path, text).unwrap();
        let output = check();
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    }
    for port in ["010268", "0x281c", "10_268", "10268.0"] {
        let entry = format!("{{name: masterservice, settings: {{host: 169.254.1.1, port: {port}}}}}");
        std::fs::write(&path, format!("filters: [{entry}]")).unwrap();
        let output = check();
        assert_eq!(output.status.code(), Some(0), "{port}: {}", stderr(&output));
    }
}

/// A file that is no module is refused by what it is, and gzip is unpacked wherever a module is read.
#[test]
fn check_names_what_a_file_is_that_is_no_module() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("filters.yaml");
    std::fs::write(&path, "filters: [{name: a, module: a.wasm}]").unwrap();
    let check = |module: &[u8]| {
        std::fs::write(folder.path().join("a.wasm"), module).unwrap();
        weir(&["check", path.to_str().unwrap(), "--modules-dir", folder.path().to_str().unwrap()])
    };
    let packed = |bytes: &[u8]| {
        let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
        gzip.write_all(bytes).unwrap();
        gzip.finish().unwrap()
    };
    let module = std::fs::read(built::module("discardcloudservice")).unwrap();
    let (first, rest) = module.split_at(1000);
    for whole in [packed(&module), [packed(first), packed(rest)].concat()] {
        let output = check(&whole);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    }
    for (bytes, words) in [
        (packed(&module)[..5000].to_vec(), "the gzip file is cut off"),
        (b"\0asm\x01\0\0\0".to_vec(), "it is a core WebAssembly module, and no component: build it for wasm32-wasip2"),
        (b"\x28\xb5\x2f\xfd1234".to_vec(), "it is compressed with zstd"),
        (b"name: a".to_vec(), "it is text: give a WebAssembly component"),
        (hostile("wasi-preview-3"), "it imports wasi:cli/environment@0.3.0, and Weir serves WASI 0.2"),
    ] {
        let error = stderr(&check(&bytes));
        assert!(error.contains(words) && error.contains("a.wasm"), "no {words:?} in {error}");
    }
}

#[test]
fn check_reports_all_errors_at_once_and_accepts_valid_input() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("filters.yaml");
    std::fs::write(&path, manifest("filters:\n  - {name: a, module: ../a, match: ['x'], failurePolicy: No}")).unwrap();
    let output = stderr(&weir(&["check", path.to_str().unwrap()]));
    assert!(["../a", "match", "failurePolicy"].iter().all(|word| output.contains(word)), "{output}");
    let good = "filters:\n  - {name: discardcloudservice, module: discardcloudservice.wasm, match: ['kube-proxy/services#list']}";
    std::fs::write(&path, manifest(good)).unwrap();
    let output = weir(&["check", path.to_str().unwrap(), "--modules-dir", built::modules().to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(
        stderr(&output).contains("warning"),
        "a rule that names list covers get and watch too: {}",
        stderr(&output)
    );
    assert!(String::from_utf8_lossy(&output.stdout).contains("discardcloudservice"));
}

#[test]
fn check_reads_standard_input_and_prints_json() {
    let filters = "filters: [{name: one, module: discardcloudservice.wasm}, {name: two, module: missing.wasm}]";
    let mut command = Command::new(built::weir());
    command.args(["check", "-", "-o", "json", "--modules-dir"]).arg(built::modules());
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(filters.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let (json, error): (Value, _) = (serde_json::from_slice(&output.stdout).unwrap(), stderr(&output));
    assert_eq!(output.status.code(), Some(64), "{error}");
    assert_eq!((&json[0]["filter"], &json[0]["module"]), (&json!("one"), &json!("discardcloudservice")), "{json}");
    assert!(json[0]["digest"].as_str().unwrap().starts_with("sha256:") && json[0]["match"].is_array(), "{json}");
    let reason = json[1]["error"].as_str().unwrap();
    assert!(reason.contains("missing.wasm") && error.contains("filter two: "), "{reason} {error}");
}

/// `weir check`, the log and `/filters` name the filter and the rule.
#[tokio::test]
async fn a_rule_that_matches_nothing_is_a_warning() {
    let filters =
        "filters:\n  - {name: late, module: discardcloudservice.wasm, match: ['kubelet/pods#update', 'kubelet/nodes']}";
    let named = r#"filter late: rule "kubelet/pods#update" names none of get, list and watch"#;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("filters.yaml");
    std::fs::write(&path, manifest(filters)).unwrap();
    let output = weir(&["check", path.to_str().unwrap(), "--modules-dir", built::modules().to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(stderr(&output).contains(&format!("warning: {named}")), "{}", stderr(&output));
    let server = edge().await;
    let weir = Setup::new(server.url()).filters(filters).bundled("discardcloudservice").start_ready().await;
    let line = weir.logged("matches nothing").await;
    assert!(line["fields"]["message"].as_str().is_some_and(|message| message.contains(named)), "{line}");
    let shown = weir.admin().json("/filters").await;
    let warnings = shown["lastReload"]["warnings"].as_array().unwrap();
    assert!(warnings.iter().any(|warning| warning.as_str().is_some_and(|text| text.starts_with(named))), "{shown}");
}

#[tokio::test]
async fn at_start_an_invalid_configuration_keeps_the_daemon_running_but_not_ready_until_it_is_fixed() {
    let server = edge().await;
    for filters in
        ["filters: [{", "filters:\n  - {name: discardcloudservice, module: discardcloudservice.wasm, match: ['?']}"]
    {
        let weir = Setup::new(server.url())
            .filters(filters)
            .bundled("discardcloudservice")
            .flag("--start-wait", "50ms")
            .start()
            .await;
        weir.logged("configuration refused").await;
        let ready = weir.admin().get("/readyz").await;
        assert_eq!(ready.status, 503);
        assert!(ready.text().contains("filters-config.yaml"), "{}", ready.text());
        assert_eq!(weir.client("kube-proxy").get("/api/v1/services").await.status, 503);
        weir.put_filters("filters:\n  - {name: discardcloudservice, module: discardcloudservice.wasm}");
        weir.ready().await;
        assert_eq!(weir.client("kube-proxy").names("/api/v1/services").await.len(), 3);
    }
}

#[tokio::test]
async fn an_invalid_manifest_leaves_the_last_valid_set_in_force() {
    let server = edge().await;
    let weir = Setup::new(server.url())
        .filters("filters:\n  - {name: discardcloudservice, module: discardcloudservice.wasm}")
        .bundled("discardcloudservice")
        .start_ready()
        .await;
    for bytes in [b"\xff\xfe\x00".as_slice(), b"", b"[1, 2", b"apiVersion: v1\nkind: ConfigMap\ndata: {surprise: x}"] {
        let from = weir.log_length();
        replace(&weir.path("filters-config.yaml"), bytes);
        let (_, line) = weir.logged_after(from, "configuration refused").await;
        assert!(line.to_string().contains("filters-config.yaml"), "{line}");
        assert_eq!(weir.client("kube-proxy").names("/api/v1/services").await.len(), 3);
    }
}

/// The rules are those of the module, which are known when it is loaded.
#[tokio::test]
async fn a_module_whose_own_rules_match_kubelets_pods_may_not_hide_them_when_it_fails() {
    let server = edge().await;
    let hide = |more: &str| super::only("serviceenvupdater", &format!("    failurePolicy: Hide\n{more}"));
    let weir = Setup::new(server.url()).filters(&hide("")).bundled("serviceenvupdater").start().await;
    let line = weir.logged("configuration refused").await;
    let reason = line["fields"]["reason"].as_str().unwrap();
    assert!(reason.contains("take pods from kubelet") && reason.contains("allowHide: true"), "{line}");
    assert_eq!(line["fields"]["filter"], "serviceenvupdater");
    weir.put_filters(&hide("    allowHide: true\n"));
    weir.ready().await;
}
