//! The documents of `deploy/`, followed word by word: a shell runs the `sh` blocks below a heading, and prints what the block after
//! each says.

use std::path::Path;
use std::process::Command;

use weir_tests::built;

use crate::cluster::deploy;
use crate::machine::run;
use crate::runner::{PATIENCE, until};

/// Where the commands run.
pub(crate) const FOLDER: &str = "/mnt/checkout";

/// A document.
pub(crate) struct Guide {
    text: String,
    /// What a reader replaces by names of their own.
    replaced: Vec<(&'static str, String)>,
    kubeconfig: String,
}

/// Commands, and what they print. `…` stands for anything, and alone on a line for any lines.
struct Block {
    commands: String,
    output: Option<String>,
}

impl Guide {
    /// A file of `deploy/`, for an administrator with this kubeconfig, in a folder that has what a checkout has of `deploy/`.
    pub(crate) fn of(file: &str, kubeconfig: &Path) -> Self {
        if !Path::new(FOLDER).exists() {
            std::fs::create_dir(FOLDER).unwrap();
            run("cp", &["-r", &deploy("").display().to_string(), &format!("{FOLDER}/deploy")]);
        }
        let text = std::fs::read_to_string(deploy(file)).unwrap();
        Self { text, replaced: Vec::new(), kubeconfig: kubeconfig.display().to_string() }
    }

    pub(crate) fn replacing(mut self, words: &'static str, by: &str) -> Self {
        assert!(self.text.contains(words), "the document says {words:?}");
        self.replaced.push((words, by.to_owned()));
        self
    }

    /// Runs all blocks of a section. Commands that have a block of output are repeated until they print it: they may change nothing
    /// that a second run would change again.
    pub(crate) fn follow(&self, heading: &str) {
        let blocks = self.blocks(heading);
        assert!(!blocks.is_empty(), "the section {heading:?} has commands");
        for block in blocks {
            let Some(expected) = &block.output else {
                self.run(&block.commands).unwrap_or_else(|error| panic!("{heading}: {error}"));
                continue;
            };
            until(heading, || {
                let printed = self.run(&block.commands)?;
                match is_printed(expected, &printed) {
                    true => Ok(()),
                    false => Err(format!("{}\nprinted\n{printed}\ninstead of\n{expected}", block.commands)),
                }
            });
        }
    }

    /// Runs commands in a shell, which ends at a deadline: a command that hangs would hold up the whole test.
    fn run(&self, commands: &str) -> Result<String, String> {
        let path =
            format!("{}:/usr/local/bin:{}", built::target().join("deploy").display(), std::env::var("PATH").unwrap());
        let mut shell = Command::new("timeout");
        let deadline = PATIENCE.as_secs().to_string();
        shell.args(["--kill-after=5", deadline.as_str(), "sh", "-eu", "-c", commands]);
        shell.current_dir(FOLDER).env("PATH", path).env("HOME", "/mnt");
        for name in ["HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME"] {
            shell.env(name, "/mnt/helm");
        }
        let output = shell.env("KUBECONFIG", &self.kubeconfig).output().map_err(|error| error.to_string())?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        match output.status.success() {
            true => Ok(text(&output.stdout)),
            false => Err(format!("{commands}\n{}: {}", output.status, text(&output.stderr))),
        }
    }

    /// The blocks between a heading and the next one.
    fn blocks(&self, heading: &str) -> Vec<Block> {
        let is_heading = |line: &str| line.starts_with('#');
        let mut lines = self.text.lines();
        let found = lines.any(|line| is_heading(line) && line.trim_start_matches('#').trim() == heading);
        assert!(found, "there is a section {heading:?}");
        let mut blocks = Vec::<Block>::new();
        while let Some(line) = lines.next() {
            if is_heading(line) {
                break;
            }
            let indent = line.len() - line.trim_start().len();
            let Some(language) = line.trim_start().strip_prefix("```") else { continue };
            let block = lines.by_ref().take_while(|line| line.trim_start() != "```");
            let mut text: String = block.map(|line| format!("{}\n", line.get(indent..).unwrap_or_default())).collect();
            for (words, by) in &self.replaced {
                text = text.replace(words, by);
            }
            match (language, blocks.last_mut()) {
                ("sh", _) => blocks.push(Block { commands: text, output: None }),
                ("", Some(block)) => block.output = Some(text),
                _ => {}
            }
        }
        blocks
    }
}

/// Whether a text is what a document says.
fn is_printed(expected: &str, printed: &str) -> bool {
    let mut printed = printed.lines();
    let mut expected = expected.lines().peekable();
    while let Some(line) = expected.next() {
        if line != "…" {
            if !printed.next().is_some_and(|found| is_line(line, found)) {
                return false;
            }
            continue;
        }
        match expected.next() {
            None => return true,
            Some(next) => {
                if !printed.any(|found| is_line(next, found)) {
                    return false;
                }
            }
        }
    }
    printed.next().is_none()
}

/// Whether a line has the words between `…` in their order, and begins and ends with what is not `…`. Columns may be wider.
fn is_line(expected: &str, line: &str) -> bool {
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let (expected, line) = (words(expected), words(line));
    let mut parts = expected.split('…').map(str::trim);
    let Some(mut rest) = parts.next().and_then(|first| line.strip_prefix(first)) else { return false };
    let mut is_open = false;
    for part in parts {
        is_open = part.is_empty();
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    is_open || rest.is_empty()
}
