//! Pulls in a child process: a registry that answers with gigabytes, or in a way that the client does not survive, costs the
//! child and not the daemon.

use std::io;
use std::time::Duration;

use weir_process::{Child, ChildFailure, ChildLimits};

use crate::job::PullJob;
use crate::layout::MAX_LAYOUT;
use crate::pull::{PullEvent, pull};

/// What a child may use.
const LIMITS: ChildLimits =
    ChildLimits { memory: 256 << 20, addresses: 2 << 30, processor: Duration::from_secs(120), file: Some(MAX_LAYOUT) };

/// The longest pull: the largest module takes as long at 150 kbit/s. A registry that sends a byte now and then would hold up each
/// later change of the configuration.
const LONGEST: Duration = Duration::from_secs(3600);
/// The command of the child.
const COMMAND: &str = "pull-child";

impl PullJob {
    /// Runs the job in a child process. Cancel-safe: dropping the future ends it.
    ///
    /// # Errors
    /// A message for the operator: what each address says, or how the child ended.
    pub async fn run(&self, mut event: impl FnMut(PullEvent)) -> Result<(), String> {
        let job = serde_json::to_vec(self).map_err(|error| error.to_string())?;
        let child = Child { arguments: &[COMMAND.as_ref()], has_environment: true };
        let line = |text: &str| {
            if let Ok(reported) = serde_json::from_str(text) {
                event(reported);
            }
        };
        let pulled = tokio::time::timeout(LONGEST, child.run(&job, line)).await;
        let pulled = pulled.map_err(|_| format!("it has not arrived within {LONGEST:?}"))?;
        pulled.map_err(|failure| match failure {
            ChildFailure::Process(error) => format!("the pulling process could not be run: {error}"),
            ChildFailure::Refused(reason) => reason,
            ChildFailure::Memory => {
                format!("the registry's answers take more than {} MiB of memory", LIMITS.memory >> 20)
            }
            ChildFailure::Stopped(reason) => format!("pulling it was stopped: {reason}"),
        })
    }
}

/// Runs in the child: reads a job from standard input, and writes the layout of the artifact. Each line of standard output
/// is a [`PullEvent`].
///
/// # Errors
/// A message for the operator.
pub fn pull_child() -> Result<(), PullChildError> {
    LIMITS.apply()?;
    let job: PullJob = serde_json::from_reader(io::stdin().lock()).map_err(io::Error::from)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut shown = None;
    let layout = runtime.block_on(pull(&job, |event| {
        if let PullEvent::Progress(got, all) = event {
            let percent = got.saturating_mul(100).checked_div(all);
            if std::mem::replace(&mut shown, percent) == percent {
                return;
            }
        }
        println!("{}", serde_json::json!(event));
    }));
    layout.map_err(PullChildError::Refused)?.save(&job.destination)?;
    Ok(())
}

/// Why the child fails. It writes it to its standard error.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PullChildError {
    /// The registry has no such module.
    #[error("{0}")]
    Refused(String),
    /// Standard input, the limits or the file failed.
    #[error("the pulling process failed: {0}")]
    System(#[from] io::Error),
}
