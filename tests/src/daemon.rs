//! The daemon as a child process. The tests read its log line by line.

use std::net::{Ipv4Addr, TcpListener};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::watch;
use weir_apiserver::ApiServer;

use crate::built;
use crate::client::{Client, PATIENCE};
use crate::pki::{self, Authority, Pair};
use crate::rights::TOKEN;
use crate::until;

/// The settings of a daemon before it starts.
#[derive(Debug)]
pub struct Setup {
    program: PathBuf,
    arguments: Vec<String>,
    environment: Vec<(&'static str, String)>,
    folder: tempfile::TempDir,
    socket: Option<OwnedFd>,
    network: Option<String>,
    open_files: Option<(u32, u32)>,
    uid: Option<u32>,
    directory: Option<PathBuf>,
    has_file_events: bool,
    is_log_read: bool,
}

/// A running daemon. Dropping it kills the process.
#[derive(Debug)]
pub struct Daemon {
    child: Child,
    program: PathBuf,
    arguments: Vec<String>,
    environment: Vec<(&'static str, String)>,
    network: Option<String>,
    folder: tempfile::TempDir,
    log: Arc<Mutex<Vec<Value>>>,
    lines: watch::Receiver<usize>,
    url: String,
    admin: String,
}

impl Setup {
    /// A daemon in front of the API server at `server`, as node `edge-a`, with its own folder and an empty modules
    /// folder. Over HTTPS it trusts [`pki::shared`] and has the credential of its account, as [`crate::edge::api_server`] expects.
    #[must_use]
    pub fn new(server: &str) -> Self {
        let setup = Self::upstream("--server", server);
        if !server.contains("https://") {
            return setup;
        }
        // A folder of its own, as in a pod.
        std::fs::create_dir(setup.path("account")).unwrap();
        let setup = setup.file("--certificate-authority", "account/ca.crt", pki::shared().authority.pem());
        setup.file("--token-file", "account/token", TOKEN)
    }

    /// The same, with the server and the daemon's credential from a kubeconfig file.
    #[must_use]
    pub fn kubeconfig(path: &Path) -> Self {
        Self::upstream("--kubeconfig", &path.display().to_string())
    }

    /// The same, with the text of the file. It is `config` in the daemon's folder.
    #[must_use]
    pub fn kubeconfig_of(text: &str) -> Self {
        Self::upstream("--kubeconfig", "").file("--kubeconfig", "config", text)
    }

    /// A daemon with these flags as a manifest has them. The ports are free ones, the HTTPS port listens on a loopback address of
    /// its own, and no interface is created for `--pod-address`.
    #[must_use]
    pub fn exactly(flags: &[(String, String)]) -> Self {
        let setup = flags.iter().fold(Self::empty(), |setup, (name, value)| setup.flag(name, value));
        setup
            .flag("--port", "0")
            .flag("--admin-port", "0")
            .flag("--pod-interface", "")
            .flag("--secure-bind-address", &own_address())
    }

    fn empty() -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("modules")).unwrap();
        Self::of(built::weir(), folder)
    }

    fn of(program: PathBuf, folder: tempfile::TempDir) -> Self {
        Self {
            program,
            arguments: Vec::new(),
            environment: Vec::new(),
            folder,
            socket: None,
            network: None,
            open_files: None,
            uid: None,
            directory: None,
            has_file_events: true,
            is_log_read: true,
        }
    }

    fn upstream(flag: &str, value: &str) -> Self {
        let setup = Self::empty();
        let modules = setup.modules().display().to_string();
        let cache = built::target().join("test-cache").display().to_string();
        setup
            .flag(flag, value)
            .flag("--node-name", "edge-a")
            .flag("--port", "0")
            .flag("--admin-port", "0")
            .flag("--log-format", "json")
            .flag("--modules-dir", &modules)
            .flag("--cache-dir", &cache)
            // The directory is shared by all daemons, for compiled modules.
            .flag("--cache-size", "0")
            .pods(&Authority::new("unused").server())
    }

