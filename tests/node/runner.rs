//! Runs named checks one after another and reports them as cargo reports tests. A check fails if it panics. Later
//! checks need its effects and are then skipped.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// The hang guard of every wait. Only a hang reaches it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(90);
/// The interval between two polls of a program that sends no notification.
const LOOK: Duration = Duration::from_millis(100);

pub(crate) struct Runner {
    begun: Instant,
    logs: PathBuf,
    passed: usize,
    failed: Vec<String>,
    notes: Vec<String>,
}

impl Runner {
    pub(crate) fn new(logs: PathBuf) -> Self {
        Self { begun: Instant::now(), logs, passed: 0, failed: Vec::new(), notes: Vec::new() }
    }

    /// Runs a check, unless an earlier one has failed.
    pub(crate) fn check<T>(&mut self, name: &str, check: impl FnOnce() -> T) -> Option<T> {
        if !self.failed.is_empty() {
            println!("check {name} ... not run");
            return None;
        }
        let begun = Instant::now();
        let result = catch_unwind(AssertUnwindSafe(check));
        let took = begun.elapsed().as_secs_f64();
        match result {
            Ok(value) => {
                println!("check {name} ... ok ({took:.1} s)");
                self.passed += 1;
                Some(value)
            }
            Err(panic) => {
                println!("check {name} ... FAILED ({took:.1} s)");
                let text = panic.downcast_ref::<String>().map(String::as_str);
                let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or_default();
                self.failed.push(format!("{name}: {text}"));
                self.print_logs();
                hold();
                None
            }
        }
    }

    /// Says what the checks do not show, at once and beside the result.
    pub(crate) fn note(&mut self, what: &str) {
        println!("NOTE: {what}");
        self.notes.push(what.to_owned());
    }

    /// Counts a failure that its check has reported already.
    pub(crate) fn fail(&mut self, what: &str) {
        println!("{what}");
        self.failed.push(what.to_owned());
        hold();
    }

    /// Prints the end of every log, including those of containers.
    fn print_logs(&self) {
        let mut files: Vec<_> = ["/var/log/pods"].iter().flat_map(|folder| find(folder.as_ref())).collect();
        files.extend(find(&self.logs));
        for file in files {
            let text = String::from_utf8_lossy(&std::fs::read(&file).unwrap_or_default()).into_owned();
            let lines: Vec<_> = text.lines().collect();
            println!("---- {} (the last of {} lines)", file.display(), lines.len());
            for line in &lines[lines.len().saturating_sub(25)..] {
                println!("{}", line.chars().take(600).collect::<String>());
            }
        }
    }

    pub(crate) fn finish(self) -> ExitCode {
        let word = if self.failed.is_empty() { "ok" } else { "FAILED" };
        let (passed, failed) = (self.passed, self.failed.len());
        // The logs are long. The end of the output should show the failures.
        for failure in &self.failed {
            println!("FAILED: {failure}");
        }
        for note in &self.notes {
            println!("NOTE: {note}");
        }
        let seconds = self.begun.elapsed().as_secs_f64();
        println!("\nnode result: {word}. {passed} passed; {failed} failed; finished in {seconds:.1}s");
        if self.failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}

/// Keeps everything running for inspection if `WEIR_NODE_HOLD` is set.
fn hold() {
    if std::env::var_os("WEIR_NODE_HOLD").is_some() {
        println!("held: nsenter --all --target $(pgrep -f 'weir-node --inside' | tail -1); Ctrl-C ends it");
        loop {
            std::thread::park();
        }
    }
}

/// Waits until `look` accepts the state of an external program. `look` returns its result, or what is missing.
pub(crate) fn until<T>(what: &str, mut look: impl FnMut() -> Result<T, String>) -> T {
    let begun = Instant::now();
    loop {
        match look() {
            Ok(found) => return found,
            Err(missing) if begun.elapsed() > PATIENCE => panic!("timed out waiting until {what}: {missing}"),
            Err(_) => std::thread::sleep(LOOK),
        }
    }
}

fn find(folder: &std::path::Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(find(&path));
        } else if path.extension().is_some_and(|extension| extension == "log") {
            found.push(path);
        }
    }
    found.sort();
    found
}
