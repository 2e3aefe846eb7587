//! The commands for filter authors, as they type them.

mod dev;

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use flate2::Compression;
use flate2::write::GzEncoder;
use weir_tests::built;
use weir_tests::pki::kubeconfig;
use weir_tests::plane::skipped_part;

use super::edge;

const SERVICES: &str = "\
apiVersion: v1
kind: Service
metadata: {name: a, namespace: shop, annotations: {example.com/hidden: 'true'}}
---
apiVersion: v1
kind: Service
metadata: {name: b, namespace: shop}
";

/// A folder in which commands run.
struct Desk(tempfile::TempDir);

struct Said {
    code: Option<i32>,
    out: String,
    err: String,
}

impl Desk {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Writes a file in one step, so that nobody reads it half written.
    fn write(&self, name: &str, text: impl AsRef<[u8]>) {
        let (path, part) = (self.path(name), self.path(".part"));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&part, text).unwrap();
        fs::rename(part, path).unwrap();
    }

    /// Runs `weir` in a folder below.
    fn weir_in(&self, folder: &str, arguments: &[&str]) -> Said {
        let mut command = Command::new(built::weir());
        command.args(arguments).current_dir(self.path(folder)).env("WEIR_CACHE_DIR", self.path("cache"));
        Said::of(&command.output().unwrap())
    }

    /// Builds the project of a language as its README says, in a folder that keeps the tools. `None` if these cannot be had.
    fn build(&self, language: &str, tools: &str) -> Option<PathBuf> {
        self.weir(&["new", language, "--lang", language]).well();
        let folder = authors().join(language);
        fs::create_dir_all(&folder).unwrap();
        let copied = Command::new("cp").arg("-r").arg(self.path(language).join(".")).arg(&folder).status().unwrap();
        assert!(copied.success());
        let installed = sh(&folder, tools);
        if installed.code != Some(0) {
            skipped_part(
                &format!("templates-{language}"),
                &format!("its tools cannot be had: {}", installed.err.trim()),
            );
            return None;
        }
        run_build(&folder);
        Some(folder)
    }

    fn weir(&self, arguments: &[&str]) -> Said {
        self.weir_in("", arguments)
    }

    /// Runs `cargo` in a project, with the workspace's versions and a target folder that later runs use again.
    fn cargo(&self, project: &str, arguments: &[&str]) -> Said {
        fs::copy(built::workspace().join("Cargo.lock"), self.path(project).join("Cargo.lock")).unwrap();
        let mut command = Command::new("cargo");
        command.args(arguments).current_dir(self.path(project)).env("CARGO_TARGET_DIR", authors());
        Said::of(&command.output().unwrap())
    }
}

/// Runs the build command of a project.
fn run_build(folder: &Path) {
    let project = fs::read_to_string(folder.join("weir.toml")).unwrap();
    let command = project.lines().find_map(|line| line.strip_prefix("build = \"")).unwrap();
    sh(folder, command.trim_end_matches('"')).well();
}

fn sh(folder: &Path, command: &str) -> Said {
    Said::of(&Command::new("sh").args(["-c", command]).current_dir(folder).output().unwrap())
}

impl Said {
    fn of(output: &Output) -> Self {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Self { code: output.status.code(), out: text(&output.stdout), err: text(&output.stderr) }
    }

    #[track_caller]
    fn well(self) -> String {
        assert_eq!(self.code, Some(0), "{}{}", self.out, self.err);
        self.out
    }

    #[track_caller]
    fn refused(&self, code: i32, part: &str) {
        assert_eq!(self.code, Some(code), "{}{}", self.out, self.err);
        assert!(self.err.contains(part), "{}", self.err);
        assert_eq!(self.err.lines().count(), 1, "one line: {}", self.err);
    }
}