    /// Gives filters a pod address that is on no interface. The HTTPS port listens on a loopback address of this
    /// daemon's own and presents this certificate.
    fn pods(self, pair: &Pair) -> Self {
        self.flag("--pod-address", "169.254.20.10")
            .flag("--pod-interface", "")
            .flag("--secure-bind-address", &own_address())
            .file("--tls-cert-file", "tls.crt", &pair.certificate)
            .file("--tls-private-key-file", "tls.key", &pair.key)
    }

    /// Requests the certificate of the HTTPS port from the cluster, and stores it below this folder.
    #[must_use]
    pub fn requesting(self, cache: &Path) -> Self {
        let cache = cache.display().to_string();
        self.without("--tls-cert-file").without("--tls-private-key-file").flag("--cache-dir", &cache)
    }

    /// Adds a flag. It replaces an earlier one of the same name.
    #[must_use]
    pub fn flag(mut self, name: &str, value: &str) -> Self {
        if let Some(at) = self.arguments.iter().position(|argument| argument == name) {
            self.arguments.drain(at..at + 2);
        }
        self.arguments.extend([name.to_owned(), value.to_owned()]);
        self
    }

    /// Adds a flag without a value.
    #[must_use]
    pub fn switch(mut self, name: &str) -> Self {
        self.arguments.push(name.to_owned());
        self
    }

    /// Turns the watch caches off: all reads go to the API server.
    #[must_use]
    pub fn uncached(self) -> Self {
        self.flag("--cache-resources", "")
    }

    /// Keeps the caches on disk, in this directory, with a commit soon after each change.
    #[must_use]
    pub fn on_disk(self, cache: &Path) -> Self {
        self.flag("--cache-dir", &cache.display().to_string())
            .flag("--cache-size", "64Mi")
            .flag("--cache-commit-interval", "20ms")
    }

    /// Removes a flag.
    #[must_use]
    pub fn without(mut self, name: &str) -> Self {
        if let Some(at) = self.arguments.iter().position(|argument| argument == name) {
            self.arguments.drain(at..at + 2);
        }
        self
    }

    /// The path of a file in the daemon's folder.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes a file in the daemon's folder and passes its path as a flag.
    #[must_use]
    pub fn file(self, flag: &str, name: &str, text: &str) -> Self {
        let path = self.path(name);
        std::fs::write(&path, text).unwrap();
        let path = path.display().to_string();
        self.flag(flag, &path)
    }

    /// Serves HTTPS with this certificate on a free port.
    #[must_use]
    pub fn tls(self, pair: &Pair) -> Self {
        self.without("--pod-address")
            .without("--secure-bind-address")
            .flag("--secure-port", "0")
            .file("--tls-cert-file", "tls.crt", &pair.certificate)
            .file("--tls-private-key-file", "tls.key", &pair.key)
    }

    /// Writes the configuration as a manifest file. The argument is the text of `filters.yaml`.
    #[must_use]
    pub fn filters(self, filters: &str) -> Self {
        let path = self.folder.path().join("filters-config.yaml");
        std::fs::write(&path, manifest(filters)).unwrap();
        let path = path.display().to_string();
        self.flag("--config-file", &path)
    }

    /// Installs the module of a bundled filter, by name.
    #[must_use]
    pub fn bundled(self, name: &str) -> Self {
        let bytes = std::fs::read(built::module(name)).unwrap();
        self.module(name, &bytes)
    }

    /// Installs a module, by name without `.wasm`.
    #[must_use]
    pub fn module(self, name: &str, bytes: &[u8]) -> Self {
        std::fs::write(self.modules().join(format!("{name}.wasm")), bytes).unwrap();
        self
    }

    /// The modules folder.
    #[must_use]
    pub fn modules(&self) -> PathBuf {
        self.folder.path().join("modules")
    }

    /// Starts another build of the daemon.
    #[must_use]
    pub fn program(mut self, program: PathBuf) -> Self {
        self.program = program;
        self
    }

