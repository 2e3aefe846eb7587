//! In place of systemd, which is not process 1 here: the command `systemctl` of the documents.
//!
//! It starts what a unit starts, with the environment, the user, the folders and the files that systemd gives it. It holds no sockets:
//! the programs open their ports. A process that ends is not started again.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use crate::NODE;
use crate::machine::{LOGS, run};

/// The name of this program that makes it `systemctl`, before the one of the machine.
const SYSTEMCTL: &str = "/usr/local/bin/systemctl";
const UNITS: &str = "/etc/systemd/system";
/// The process identifiers of the services that run.
const RUNNING: &str = "/run/services";
/// What systemd gives each service.
const SEARCH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// In place of the user that `DynamicUser=` makes.
const USER: &str = "65534";
/// The time of `TimeoutStopSec=`.
const STOP: Duration = Duration::from_secs(20);

/// What a unit file says.
struct Unit {
    name: String,
    text: String,
}

/// Whether this program was started as `systemctl`.
pub(crate) fn is_called() -> bool {
    std::env::args().next().is_some_and(|name| Path::new(&name).file_name().is_some_and(|name| name == "systemctl"))
}

/// Makes this program `systemctl`.
pub(crate) fn install() {
    symlink(std::env::current_exe().unwrap(), SYSTEMCTL).unwrap();
    std::fs::create_dir_all(RUNNING).unwrap();
    std::fs::create_dir_all(UNITS).unwrap();
}

/// Runs the command.
pub(crate) fn control(words: &[&str]) {
    run(SYSTEMCTL, words);
}

/// Ends a service as a power cut does.
pub(crate) fn kill(name: &str) {
    if let Some(pid) = pid(name) {
        run("kill", &["-KILL", &pid]);
    }
}

/// What the command does: it changes services, and only looks whether sockets have a unit.
pub(crate) fn main(words: &[String]) -> ExitCode {
    let words: Vec<_> = words.iter().map(String::as_str).filter(|word| *word != "--now").collect();
    let Some((verb, names)) = words.split_first() else { return ExitCode::FAILURE };
    for name in names {
        let is_socket = name.ends_with(".socket");
        let name = name.trim_end_matches(".service");
        let file = if is_socket { name.to_owned() } else { format!("{name}.service") };
        let Ok(text) = std::fs::read_to_string(Path::new(UNITS).join(&file)) else {
            eprintln!("Unit {file} does not exist");
            return ExitCode::FAILURE;
        };
        let unit = Unit { name: name.to_owned(), text: text.replace("\\\n", " ") };
        match *verb {
            _ if is_socket => {}
            "enable" | "start" => unit.start(),
            "restart" => {
                stop(name);
                unit.start();
            }
            "disable" | "stop" => stop(name),
            verb => {
                eprintln!("Unknown command verb {verb}");
                return ExitCode::FAILURE;
            }
        }
    }
    ExitCode::SUCCESS
}

/// The process of a service that runs.
fn pid(name: &str) -> Option<String> {
    let pid = std::fs::read_to_string(Path::new(RUNNING).join(name)).ok()?;
    Path::new("/proc").join(&pid).exists().then_some(pid)
}