/// The target folder of authors' projects.
fn authors() -> PathBuf {
    built::target().join("authors")
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn a_new_rust_project_builds_and_passes_natively_and_as_a_module() {
    let desk = Desk::new();
    desk.weir(&["new", "hide-marked"]).well();
    let native = desk.cargo("hide-marked", &["test"]).well();
    assert!(native.contains("1 passed"), "{native}");
    desk.cargo("hide-marked", &["build", "--release", "--target", "wasm32-wasip2"]).well();
    let module = authors().join("wasm32-wasip2/release/hide_marked.wasm");
    assert!(fs::metadata(&module).unwrap().len() < 150_000);
    let tested = desk.weir_in("hide-marked", &["test", text(&module), "--junit", "junit.xml"]).well();
    assert!(tested.contains("3 cases: 3 passed, 0 failed; 2 ran in protobuf, too"), "{tested}");
    let junit = fs::read_to_string(desk.path("hide-marked/junit.xml")).unwrap();
    assert!(junit.contains("tests=\"3\" failures=\"0\""), "{junit}");

    // With the entry that the project has for a configuration.
    desk.write("services.yaml", SERVICES);
    let services = desk.path("services.yaml");
    let run = ["run", text(&module), "--object", text(&services), "--filters", "filters.yaml"];
    let filtered = desk.weir_in("hide-marked", &run).well();
    assert_eq!(filtered, "services shop/a: hidden\nservices shop/b: unchanged\n");
    let measured = desk.weir_in("hide-marked", &[&run[..], &["--bench"]].concat()).well();
    for figure in ["hide-marked on 2 objects", "compile", "an object, replayed", "an object, called", "MiB an instance"]
    {
        assert!(measured.contains(figure), "{measured}");
    }

    let broken = desk.path("hide-marked/cases/hide.yaml");
    fs::write(&broken, fs::read_to_string(&broken).unwrap().replace("expect: unchanged", "expect: hidden")).unwrap();
    let failed = desk.weir_in("hide-marked", &["test", text(&module)]);
    assert_eq!(failed.code, Some(1));
    assert!(failed.out.contains("FAILED  another service keeps its bytes (rule marked)"), "{}", failed.out);
    assert!(failed.out.contains("2 passed, 1 failed"), "{}", failed.out);
    let planned = fs::read_to_string(&broken).unwrap().replace("kube-proxy/services", "kubelet/services");
    fs::write(&broken, planned).unwrap();
    let failed = desk.weir_in("hide-marked", &["test", text(&module)]);
    assert!(failed.out.contains("FAILED  the plan") && failed.out.contains("kubelet/services"), "{}", failed.out);
}

#[test]
#[ignore = "needs the registries of four languages: `make templates` runs it"]
fn new_projects_of_other_languages_build_and_pass() {
    let desk = Desk::new();
    let examples = built::workspace().join("filters/docs/examples");
    // The last two: the example of filters/docs, and its place in a project.
    for (language, tools, example, place) in [
        ("python", "make .venv/installed", "python/app.py", "src/app.py"),
        ("js", "npm install --silent --no-audit --no-fund", "js/filter.js", "src/filter.js"),
        (
            "go",
            "go version && go mod download && npx --yes @bytecodealliance/jco@1.35.0 --version",
            "go/filter.go",
            "export_weir_filter_module/filter.go",
        ),
        ("c", "make .venv/installed && npx --yes @bytecodealliance/jco@1.35.0 --version", "c/filter.c", "src/filter.c"),
    ] {
        let Some(folder) = desk.build(language, tools) else { continue };
        let test = |cases: &Path| {
            let mut command = Command::new(built::weir());
            command.arg("test").arg("--cases").arg(cases);
            command.current_dir(&folder).env("WEIR_CACHE_DIR", desk.path("cache"));
            Said::of(&command.output().unwrap()).well()
        };
        let tested = test(&folder.join("cases"));
        assert!(tested.contains("3 cases: 3 passed, 0 failed; 2 ran in protobuf, too"), "{language}: {tested}");
        eprintln!("{language}: {}", tested.lines().last().unwrap());

        a_broken_filter_logs_message_and_stack(&desk, language, &folder.join(place), &folder);

        let source = fs::read_to_string(examples.join(example)).unwrap();
        // The packages of a project in Go have its name in their path.
        let packages = format!("example.com/{language}/weir_filter");
        fs::write(folder.join(place), source.replace("example.com/drain/weir_filter", &packages)).unwrap();
        run_build(&folder);
        let tested = test(&examples.join("rust/cases"));
        assert!(tested.contains("12 cases: 12 passed, 0 failed; 7 ran in protobuf, too"), "{language}: {tested}");
    }
}

/// A panic, an exception, a throw: the message and the stack are in the log, and the object has failed.
fn a_broken_filter_logs_message_and_stack(desk: &Desk, language: &str, source: &Path, folder: &Path) {
    let (before, broken, stack) = match language {
        "python" => (
            "        return Verdict.HIDE if",
            "        raise RuntimeError(\"broken on purpose\")\n        return Verdict.HIDE if",
            "app.py",
        ),
        "js" => (
            "(object.annotation(annotation) === \"true\" ? \"hide\" : \"keep\")",
            "{ throw new Error(\"broken on purpose\"); }",
            "filter.js:17",
        ),
        "go" => (
            "\tverdict := weir.Verdict_Keep",
            "\tpanic(\"broken on purpose\")\n\tverdict := weir.Verdict_Keep",
            "filter.go:34",
        ),
        // A module in C has no stack to print.
        _ => ("  (void)err;", "  fputs(\"broken on purpose\\n\", stderr), abort();\n  (void)err;", "panicked"),
    };
    let text = fs::read_to_string(source).unwrap();
    assert!(text.contains(before), "{language}: {text}");
    fs::write(source, text.replace(before, broken)).unwrap();
    run_build(folder);
    desk.write("services.yaml", SERVICES);
    let (module, services) = (folder.join(format!("build/{language}.wasm")), desk.path("services.yaml"));
    let settings = r#"{"annotation": "example.com/hidden"}"#;
    let ran = desk.weir(&["run", self::text(&module), "--object", self::text(&services), "--settings", settings]);
    assert_eq!(ran.code, Some(1), "{language}: {}{}", ran.out, ran.err);
    assert!(
        ran.out.contains("services shop/a: failed (") && ran.out.contains("broken on purpose"),
        "{language}: {}",
        ran.out
    );
    assert!(ran.err.contains("broken on purpose") && ran.err.contains(stack), "{language}: {}", ran.err);
}

#[tokio::test(flavor = "multi_thread")]
async fn recorded_objects_run_and_pass_as_cases() {
    let (server, desk) = (edge().await, Desk::new());
    desk.write("config", kubeconfig(server.url(), "", ""));
    let module = built::module("servicetopology");
    let said = desk.weir(&["record", text(&module), "--kubeconfig", "config", "--node-name", "edge-a"]).well();
    for part in ["recorded/objects.json: ", "recorded/cluster.json: ", "recorded/cases/recorded.json: "] {
        let line = said.lines().find(|line| line.starts_with(part)).unwrap_or_else(|| panic!("{part}: {said}"));
        assert!(!line.starts_with(&format!("{part}0 ")), "{line}");
    }
    let ran = ["run", text(&module), "--object", "recorded/objects.json", "--cluster", "recorded/cluster.json"];
    let ran = desk.weir(&[&ran[..], &["--node-name", "edge-a"]].concat()).well();
    assert!(ran.contains("edited"), "{ran}{}", fs::read_to_string(desk.path("recorded/cluster.json")).unwrap());
    let tested = desk.weir(&["test", text(&module), "--cases", "recorded/cases"]).well();
    assert!(tested.contains(" 0 failed") && !tested.contains(" 0 passed"), "{tested}");
    let record = |more: &[&str]| desk.weir(&[&["record", text(&module), "--kubeconfig", "config"], more].concat());
    record(&["--resource", "secrets"]).refused(1, "Secrets are not written into files");
    record(&["--resource", "widgets.example.com"]).refused(1, "/apis/example.com: 404");
    desk.write("config", kubeconfig("http://127.0.0.1:1", "", ""));
    record(&[]).refused(1, "no answer from the API server http://127.0.0.1:1 of the kubeconfig config, ");
    desk.weir(&["record", text(&module), "--kubeconfig", "none"]).refused(1, "none");
}

#[test]
fn a_module_is_described_with_an_entry_that_a_configuration_accepts() {
    let desk = Desk::new();
    let module = built::module("nodeportisolation");
    let text_of = desk.weir(&["inspect", text(&module)]).well();
    for part in ["nodeportisolation 0.1.0: ", "digest      sha256:", "it fits a ConfigMap", "weir:filter/objects@0.1.0"]
    {
        assert!(text_of.contains(part), "{text_of}");
    }
    assert!(text_of.contains("matches     kube-proxy/services"), "{text_of}");
    let entry = text_of.split_once("An entry for filters.yaml:\n").unwrap().1;
    desk.write("filters.yaml", format!("filters:\n{entry}"));
    let checked = desk.weir(&["check", "filters.yaml", "--modules-dir", text(&built::modules())]).well();
    assert!(checked.starts_with("nodeportisolation: nodeportisolation 0.1.0 sha256:"), "{checked}");
    assert!(desk.weir(&["check", text(&module)]).well().starts_with("nodeportisolation: "));
}

#[test]
fn compiled_code_is_kept_in_the_users_cache() {
    let desk = Desk::new();
    let module = built::module("nodeportisolation");
    desk.weir(&["check", text(&module)]).well();
    let marker = fs::read_dir(desk.path("cache/compiled")).unwrap().next().unwrap().unwrap().path();
    let compiled = fs::metadata(&marker).unwrap().modified().unwrap();
    desk.weir(&["inspect", text(&module)]).well();
    assert_eq!(fs::metadata(&marker).unwrap().modified().unwrap(), compiled);
}

#[test]
fn what_a_filter_logs_and_prints_is_shown() {
    let desk = Desk::new();
    desk.write("services.yaml", SERVICES);
    let guest = built::target().join("guest.wasm");
    let settings = r#"{"ops": [{"print": 1}, {"log": 1}]}"#;
    let run = ["run", text(&guest), "--object", "services.yaml", "--settings", settings];
    let said = desk.weir(&run);
    assert_eq!(said.code, Some(0), "{}", said.err);
    assert!(said.err.contains("output of the filter module") && !said.err.contains("one in many"), "{}", said.err);
    let said = desk.weir(&[&run[..], &["-v"]].concat());
    assert!(said.err.contains("one in many"), "{}", said.err);
}

#[test]
fn the_contract_is_printed_as_one_file_and_written_as_its_files() {
    let desk = Desk::new();
    let whole = desk.weir(&["wit"]).well();
    desk.weir(&["wit", "--out", "contract"]).well();
    for file in fs::read_dir(built::workspace().join("wit")).unwrap() {
        let file = file.unwrap();
        let original = fs::read_to_string(file.path()).unwrap();
        assert_eq!(fs::read_to_string(desk.path("contract").join(file.file_name())).unwrap(), original);
        if file.path().extension().is_some_and(|extension| extension == "wit") {
            let declared = original.lines().filter(|line| !line.starts_with("package ") && !line.trim().is_empty());
            assert!(declared.into_iter().all(|line| whole.contains(line)), "{:?}", file.path());
        }
    }
    desk.write("file", "");
    desk.weir(&["wit", "--out", "file"]).refused(1, "file: it is not a directory: give another path");
    // A module builds from the one file as from the files.
    let project = desk.path("hide-marked/weir-sdk/filters/sdk/wit");
    desk.weir(&["new", "hide-marked"]).well();
    fs::remove_dir_all(&project).unwrap();
    desk.write("hide-marked/weir-sdk/filters/sdk/wit/filter.wit", whole);
    desk.cargo("hide-marked", &["check", "--target", "wasm32-wasip2"]).well();
}

#[test]
fn who_has_read_enough_may_leave() {
    let desk = Desk::new();
    let module = built::module("discardcloudservice");
    for arguments in [&["--help"][..], &["check", text(&module)], &["inspect", text(&module)]] {
        let mut command = Command::new(built::weir());
        command.args(arguments).env("WEIR_CACHE_DIR", desk.path("cache"));
        let mut running = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(running.stdout.take());
        let said = Said::of(&running.wait_with_output().unwrap());
        assert!(said.code.is_some() && !said.err.contains("panicked"), "{arguments:?}: {}", said.err);
    }
}

/// The daemon takes each file name that a ConfigMap has, and gzip.
#[test]
fn a_module_may_have_any_file_name_and_be_compressed() {
    let desk = Desk::new();
    desk.write("services.yaml", SERVICES);
    desk.write("cases/none.yaml", "cases: []");
    let module = fs::read(built::module("nodeportisolation")).unwrap();
    let packed = |bytes: &[u8]| {
        let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
        gzip.write_all(bytes).unwrap();
        gzip.finish().unwrap()
    };
    desk.write("hide-1.2.wasm", &module);
    desk.write("hide_1.wasm.gz", [packed(&module[..500]), packed(&module[500..])].concat());
    for (file, name, in_map) in
        [("hide-1.2.wasm", "hide-1-2", "hide-1.2.wasm"), ("hide_1.wasm.gz", "hide-1", "hide_1.wasm")]
    {
        let inspected = desk.weir(&["inspect", file]).well();
        assert!(inspected.contains(&format!("- name: {name}\n    module: {in_map}\n")), "{inspected}");
        assert!(inspected.contains(&weir_spec::Digest::of(&module).to_string()), "{inspected}");
        let ran = desk.weir(&["run", file, "--object", "services.yaml"]).well();
        assert!(ran.contains("services shop/a: unchanged"), "{ran}");
        assert!(desk.weir(&["test", file]).well().contains("0 cases"));
        assert!(desk.weir(&["check", file]).well().starts_with(&format!("{name}: ")));
        let pushed = desk.weir(&["push", file, "127.0.0.1:1/hide:1"]);
        assert!(pushed.code == Some(1) && pushed.err.contains("127.0.0.1:1"), "{}", pushed.err);
    }
}

#[test]
fn run_says_that_no_rule_matches_and_that_a_file_has_no_object() {
    let desk = Desk::new();
    let module = built::module("nodeportisolation");
    let run = |file: &str| desk.weir(&["run", text(&module), "--object", file]);
    desk.write("pod.yaml", format!("{SERVICES}---\n{{apiVersion: v1, kind: Pod, metadata: {{name: a}}}}"));
    let said = run("pod.yaml").well();
    assert!(said.contains("services shop/a: unchanged"), "{said}");
    assert!(said.contains("pods a: no rule matches it, the filter does not run (its rules: "), "{said}");
    for empty in ["", "# nothing\n", "---\n"] {
        desk.write("empty.yaml", empty);
        run("empty.yaml").refused(1, "empty.yaml: it has no object");
    }
    desk.write("list.yaml", "{apiVersion: v1, kind: List, items: []}");
    let said = run("list.yaml");
    assert!(said.code == Some(0) && said.err.contains("list.yaml: its list has no object"), "{}", said.err);
}

/// Many have one for all projects.
#[test]
fn the_target_folder_of_cargo_may_be_elsewhere() {
    let desk = Desk::new();
    desk.write("cases/none.yaml", "cases: []");
    desk.write("built", fs::read(built::module("nodeportisolation")).unwrap());
    let build = "mkdir -p $CARGO_TARGET_DIR/x && cp built $CARGO_TARGET_DIR/x/a.wasm # cargo";
    desk.write("weir.toml", format!("name = 'a'\nbuild = '{build}'\nwatch = []\nmodule = 'target/x/a.wasm'\n"));
    for arguments in [&["dev", "--once"][..], &["test"]] {
        let mut command = Command::new(built::weir());
        command.args(arguments).current_dir(desk.path("")).env("WEIR_CACHE_DIR", desk.path("cache"));
        let said = Said::of(&command.env("CARGO_TARGET_DIR", desk.path("elsewhere")).output().unwrap()).well();
        assert!(said.contains("0 cases"), "{said}");
    }
}

#[test]
fn mistakes_are_named_in_one_line() {
    let desk = Desk::new();
    let module = built::module("nodeportisolation");
    desk.write("services.yaml", SERVICES);
    desk.write("filters.yaml", "filters:\n  - name: one\n  - name: two\n");
    desk.write("empty/cases/none.txt", "");
    let module = text(&module);
    desk.weir(&["run", "filters.yaml", "--object", "services.yaml"])
        .refused(1, "filters.yaml: it is text: give a WebAssembly component");
    desk.weir(&["run", module, "--object", "services.yaml", "--filters", module])
        .refused(1, "it is a module, give a configuration");
    let named = ["run", module, "--object", "services.yaml", "--filters", "filters.yaml"];
    desk.weir(&named).refused(1, "it has no filter with the module nodeportisolation.wasm");
    desk.weir(&[&named[..], &["--filter", "three"]].concat()).refused(1, "it has no filter named three");
    desk.weir(&["test"]).refused(1, "weir.toml: there is none in this folder");
    desk.weir(&["test", module]).refused(1, "cases");
    desk.weir_in("empty", &["test", module]).refused(1, "no case files");
    desk.weir(&["new", "Hide Marked"]).refused(1, "Hide Marked");
    desk.weir(&["new", "empty"]).refused(1, "empty: it exists already");
    desk.weir(&["inspect", "nothing.wasm"]).refused(1, "nothing.wasm");
}