    /// Sets an environment variable. The daemon inherits none.
    #[must_use]
    pub fn env(mut self, name: &'static str, value: &str) -> Self {
        self.environment.push((name, value.to_owned()));
        self
    }

    /// Runs the daemon in this network namespace of `ip netns`.
    #[must_use]
    pub fn network(mut self, name: &str) -> Self {
        self.network = Some(name.to_owned());
        self
    }

    /// Starts the daemon with these limits of open files: soft and hard.
    #[must_use]
    pub fn open_files(mut self, soft: u32, hard: u32) -> Self {
        self.open_files = Some((soft, hard));
        self
    }

    /// Runs the daemon as another user, who can read its folder.
    #[must_use]
    pub fn user(mut self, uid: u32) -> Self {
        use std::os::unix::fs::PermissionsExt;
        std::fs::set_permissions(self.folder.path(), PermissionsExt::from_mode(0o755)).unwrap();
        self.uid = Some(uid);
        self
    }

    /// Starts the daemon in this directory.
    #[must_use]
    pub fn directory(mut self, path: &Path) -> Self {
        self.directory = Some(path.to_owned());
        self
    }

    /// Starts the daemon in a user namespace that may have no inotify watches.
    #[must_use]
    pub fn without_file_events(mut self) -> Self {
        self.has_file_events = false;
        self
    }

    /// Nobody reads the daemon's log once it listens, and the pipe stays open.
    #[must_use]
    pub fn unread(mut self) -> Self {
        self.is_log_read = false;
        self
    }

    /// Passes a socket to the daemon, as systemd does.
    #[must_use]
    pub fn socket(mut self, socket: TcpListener) -> Self {
        let port = socket.local_addr().unwrap().port().to_string();
        self.socket = Some(socket.into());
        self.flag("--port", &port)
    }

    /// By default the node credential is for uid 0 only. Tests may run as another user.
    fn own_uid_where_needed(self) -> Self {
        let given = |name: &str| self.arguments.iter().any(|argument| argument == name);
        let uid = own_uid();
        if uid == 0 || !given("--node-kubeconfig") || given("--node-credential-uids") {
            return self;
        }
        self.flag("--node-credential-uids", &uid.to_string())
    }

