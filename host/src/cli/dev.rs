//! `weir dev`: builds a filter after each change of its sources, runs its cases, and says how the outcomes of given objects
//! differ from those of the build before. A build is good if its cases pass. The last good one is in force in a daemon.

mod daemon;
mod outcomes;
mod sources;

use std::path::Path;
use std::time::{Duration, Instant};

use bytes::Bytes;
use serde_json::{Value, json};

use self::daemon::DevDaemon;
pub use self::daemon::end_with_parent;
use self::outcomes::{Outcomes, outcomes};
use self::sources::Sources;
use super::project::Project;
use super::test::print;
use super::workbench::{Workbench, block_on, entry, module, objects};
use super::{CommandError, run_cases};
use crate::config::as_manifest;
use crate::config::author::{DevFlags, EntryFlags};
use crate::logging::{Repeated, show_again};
use weir_spec::FilterEntry;

/// The entry of the filter in a project.
const FILTERS: &str = "filters.yaml";

/// What the builds of one session share.
struct Session<'a> {
    flags: &'a DevFlags,
    workbench: Workbench,
    project: Project,
    objects: Vec<Value>,
    /// The outcomes of the last good build.
    before: Option<Outcomes>,
    daemon: Option<DevDaemon>,
}

/// Runs until it is interrupted, or with `--once` until the first build is tested. Returns whether the last build was good.
///
/// # Errors
/// There is no project in the working directory, or the objects cannot be read.
pub fn dev(flags: &DevFlags) -> Result<bool, CommandError> {
    let workbench = Workbench::of(&flags.modules, Repeated::LeftOut)?;
    let project = Project::read(Path::new(""))?;
    let mut all = Vec::new();
    for path in &flags.object {
        all.extend(objects(path)?);
    }
    let session = Session { flags, workbench, project, objects: all, before: None, daemon: None };
    block_on(session.run())
}

impl Session<'_> {
    async fn run(mut self) -> Result<bool, CommandError> {
        loop {
            let project = Project::read(Path::new("")).map(|project| self.project = project);
            // Before the build: what is saved during the build is built next.
            let (watcher, built) = Sources::watch(&self.project, &self.flags.cases).await;
            let result = match project {
                Ok(()) => self.build().await,
                Err(error) => Err(error),
            };
            let good = match result {
                Ok(good) => good,
                Err(error) => {
                    say!("{}", weir_upstream::error_report(&error));
                    false
                }
            };
            if self.flags.once {
                return Ok(good);
            }
            say!("{}\n", if good { "waiting for changes" } else { "the last good build stays; waiting for changes" });
            // Read only after a report of the watcher: before it, a file may be half written.
            loop {
                tokio::select! {
                    () = watcher.changed() => {}
                    () = ended(self.daemon.as_mut()) => return Err(CommandError::invalid("weir serve", "it ended, see above")),
                }
                if Sources::read(&self.project, &self.flags.cases) != built {
                    break;
                }
            }
        }
    }

    /// Builds and tests the module, and puts it in force if it is good.
    async fn build(&mut self) -> Result<bool, CommandError> {
        let began = Instant::now();
        show_again();
        say!("$ {}", self.project.build);
        let status = tokio::process::Command::new("sh").args(["-c", &self.project.build]).status().await;
        let status = status.map_err(CommandError::System)?;
        if !status.success() {
            say!("the build failed: {status}");
            return Ok(false);
        }
        let built = began.elapsed();
        let bytes = module(&self.project.module)?;
        let results = run_cases(&self.workbench, &self.project.module, &bytes, &self.flags.cases).await?;
        print(&results, false);
        if results.iter().any(|result| !result.failures.is_empty()) {
            return Ok(false);
        }
        let entry = self.entry()?;
        self.compare(&entry, &bytes).await?;
        self.serve(&entry, &bytes).await?;
        say!("built in {}, the rest took {}", seconds(built), seconds(began.elapsed() - built));
        Ok(true)
    }

    /// The entry of the project's `filters.yaml`, or one without settings.
    fn entry(&self) -> Result<FilterEntry, CommandError> {
        let listed = Path::new(FILTERS);
        let filters = listed.exists().then(|| listed.to_owned());
        let filter = filters.is_some().then(|| self.project.name.clone());
        entry(&EntryFlags { settings: "{}".to_owned(), filters, filter }, &self.project.module)
    }

    /// Says how outcomes differ from those of the last good build.
    async fn compare(&mut self, entry: &FilterEntry, module: &Bytes) -> Result<(), CommandError> {
        if self.objects.is_empty() {
            return Ok(());
        }
        let now = outcomes(&self.workbench, entry, &self.project.module, module, &self.objects).await?;
        say!("{}", now.since(self.before.as_ref()).trim_end());
        self.before = Some(now);
        Ok(())
    }

    async fn serve(&mut self, entry: &FilterEntry, module: &Bytes) -> Result<(), CommandError> {
        if self.flags.serve.is_empty() {
            return Ok(());
        }
        let daemon = match &mut self.daemon {
            Some(daemon) => daemon,
            none => none.insert(DevDaemon::new()?),
        };
        let line = daemon.put(&module_file(entry)?, module, &manifest(entry)?, &self.flags.serve).await?;
        say!("{line}");
        Ok(())
    }
}

/// Returns the file name of the module: the daemon gets it as a file.
fn module_file(entry: &FilterEntry) -> Result<String, CommandError> {
    let file = entry.module.file().ok_or_else(|| {
        let reason = format!("its module is {}: `weir dev` runs what it builds, name a file", entry.module);
        CommandError::invalid(FILTERS, reason)
    });
    Ok(file?.to_owned())
}

/// Returns the project's `filters.yaml` as a ConfigMap, or one with the entry.
fn manifest(entry: &FilterEntry) -> Result<String, CommandError> {
    let path = Path::new(FILTERS);
    let text = match path.exists() {
        true => std::fs::read_to_string(path).map_err(CommandError::of_file(path))?,
        false => json!({"filters": [{"name": entry.name.as_str(), "module": module_file(entry)?}]}).to_string(),
    };
    Ok(as_manifest(&text).into_owned())
}

/// Resolves when the daemon has ended.
async fn ended(daemon: Option<&mut DevDaemon>) {
    match daemon {
        Some(daemon) => daemon.ended().await,
        None => std::future::pending().await,
    }
}

fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}
