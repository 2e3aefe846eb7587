//! A machine whose wall clock jumps and whose disk is full, slow or broken, for one daemon: `machine.c`, preloaded into its process.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::daemon::Setup;
use crate::plane::skipped;

/// The faults of a daemon's machine. They can change while it runs, and they stay when it is restarted.
#[derive(Debug)]
pub struct Machine {
    state: File,
    folder: tempfile::TempDir,
    library: PathBuf,
}

impl Machine {
    /// A machine without faults. Returns `None` and reports the skipped test if this one has no C compiler.
    ///
    /// # Panics
    /// If the library cannot be compiled, or `CI` is set and there is no C compiler.
    #[must_use]
    pub fn new() -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let library = folder.path().join("machine.so");
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/src/machine.c");
        let mut compile = Command::new("cc");
        compile.args(["-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o"]).arg(&library).arg(source).arg("-ldl");
        let status = match compile.status() {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                skipped("there is no C compiler for the daemon's machine");
                return None;
            }
            other => other.unwrap(),
        };
        assert!(status.success(), "machine.c compiles");
        let path = folder.path().join("state");
        let state = File::create(&path).unwrap();
        let machine = Self { state, folder, library };
        machine.put_clock_ahead(0);
        machine.put_disk_full(false);
        machine.put_sync(Duration::ZERO);
        machine.put_sync_fails(false);
        Some(machine)
    }

    /// Runs the daemon on this machine, whose disk is this directory.
    #[must_use]
    pub fn run(&self, setup: Setup, disk: &Path) -> Setup {
        let text = |path: &Path| path.display().to_string();
        setup
            .env("LD_PRELOAD", &text(&self.library))
            .env("WEIR_TEST_MACHINE", &text(&self.folder.path().join("state")))
            .env("WEIR_TEST_DISK", &text(&disk.canonicalize().unwrap()))
    }

    /// Sets how many seconds the wall clock is ahead.
    pub fn put_clock_ahead(&self, seconds: i64) {
        self.state.write_all_at(&seconds.to_ne_bytes(), 0).unwrap();
    }

    /// Sets how long an fsync takes, also one that has begun.
    pub fn put_sync(&self, delay: Duration) {
        let milliseconds = i64::try_from(delay.as_millis()).unwrap();
        self.state.write_all_at(&milliseconds.to_ne_bytes(), 16).unwrap();
    }

    /// Sets whether the disk is full.
    pub fn put_disk_full(&self, full: bool) {
        self.state.write_all_at(&i64::from(full).to_ne_bytes(), 8).unwrap();
    }

    /// Sets whether each write fails with EIO. The disk is not full then.
    pub fn put_writes_fail(&self, fail: bool) {
        self.state.write_all_at(&(2 * i64::from(fail)).to_ne_bytes(), 8).unwrap();
    }

    /// Sets whether each fsync fails with EIO.
    pub fn put_sync_fails(&self, fail: bool) {
        self.state.write_all_at(&i64::from(fail).to_ne_bytes(), 24).unwrap();
    }
}
