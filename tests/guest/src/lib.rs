//! A filter module whose settings are a program: host calls, branches on what they returned, edits, verdicts; and on request
//! what no filter may do. The property tests generate programs for it and compare calls with replays.
//!
//! Everything that a program reads is mixed into one number, on which branches, values and the verdict depend: two runs
//! agree only if every host call returned the same.

mod program;

pub use program::{Edit, Op, Program, Read, Select};

#[cfg(target_family = "wasm")]
mod run;
