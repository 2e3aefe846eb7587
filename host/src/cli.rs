//! Commands for filter authors and operators. Those that run modules do it as the daemon does.

/// Writes a line to standard output. The reader may stop early (`weir test | head`), on which `println!` would panic.
macro_rules! print_line {
    ($($text:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stdout().lock(), $($text)*);
    }};
}

mod admin_port;
mod bench;
mod check;
mod cluster;
mod dev;
mod diff;
mod error;
mod explain;
mod inspect;
mod junit;
mod new;
mod output;
mod project;
mod record;
mod registry;
mod run;
mod site;
mod status;
mod table;
mod test;
mod wit;
mod workbench;

pub use check::check;
pub use dev::{dev, end_with_parent};
pub use diff::diff;
pub use error::CommandError;
pub use explain::explain;
pub use inspect::inspect;
pub use new::new;
pub use record::record;
pub use registry::{load, pull, push, save};
pub use run::{RunSummary, run};
#[cfg(test)]
pub(crate) use status::first_line;
pub use status::status;
pub use test::{CaseResult, run_cases, test};
pub use wit::wit;
pub use workbench::Workbench;
