//! The process that runs kube-apiserver's code, and its batches.

use std::io::{BufReader, Read as _, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use super::judge::Kind;

/// The process. It ends when its input does.
pub(super) struct Original {
    process: Child,
    questions: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Original {
    pub(super) fn start(program: &Path) -> Self {
        let mut process =
            Command::new(program).stdin(Stdio::piped()).stdout(Stdio::piped()).env("GOMAXPROCS", "1").spawn().unwrap();
        let (questions, answers) = (process.stdin.take(), process.stdout.take().unwrap());
        Self { process, questions, answers: BufReader::with_capacity(1 << 20, answers) }
    }

    /// Sends a batch. The process reads all of it before it answers.
    pub(super) fn ask<'a>(&mut self, questions: impl Iterator<Item = (Kind, &'a [u8])>) {
        let mut batch = vec![0; 4];
        for (kind, question) in questions {
            batch.extend(length(question.len() + 1));
            batch.push(kind.letter());
            batch.extend(question);
        }
        let bytes = length(batch.len() - 4);
        batch[..4].copy_from_slice(&bytes);
        self.questions.as_mut().unwrap().write_all(&batch).unwrap();
    }

    /// Receives the answers to a batch.
    pub(super) fn answers(&mut self) -> Vec<Vec<u8>> {
        let mut batch = vec![0; self.length()];
        self.answers.read_exact(&mut batch).unwrap();
        let mut rest = batch.as_slice();
        let mut answers = Vec::new();
        while let Some((length, after)) = rest.split_first_chunk() {
            let (answer, after) = after.split_at(usize::try_from(u32::from_le_bytes(*length)).unwrap());
            answers.push(answer.to_vec());
            rest = after;
        }
        answers
    }

    fn length(&mut self) -> usize {
        let mut length = [0; 4];
        self.answers.read_exact(&mut length).unwrap();
        usize::try_from(u32::from_le_bytes(length)).unwrap()
    }
}

impl Drop for Original {
    fn drop(&mut self) {
        drop(self.questions.take());
        let _ = self.process.wait();
    }
}

fn length(bytes: usize) -> [u8; 4] {
    u32::try_from(bytes).unwrap().to_le_bytes()
}