    /// Starts the daemon. Returns when it listens, which is before it is ready.
    pub async fn start(self) -> Daemon {
        let this = self.own_uid_where_needed();
        let mut command = match this.socket {
            None if this.network.is_some() => {
                let mut command = Command::new("ip");
                command.args(["netns", "exec"]).args(&this.network).arg(&this.program).stdin(Stdio::null());
                command
            }
            None if let Some((soft, hard)) = this.open_files => {
                let mut command = Command::new("/bin/sh");
                let script = format!(r#"ulimit -Sn {soft} && ulimit -Hn {hard} && exec "$0" "$@""#);
                command.args(["-c", &script]).arg(&this.program).stdin(Stdio::null());
                command
            }
            None if !this.has_file_events => {
                let mut command = Command::new("unshare");
                let script = r#"echo 0 >/proc/sys/user/max_inotify_watches && exec "$0" "$@""#;
                command.args(["--user", "--map-root-user", "/bin/sh", "-c", script]).arg(&this.program);
                command.stdin(Stdio::null());
                command
            }
            None => {
                let mut command = Command::new(&this.program);
                command.stdin(Stdio::null());
                command
            }
            Some(socket) => {
                // `exec` keeps the process ID of the shell, which LISTEN_PID must name.
                let script = r#"LISTEN_FDS=1 LISTEN_PID=$$ exec "$0" "$@" 3<&0 </dev/null"#;
                let mut command = Command::new("/bin/sh");
                command.args(["-c", script]).arg(&this.program).stdin(Stdio::from(socket));
                command
            }
        };
        if let Some(uid) = this.uid {
            command.uid(uid).gid(uid);
        }
        if let Some(directory) = &this.directory {
            command.current_dir(directory);
        }
        let mut child = command
            .arg("serve")
            .args(&this.arguments)
            .env_clear()
            .envs(this.environment.clone())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let log = Arc::new(Mutex::new(Vec::new()));
        let (count, lines) = watch::channel(0);
        let mut output = BufReader::new(child.stderr.take().unwrap()).lines();
        let sink = log.clone();
        tokio::spawn(async move {
            while let Ok(Some(line)) = output.next_line().await {
                if std::env::var_os("WEIR_TEST_LOG").is_some() {
                    eprintln!("{line}");
                }
                let is_last = !this.is_log_read && line.contains("proxy listens");
                let value = serde_json::from_str(&line).unwrap_or(Value::String(line));
                sink.lock().unwrap().push(value);
                count.send_modify(|count| *count += 1);
                if is_last {
                    std::future::pending::<()>().await;
                }
            }
        });
        let mut daemon = Daemon {
            child,
            program: this.program,
            arguments: this.arguments,
            environment: this.environment,
            network: this.network,
            folder: this.folder,
            log,
            lines,
            url: String::new(),
            admin: String::new(),
        };
        let address = |line: &Value| line["fields"]["address"].as_str().unwrap().to_owned();
        daemon.admin = format!("http://{}", address(&daemon.logged("admin port listens").await));
        daemon.url = format!("http://{}", address(&daemon.logged("proxy listens").await));
        daemon
    }

    /// Starts the daemon and waits until it is ready.
    pub async fn start_ready(self) -> Daemon {
        let daemon = self.start().await;
        daemon.ready().await;
        daemon
    }
}

/// A loopback address that no other daemon of the tests has: their process and the daemon determine it.
fn own_address() -> String {
    static DAEMONS: AtomicU32 = AtomicU32::new(0);
    let (process, daemon) = (std::process::id(), DAEMONS.fetch_add(1, Ordering::Relaxed));
    Ipv4Addr::from_bits(0x7f00_0000 | ((1 + process % 0x7ffe) << 9) | (daemon % 0x200)).to_string()
}

/// A ConfigMap manifest whose `filters.yaml` is this text.
#[must_use]
pub fn manifest(filters: &str) -> String {
    let indented: String = filters.lines().map(|line| format!("    {line}\n")).collect();
    format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: weir-filters, namespace: kube-system}}\ndata:\n  filters.yaml: |\n{indented}"
    )
}

impl Daemon {
    /// The URL of the proxy.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The URL of the HTTPS port.
    pub async fn secure_url(&self) -> String {
        let line = self.logged("HTTPS port listens").await;
        format!("https://{}", line["fields"]["address"].as_str().unwrap())
    }

    /// A client of the proxy.
    #[must_use]
    pub fn client(&self, component: &str) -> Client {
        Client::new(&self.url, component)
    }

    /// Waits until the stamps of all views are known, and the views are above them: a client that lists from then on and continues
    /// from there gets nothing twice.
    pub async fn settled(&self, server: &ApiServer) {
        let mut views = Vec::new();
        until!({
            let caches = self.admin().json("/caches").await;
            let stores = caches["stores"].as_array().unwrap().clone();
            let of = |store: &Value| {
                let views = store["views"].as_array().unwrap().clone();
                let path = store["path"].as_str().unwrap().to_owned();
                views.into_iter().map(move |view| (path.clone(), view))
            };
            views = stores.iter().flat_map(of).collect();
            views.iter().all(|(_, view)| view["stamp"].is_string())
        });
        server.store().advance();
        let newest = server.store().revision();
        for (path, view) in views {
            let client = self.client(view["components"][0].as_str().unwrap());
            let answer = client.get(&format!("{path}?resourceVersion={newest}")).await;
            assert_eq!(answer.status, 200, "{path}");
        }
    }

    /// A client of the admin port.
    #[must_use]
    pub fn admin(&self) -> Client {
        Client::new(&self.admin, "test")
    }

    /// The URL of the admin port.
    #[must_use]
    pub fn admin_url(&self) -> &str {
        &self.admin
    }

