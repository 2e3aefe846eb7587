//! Commands for filter authors and operators. None of them needs a cluster, and all run modules as the daemon does.

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