fn stop(name: &str) {
    let Some(pid) = pid(name) else { return };
    run("kill", &["-TERM", &pid]);
    let begun = Instant::now();
    while Path::new("/proc").join(&pid).exists() {
        if begun.elapsed() > STOP {
            run("kill", &["-KILL", &pid]);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

// === impl Unit ===

impl Unit {
    /// The values of a key, one for each of its lines.
    fn values(&self, key: &str) -> impl Iterator<Item = &str> {
        self.text.lines().filter_map(move |line| line.strip_prefix(key)?.strip_prefix('='))
    }

    fn is_set(&self, key: &str) -> bool {
        self.values(key).any(|value| value == "yes")
    }

    fn credentials(&self) -> PathBuf {
        Path::new("/run/credentials").join(format!("{}.service", self.name))
    }

    fn expand(&self, word: &str) -> String {
        word.replace("%d", &self.credentials().display().to_string()).replace("%H", NODE)
    }

    fn environment(&self) -> BTreeMap<String, String> {
        let files = self.values("EnvironmentFile").map(|file| std::fs::read_to_string(file.trim_start_matches('-')));
        let files: String = files.map(Result::unwrap_or_default).collect();
        let lines = self.values("Environment").map(|value| self.expand(value));
        let lines = lines.chain(files.lines().filter(|line| !line.starts_with('#')).map(str::to_owned));
        let pairs = lines.filter_map(|line| {
            let (name, value) = line.split_once('=')?;
            Some((name.to_owned(), value.trim_matches('"').to_owned()))
        });
        [("PATH".to_owned(), SEARCH.to_owned())].into_iter().chain(pairs).collect()
    }

    #[expect(clippy::zombie_processes, reason = "this program is one command, and ends before its services")]
    fn start(&self) {
        if pid(&self.name).is_some() {
            return;
        }
        let environment = self.environment();
        let mut words = Vec::new();
        if self.is_set("DynamicUser") {
            self.prepare_folders();
            let as_user = ["setpriv", "--reuid", USER, "--regid", USER, "--clear-groups", "--no-new-privs"];
            words.extend(as_user.map(str::to_owned));
            let rights = self.values("AmbientCapabilities").map(|names| names.replace("CAP_", "+").to_lowercase());
            let rights: String = rights.map(|name| format!(",{name}")).collect();
            words.extend(["inh-caps", "bounding-set"].map(|set| format!("--{set}=-all{rights}")));
            words.push(format!("--ambient-caps=-all{rights}"));
            words.push("--".to_owned());
        }
        let command = self.values("ExecStart").next().expect("the unit starts something");
        for word in command.split_whitespace() {
            match word.strip_prefix('$') {
                Some(name) => {
                    let value = environment.get(name).map(String::as_str).unwrap_or_default();
                    words.extend(value.split_whitespace().map(str::to_owned));
                }
                None => words.push(self.expand(word)),
            }
        }
        let log = Path::new(LOGS).join(format!("{}.service.log", self.name));
        let log = File::options().create(true).append(true).open(log).unwrap();
        let mut process = Command::new(&words[0]);
        process.args(&words[1..]).env_clear().envs(environment).process_group(0);
        let process = process.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap();
        std::fs::write(Path::new(RUNNING).join(&self.name), process.id().to_string()).unwrap();
    }

    /// The folders and files of a user of its own.
    fn prepare_folders(&self) {
        let credentials = self.credentials();
        std::fs::create_dir_all(&credentials).unwrap();
        for credential in self.values("LoadCredential") {
            let (name, source) = credential.split_once(':').unwrap();
            std::fs::copy(source, credentials.join(name)).unwrap_or_else(|error| panic!("{source}: {error}"));
        }
        let mut owned = vec![credentials];
        for (key, parent) in [("CacheDirectory", "/var/cache"), ("StateDirectory", "/var/lib")] {
            for name in self.values(key) {
                let (link, folder) = (Path::new(parent).join(name), Path::new(parent).join("private").join(name));
                // systemd mounts the folder for the service. Here its user has to get there.
                let private = folder.parent().unwrap();
                std::fs::create_dir_all(private).unwrap();
                std::fs::set_permissions(private, std::fs::Permissions::from_mode(0o755)).unwrap();
                if link.is_dir() && !link.is_symlink() {
                    std::fs::rename(&link, &folder).unwrap();
                }
                std::fs::create_dir_all(&folder).unwrap();
                if !link.is_symlink() {
                    symlink(Path::new("private").join(name), link).unwrap();
                }
                owned.push(folder);
            }
        }
        for folder in owned {
            run("chown", &["-R", &format!("{USER}:{USER}"), &folder.display().to_string()]);
        }
    }
}
