//! Headless Chromium from Debian's packages, which `make browser` unpacks in the target folder.
//!
//! The tests talk the DevTools protocol with it over two pipes (`--remote-debugging-pipe`): JSON messages, each ended by a zero
//! byte. Without the packages the tests report that they are skipped; with `CI` set they fail.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use base64::Engine as _;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use crate::built;
use crate::client::PATIENCE;
use crate::plane::skipped;

/// A browser with one page. Dropping it kills the process.
#[derive(Debug)]
pub struct Browser {
    _process: Child,
    _folder: TempDir,
    commands: ChildStdin,
    messages: BufReader<ChildStdout>,
    session: String,
    sent: u64,
    /// What the page logged, and exceptions that it did not catch.
    complaints: Vec<Value>,
}

impl Browser {
    /// Starts the browser; `None` if it is not there.
    ///
    /// # Panics
    /// If `CI` is set and it is not there.
    pub async fn start() -> Option<Self> {
        let root = built::target().join("browser");
        let program = root.join("usr/lib/chromium/chromium-headless-shell");
        if !program.exists() {
            skipped("there is no browser: `make browser` unpacks it from Debian's packages");
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let fonts = folder.path().join("fonts.conf");
        let directory = root.join("usr/share/fonts");
        let text = format!("<fontconfig><dir>{}</dir><dir>/usr/share/fonts</dir></fontconfig>", directory.display());
        std::fs::write(&fonts, text).unwrap();
        // Commands are read from descriptor 3, messages are written to descriptor 4.
        let mut process = Command::new("/bin/sh")
            .args(["-c", r#"exec "$0" "$@" 3<&0 4>&1"#])
            .arg(program)
            .args(["--remote-debugging-pipe", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"])
            .arg(format!("--user-data-dir={}", folder.path().join("profile").display()))
            .arg("about:blank")
            .env("LD_LIBRARY_PATH", libraries(&root))
            .env("FONTCONFIG_FILE", &fonts)
            .env("HOME", folder.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let (commands, messages) = (process.stdin.take().unwrap(), BufReader::new(process.stdout.take().unwrap()));
        let (sent, complaints) = (0, Vec::new());
        let mut browser =
            Self { _process: process, _folder: folder, commands, messages, session: String::new(), sent, complaints };
        let target = browser.call("Target.createTarget", json!({"url": "about:blank"})).await;
        let attach = json!({"targetId": target["targetId"], "flatten": true});
        let session = browser.call("Target.attachToTarget", attach).await;
        browser.session = session["sessionId"].as_str().unwrap().to_owned();
        for domain in ["Page", "Runtime", "Log"] {
            browser.call(&format!("{domain}.enable"), json!({})).await;
        }
        Some(browser)
    }

    /// Opens a page, and returns when it is loaded.
    pub async fn open(&mut self, url: &str) {
        let answer = self.call("Page.navigate", json!({"url": url})).await;
        assert!(answer.get("errorText").is_none(), "{url}: {answer}");
        let loaded = async { while self.message().await["method"] != "Page.loadEventFired" {} };
        tokio::time::timeout(PATIENCE, loaded).await.expect("the page is loaded in time");
    }

    /// The value of an expression, or of the promise that it is.
    ///
    /// # Panics
    /// If it throws.
    pub async fn value(&mut self, expression: &str) -> Value {
        let evaluate = json!({"expression": expression, "awaitPromise": true, "returnByValue": true});
        let answer = self.call("Runtime.evaluate", evaluate).await;
        assert!(answer.get("exceptionDetails").is_none(), "{expression}: {answer}");
        answer["result"]["value"].clone()
    }

    /// Waits until an expression is true, which is evaluated after each change of the page.
    pub async fn wait(&mut self, condition: &str) {
        let promise = format!(
            "new Promise((done) => {{
                const check = () => ({condition}) && (observer.disconnect(), done(true));
                const observer = new MutationObserver(check);
                observer.observe(document, {{subtree: true, childList: true, characterData: true, attributes: true}});
                check();
            }})"
        );
        match tokio::time::timeout(PATIENCE, self.value(&promise)).await {
            Ok(_) => {}
            Err(_) => panic!("never true: {condition}"),
        }
    }

    /// The visible text of the page.
    pub async fn text(&mut self) -> String {
        self.value("document.body.innerText").await.as_str().unwrap().to_owned()
    }

    /// Sets the size of the page in CSS pixels, and its colours: `light` or `dark`.
    pub async fn display(&mut self, width: u32, height: u32, colours: &str) {
        let size = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600});
        self.call("Emulation.setDeviceMetricsOverride", size).await;
        let features = json!({"features": [{"name": "prefers-color-scheme", "value": colours}]});
        self.call("Emulation.setEmulatedMedia", features).await;
    }

    /// Writes an image of the whole page.
    pub async fn screenshot(&mut self, path: &Path) {
        let answer = self.call("Page.captureScreenshot", json!({"captureBeyondViewport": true})).await;
        let bytes = base64::engine::general_purpose::STANDARD.decode(answer["data"].as_str().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    }

    /// What the page complained about so far: exceptions, and what the Content-Security-Policy refused.
    #[must_use]
    pub fn complaints(&self) -> &[Value] {
        &self.complaints
    }

    /// Calls a method, and returns its result.
    ///
    /// # Panics
    /// If the browser refuses.
    pub async fn call(&mut self, method: &str, parameters: Value) -> Value {
        self.sent += 1;
        let mut command = json!({"id": self.sent, "method": method, "params": parameters});
        if !self.session.is_empty() {
            command["sessionId"] = self.session.clone().into();
        }
        let mut bytes = command.to_string().into_bytes();
        bytes.push(0);
        self.commands.write_all(&bytes).await.unwrap();
        let id = self.sent;
        let answer = async {
            loop {
                let message = self.message().await;
                if message["id"] == id {
                    return message;
                }
            }
        };
        let mut answer = tokio::time::timeout(PATIENCE, answer).await.expect("the browser answers in time");
        assert!(answer.get("error").is_none(), "{method}: {answer}");
        answer["result"].take()
    }

    async fn message(&mut self) -> Value {
        let mut bytes = Vec::new();
        self.messages.read_until(0, &mut bytes).await.unwrap();
        assert_eq!(bytes.pop(), Some(0), "the browser goes on");
        let message: Value = serde_json::from_slice(&bytes).unwrap();
        let method = message["method"].as_str().unwrap_or_default();
        if ["Runtime.exceptionThrown", "Log.entryAdded", "Runtime.consoleAPICalled"].contains(&method) {
            self.complaints.push(message["params"].clone());
        }
        message
    }
}

/// The folders of its libraries.
fn libraries(root: &Path) -> String {
    let mut folders: Vec<PathBuf> = std::fs::read_dir(root.join("usr/lib"))
        .unwrap()
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.is_dir() && path.to_string_lossy().contains("-linux-gnu"))
        .collect();
    folders.extend(folders.clone().iter().map(|folder| folder.join("pulseaudio")));
    folders.iter().map(|folder| folder.display().to_string()).collect::<Vec<_>>().join(":")
}
