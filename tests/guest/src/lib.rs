//! A filter module whose settings are a program: host calls, branches on their results, edits, verdicts, and on
//! request what filters must not do. The property tests generate programs for it and compare calls with replays.
//!
//! A program mixes everything that it reads into one number. Branches, values and the verdict depend on that number,
//! so two runs agree only if every host call returned the same.

mod program;

pub use program::{Edit, Op, Program, Read, Select};

#[cfg(target_family = "wasm")]
mod run;
