//! The daemon of `weir dev`: `weir serve` as a child process, with a configuration of one filter. It ends with its parent.

use std::ffi::OsString;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, ChildStderr, Command};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::cli::CommandError;

/// How long a build may take to be in force.
const IN_FORCE: Duration = Duration::from_secs(60);

/// A daemon with the last good build.
pub(super) struct DevDaemon {
    folder: tempfile::TempDir,
    running: Option<Running>,
    /// Whether the build that was put last is in force.
    in_force: bool,
}

struct Running {
    /// Killed with this value. It holds the child's standard input, which ends however this process does.
    _child: Child,
    result: watch::Receiver<LoadResult>,
    /// Shows the log at all times: a full pipe would block the daemon.
    _log: JoinSet<()>,
}

/// How the daemon has loaded a configuration, according to its log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LoadResult {
    Nothing,
    Activated,
    Refused,
}

impl DevDaemon {
    pub(super) fn new() -> Result<Self, CommandError> {
        Ok(Self { folder: tempfile::tempdir().map_err(CommandError::System)?, running: None, in_force: false })
    }

    /// Puts a build in force. The daemon starts with the first one, so that it never serves anything unfiltered. Returns its
    /// result.
    pub(super) async fn put(
        &mut self,
        file: &str,
        module: &Bytes,
        manifest: &str,
        flags: &[OsString],
    ) -> Result<String, CommandError> {
        let began = Instant::now();
        if let Some(running) = &mut self.running {
            running.result.mark_unchanged();
        }
        let modules = self.folder.path().join("modules");
        std::fs::create_dir_all(&modules).map_err(CommandError::of_file(&modules))?;
        let entry = self.folder.path().join("filters.json");
        let changed = self.replace(&modules.join(file), module)? | self.replace(&entry, manifest.as_bytes())?;
        if !changed && self.in_force {
            return Ok("in force already: the build is the same".to_owned());
        }
        let running = match &mut self.running {
            Some(running) => running,
            none => none.insert(start(&modules, &entry, flags)?),
        };
        let result = tokio::time::timeout(IN_FORCE, running.result.changed()).await;
        self.in_force = matches!(result, Ok(Ok(()))) && *running.result.borrow() == LoadResult::Activated;
        Ok(match result {
            Ok(Ok(())) if self.in_force => format!("in force after {:.1} s", began.elapsed().as_secs_f64()),
            Ok(Ok(())) => "the daemon refused it, see above".to_owned(),
            Ok(Err(_)) => "the daemon ended, see above".to_owned(),
            Err(_) => format!("not in force after {IN_FORCE:?}"),
        })
    }

    /// Resolves when the daemon has ended.
    pub(super) async fn ended(&mut self) {
        match &mut self.running {
            Some(running) => while running.result.changed().await.is_ok() {},
            None => std::future::pending().await,
        }
    }

    /// Writes a file in one step. Returns whether it has changed: an unchanged one is not a reload.
    fn replace(&self, place: &Path, content: &[u8]) -> Result<bool, CommandError> {
        if std::fs::read(place).is_ok_and(|written| written == content) {
            return Ok(false);
        }
        let part = self.folder.path().join("part");
        std::fs::write(&part, content).map_err(CommandError::of_file(&part))?;
        std::fs::rename(&part, place).map_err(CommandError::of_file(place))?;
        Ok(true)
    }
}

/// Ends this process like SIGTERM once its standard input ends.
pub fn end_with_parent() {
    std::thread::spawn(|| {
        let _ = std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink());
        let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::TERM);
    });
}

fn start(modules: &Path, entry: &Path, flags: &[OsString]) -> Result<Running, CommandError> {
    let program = std::env::current_exe().map_err(CommandError::System)?;
    let mut command = Command::new(program);
    command.arg("dev-daemon").args(flags).arg("--modules-dir").arg(modules).arg("--config-file").arg(entry);
    if !flags.iter().any(|flag| flag.to_string_lossy().starts_with("--node-name")) {
        command.args(["--node-name", "weir-dev"]);
    }
    command.stdin(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    let mut child = command.spawn().map_err(CommandError::System)?;
    let errors = child.stderr.take().ok_or_else(|| CommandError::System(std::io::Error::other("no standard error")))?;
    let (sender, result) = watch::channel(LoadResult::Nothing);
    let mut log = JoinSet::new();
    log.spawn(show(errors, sender));
    Ok(Running { _child: child, result, _log: log })
}

/// Shows the log until it ends.
async fn show(log: ChildStderr, result: watch::Sender<LoadResult>) {
    let mut lines = BufReader::new(log).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        eprintln!("{line}");
        if line.contains("filter set activated") {
            result.send_replace(LoadResult::Activated);
        } else if line.contains("configuration refused") {
            result.send_replace(LoadResult::Refused);
        }
    }
}
