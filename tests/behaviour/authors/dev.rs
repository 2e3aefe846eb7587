//! `weir dev`, as its user sees it.

use std::fs;
use std::io::Write as _;
use std::process::{Command, Stdio};
use std::time::Duration;

use tokio::fs::OpenOptions;
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdout};
use weir_tests::built;
use weir_tests::client::PATIENCE;
use weir_tests::pki;
use weir_tests::rights::TOKEN;

use super::super::edge;
use super::{Desk, SERVICES};

/// `weir dev` in a folder.
struct Dev {
    running: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Dev {
    fn start(desk: &Desk, flags: &[&str]) -> Self {
        let mut command = tokio::process::Command::new(built::weir());
        command.arg("dev").args(flags).current_dir(desk.path("")).env("WEIR_CACHE_DIR", desk.path("cache"));
        let mut running = command.stdout(Stdio::piped()).stderr(Stdio::null()).kill_on_drop(true).spawn().unwrap();
        let lines = BufReader::new(running.stdout.take().unwrap()).lines();
        Self { running, lines }
    }

    /// Returns the next line that is not empty, or `None` at the end.
    async fn line(&mut self) -> Option<String> {
        loop {
            let line = self.lines.next_line().await.unwrap();
            if line.as_deref() != Some("") {
                return line;
            }
        }
    }

    /// Returns the lines up to one with the text.
    async fn until(&mut self, wanted: &str) -> String {
        let mut said = String::new();
        loop {
            let line = tokio::time::timeout(PATIENCE, self.line()).await;
            let line = line.unwrap_or_else(|_| panic!("no {wanted:?} after {said}"));
            let line = line.unwrap_or_else(|| panic!("it ended without {wanted:?}: {said}"));
            said += &line;
            said.push('\n');
            if line.contains(wanted) {
                return said;
            }
        }
    }
}

#[tokio::test]
async fn dev_builds_compares_and_serves_the_last_good_build() {
    let (server, desk) = (edge().await, Desk::new());
    desk.write("cases/none.yaml", "cases: []");
    let objects = "apiVersion: v1\nkind: Service\nmetadata: {name: lb}\nspec: {type: LoadBalancer}\n---\n";
    desk.write("services.yaml", format!("{objects}{SERVICES}"));
    // Each build leaves something in the folder that is watched, too.
    let project = "name = 'services'\nbuild = 'mkdir -p build && date > build/log && cp next/* build/services.wasm'\n\
                   watch = ['.']\nmodule = 'build/services.wasm'\n";
    desk.write("weir.toml", project);
    desk.write("next/module", fs::read(built::module("nodeportisolation")).unwrap());
    desk.write("server-ca.crt", pki::shared().authority.pem());
    desk.write("account.token", TOKEN);
    let server =
        ["--server", server.url(), "--certificate-authority", "server-ca.crt", "--token-file", "account.token"];
    let flags = ["--object", "services.yaml", "--", "--port", "0", "--admin-port", "0"];
    let mut dev = Dev::start(&desk, &[&flags[..], &server].concat());
    let first = dev.until("waiting for changes").await;
    assert!(first.contains("3 objects: 3 unchanged, 0 edited, 0 hidden, 0 failed"), "{first}");
    assert!(first.contains("in force after"), "{first}");

    desk.write("next/module", "no module");
    let second = dev.until("the last good build stays").await;
    assert!(second.contains("it is text: give a WebAssembly component"), "{second}");
    assert!(!second.contains("in force"), "{second}");

    desk.write("next/module", fs::read(built::module("discardcloudservice")).unwrap());
    let third = dev.until("waiting for changes").await;
    assert!(third.contains("3 objects: 1 changed: 1 newly hidden\n  services lb: newly hidden\n"), "{third}");
    assert!(third.contains("in force after"), "{third}");
    assert_eq!(third.matches("$ mkdir").count(), 1, "one build for one change: {third}");

    desk.write("next/module", fs::read(built::module("discardcloudservice")).unwrap());
    let same = dev.until("waiting for changes").await;
    assert!(same.contains("no outcome changed") && same.contains("in force already: the build is the same"), "{same}");

    // Another build command takes effect at once, and an error in it is reported.
    desk.write("weir.toml", "name = ");
    let mistaken = dev.until("the last good build stays").await;
    assert!(mistaken.contains("weir.toml: line 1"), "{mistaken}");
    desk.write("weir.toml", project.replace("date", "date -u"));
    let rebuilt = dev.until("waiting for changes").await;
    assert!(rebuilt.contains("date -u") && rebuilt.contains("in force already"), "{rebuilt}");

    // The daemon has the same standard output, and ends with its parent.
    dev.running.kill().await.unwrap();
    assert_eq!(tokio::time::timeout(PATIENCE, dev.line()).await, Ok(None));
}

/// As when an editor saves while a build ends.
#[tokio::test]
async fn a_file_that_is_half_written_is_not_built() {
    let desk = Desk::new();
    desk.write("cases/none.yaml", "cases: []");
    let module = fs::read(built::module("nodeportisolation")).unwrap();
    desk.write("next/module", &module);
    desk.write("build/log", "");
    let gate = desk.path("build/gate");
    assert!(Command::new("mkfifo").arg(&gate).status().unwrap().success());
    let project = "name = 'services'\nbuild = 'cp next/* build/services.wasm && cat build/gate'\nwatch = ['next']\n\
                   module = 'build/services.wasm'\n";
    desk.write("weir.toml", project);
    let mut dev = Dev::start(&desk, &[]);

    dev.until("$ cp").await;
    // The build opens the gate after it has copied the file.
    let opened = OpenOptions::new().write(true).open(&gate).await.unwrap();
    let mut saved = fs::File::create(desk.path("next/module")).unwrap();
    saved.write_all(&module[..100]).unwrap();
    drop(opened);
    dev.until("waiting for changes").await;
    let more = tokio::time::timeout(Duration::from_millis(200), dev.line()).await;
    assert!(more.is_err(), "{more:?}");

    saved.write_all(&module[100..]).unwrap();
    drop(saved);
    dev.until("$ cp").await;
    drop(OpenOptions::new().write(true).open(&gate).await.unwrap());
    let said = dev.until("waiting for changes").await;
    assert!(!said.contains("the last good build stays"), "{said}");
}

#[test]
fn dev_says_whether_the_build_is_good_and_can_end_after_it() {
    let desk = Desk::new();
    let project = |build: &str| format!("name = 'a'\nbuild = '{build}'\nwatch = []\nmodule = 'build/a.wasm'\n");
    let hidden =
        "cases: [{name: hidden, rule: 1, input: {apiVersion: v1, kind: Service, metadata: {name: a}}, expect: hidden}]";
    desk.write("cases/hidden.yaml", hidden);
    desk.write("build/a.wasm", fs::read(built::module("discardcloudservice")).unwrap());
    desk.write("weir.toml", project("exit 3"));
    let failed = desk.weir(&["dev", "--once"]);
    assert!(failed.code == Some(1) && failed.out.contains("the build failed: exit status: 3"), "{}", failed.out);
    desk.write("weir.toml", project("true"));
    let failed = desk.weir(&["dev", "--once"]);
    assert!(failed.code == Some(1) && failed.out.contains("FAILED  hidden (rule 1)"), "{}", failed.out);
    desk.write("cases/hidden.yaml", hidden.replace("expect: hidden", "expect: unchanged"));
    assert!(desk.weir(&["dev", "--once"]).well().contains("1 cases: 1 passed, 0 failed"));
    desk.write("weir.toml", "name = 'a'");
    desk.weir(&["dev"]).refused(1, "weir.toml: ");
}