    /// Resident memory in MiB.
    #[must_use]
    pub fn resident(&self) -> f64 {
        self.memory("VmRSS:")
    }

    fn memory(&self, name: &str) -> f64 {
        let text = std::fs::read_to_string(format!("/proc/{}/status", self.id())).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.trim().trim_end_matches(" kB").parse::<f64>().unwrap() / 1024.0
    }

    /// The most resident memory that it has had, in MiB, since [`Daemon::forget_peak`].
    #[must_use]
    pub fn peak(&self) -> f64 {
        self.memory("VmHWM:")
    }

    /// Lets the peak of resident memory begin with what it is now.
    ///
    /// # Panics
    /// If this process may not: only root may do so for a daemon of another user.
    pub fn forget_peak(&self) {
        std::fs::write(format!("/proc/{}/clear_refs", self.id()), "5").unwrap();
    }

    /// The number of its open files.
    #[must_use]
    pub fn descriptors(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.id())).unwrap().count()
    }

    /// Waits until resident memory is within 20 MiB of what it was.
    ///
    /// # Panics
    /// If it stays larger.
    pub async fn settles_at(&self, before: f64) {
        let settled = async {
            while self.resident() > before + 20.0 {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        if tokio::time::timeout(PATIENCE, settled).await.is_err() {
            panic!("{before:.1} MiB before, {:.1} MiB after\n{}", self.resident(), self.log_text());
        }
    }

    /// Sends bytes over a connection of another user's process, and returns the bytes read until it closes. `then`: what a
    /// shell does after it has sent them, with the connection as descriptor 3.
    pub async fn as_nobody(&self, bytes: &str, then: &str) -> String {
        let port = self.url.rsplit(':').next().unwrap();
        let script = format!("exec 3<>/dev/tcp/127.0.0.1/{port} && printf '%s' \"$1\" >&3 && {then}");
        let mut command = Command::new("/bin/bash");
        command.args(["-c", &script, "bash", bytes]).uid(65534);
        String::from_utf8(command.output().await.unwrap().stdout).unwrap()
    }

    /// The process id.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id().expect("the daemon runs")
    }

    /// The modules folder.
    #[must_use]
    pub fn modules(&self) -> PathBuf {
        self.folder.path().join("modules")
    }

    /// The path of a file in the daemon's folder.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Replaces a module as a deployment does: writes a new file, then renames it.
    pub fn put_module(&self, name: &str, bytes: &[u8]) {
        replace(&self.modules().join(format!("{name}.wasm")), bytes);
    }

    /// Replaces `filters.yaml` in the configuration file.
    pub fn put_filters(&self, filters: &str) {
        replace(&self.path("filters-config.yaml"), manifest(filters).as_bytes());
    }

    /// Waits for a log line whose message or fields contain `text`, and returns the first one.
    pub async fn logged(&self, text: &str) -> Value {
        self.logged_after(0, text).await.1
    }

    /// The number of lines in the log.
    #[must_use]
    pub fn log_length(&self) -> usize {
        self.log.lock().unwrap().len()
    }

    /// Waits for the first such line at or after line `from`. Returns it with the number of the next line.
    pub async fn logged_after(&self, from: usize, text: &str) -> (usize, Value) {
        let mut lines = self.lines.clone();
        let found = async {
            loop {
                let hit = {
                    let log = self.log.lock().unwrap();
                    log.iter()
                        .enumerate()
                        .skip(from)
                        .find(|(_, line)| line.to_string().contains(text))
                        .map(|(at, line)| (at + 1, line.clone()))
                };
                if let Some(hit) = hit {
                    return hit;
                }
                if lines.changed().await.is_err() {
                    panic!("the daemon has ended, and its log has no line with {text:?}:\n{}", self.log_text());
                }
            }
        };
        match tokio::time::timeout(PATIENCE, found).await {
            Ok(hit) => hit,
            Err(_) => panic!("the log has no line with {text:?}:\n{}", self.log_text()),
        }
    }

    /// The warnings and errors of the log at and after line `from`, without their times.
    #[must_use]
    pub fn warnings_after(&self, from: usize) -> Vec<String> {
        let log = self.log.lock().unwrap();
        let warnings = log.iter().skip(from).filter(|line| line["level"] == "WARN" || line["level"] == "ERROR");
        warnings.map(|line| line["fields"].to_string()).collect()
    }

    /// The whole log as text.
    #[must_use]
    pub fn log_text(&self) -> String {
        self.log.lock().unwrap().iter().map(|line| format!("{line}\n")).collect()
    }

    /// Waits until `/readyz` reports ready. It polls, as the endpoint has no notification.
    pub async fn ready(&self) {
        let admin = self.admin();
        let ready = async {
            while admin.get("/readyz").await.status != 200 {
                tokio::time::sleep(std::time::Duration::from_millis(2)).await;
            }
        };
        if tokio::time::timeout(PATIENCE, ready).await.is_err() {
            panic!("never ready: {}\n{}", admin.get("/readyz").await.text(), self.log_text());
        }
        // `/readyz` reports ready before the log does. Waiting for this line keeps a test from mistaking it for the
        // line of its own change.
        self.logged("filter set activated").await;
    }

    /// The record of one filter in `/filters`.
    pub async fn filter(&self, name: &str) -> Value {
        let all = self.admin().json("/filters").await;
        all["filters"].as_array().unwrap().iter().find(|filter| filter["name"] == name).cloned().unwrap_or(Value::Null)
    }

    /// The value of the first series that begins with this text; 0 if there is none.
    pub async fn metric(&self, series: &str) -> f64 {
        let text = self.admin().get("/metrics").await.text();
        let line = text.lines().find(|line| !line.starts_with('#') && line.starts_with(series));
        line.and_then(|line| line.rsplit(' ').next()?.parse().ok()).unwrap_or(0.0)
    }

    /// The sum of all series that begin so.
    pub async fn metric_sum(&self, series: &str) -> f64 {
        let text = self.admin().get("/metrics").await.text();
        let lines = text.lines().filter(|line| !line.starts_with('#') && line.starts_with(series));
        lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
    }

    /// Kills the process and waits for its end.
    pub async fn kill(mut self) {
        self.child.kill().await.unwrap();
    }

    /// Kills the process and waits for its end. Returns the same settings and folder for the next one.
    pub async fn killed(mut self) -> Setup {
        self.child.kill().await.unwrap();
        self.into_setup()
    }

    /// Sends SIGTERM and waits for the end. Returns the same settings and folder for the next one.
    ///
    /// # Panics
    /// If the exit code is not 0.
    pub async fn stopped(mut self) -> Setup {
        assert_eq!(self.terminate().await, Some(0), "{}", self.log_text());
        self.into_setup()
    }

    fn into_setup(self) -> Setup {
        let setup = Setup::of(self.program, self.folder);
        Setup { arguments: self.arguments, environment: self.environment, network: self.network, ..setup }
    }

    /// Sends SIGTERM and waits; returns the exit code.
    pub async fn stop(mut self) -> Option<i32> {
        self.terminate().await
    }

    async fn terminate(&mut self) -> Option<i32> {
        let id = self.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &id]).status().await.unwrap().success());
        let status = tokio::time::timeout(PATIENCE, self.child.wait()).await;
        status.expect("the daemon stops in time").unwrap().code()
    }
}

/// The uid of this process.
#[must_use]
pub fn own_uid() -> u32 {
    use std::os::unix::fs::MetadataExt as _;
    std::fs::metadata("/proc/self").unwrap().uid()
}

/// Replaces a file as a deployment does: writes a new file, then renames it.
pub fn replace(path: &Path, bytes: &[u8]) {
    let aside = path.with_extension("aside");
    std::fs::write(&aside, bytes).unwrap();
    std::fs::rename(&aside, path).unwrap();
}
