//! Programs outside of pods. Each is a child process with its own log, killed on drop.

use std::fs::File;
use std::process::{Child, Command};

use crate::machine::Machine;

pub(crate) struct Part {
    name: &'static str,
    child: Child,
}

impl Part {
    pub(crate) fn start(machine: &Machine, name: &'static str, program: &str, words: &[String]) -> Self {
        let log = machine.logs().join(format!("{name}.log"));
        let file = File::options().create(true).append(true).open(&log).unwrap();
        let mut command = Command::new(program);
        command.args(words).stdin(std::process::Stdio::null()).stdout(file.try_clone().unwrap()).stderr(file);
        let child = command.spawn().unwrap_or_else(|error| panic!("{name}: {error}"));
        Self { name, child }
    }

    /// Panics if it has ended.
    pub(crate) fn assert_alive(&mut self) {
        if let Some(status) = self.child.try_wait().unwrap() {
            panic!("{} has ended: {status}", self.name);
        }
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
