//! Commands for filter authors and operators. None of them needs a cluster, and all run modules as the daemon does.

/// Writes a line to standard output. Whoever reads it may have read enough (`weir test | head`), which `println!` would make a panic.
macro_rules! say {
    ($($text:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stdout().lock(), $($text)*);
    }};
}

mod bench;
mod check;
mod dev;
mod error;
mod inspect;
mod junit;
mod new;
mod project;
mod record;
mod registry;
mod run;
mod test;
mod wit;
mod workbench;

pub use check::check;
pub use dev::dev;
pub use error::CommandError;
pub use inspect::inspect;
pub use new::new;
pub use record::record;
pub use registry::{load, pull, push, save};
pub use run::{RunSummary, run};
pub use test::{CaseResult, run_cases, test};
pub use wit::wit;
pub use workbench::Workbench;
