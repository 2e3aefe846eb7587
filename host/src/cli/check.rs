//! `weir check`: validates a configuration and its modules as the daemon does, without a cluster.

use std::path::PathBuf;
use std::sync::Arc;

use super::loader;
use crate::config::{CheckFlags, Configuration, ConfigurationError};
use crate::lookups::FileView;
use crate::reload::prepare;
use weir_runtime::{Endpoint, EngineError};

/// A reason to refuse a configuration.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CheckError {
    /// The file cannot be read.
    #[error("{}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// The configuration is invalid.
    #[error(transparent)]
    Configuration(#[from] ConfigurationError),
    /// Filters cannot be loaded: one line for each.
    #[error("{0}")]
    Filters(String),
    /// This machine cannot run compiled modules.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The tokio runtime cannot be created.
    #[error("cannot start the tokio runtime")]
    System(#[source] std::io::Error),
}

/// Validates a configuration and prints a line for each filter. Warnings go to standard error.
///
/// # Errors
/// All reasons for which a daemon would refuse the configuration.
pub fn check(flags: &CheckFlags) -> Result<(), CheckError> {
    let file = |source| CheckError::File { path: flags.config.clone(), source };
    let text = std::fs::read_to_string(&flags.config).map_err(file)?;
    let name = flags.config.display().to_string();
    let configuration = Configuration::from_manifest(&name, &text)?;
    for warning in &configuration.warnings {
        eprintln!("{name}: warning: {warning}");
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(CheckError::System)?;
    runtime.block_on(load_all(&name, &configuration, flags))
}

async fn load_all(name: &str, configuration: &Configuration, flags: &CheckFlags) -> Result<(), CheckError> {
    // A stand-in for `--pod-address`, which the daemon knows and this command does not.
    let endpoint = Endpoint { host: "169.254.20.10".to_owned(), port: 10268 };
    let view = FileView::new("weir-check", [], Vec::new(), Some(endpoint))
        .map_err(|error| CheckError::Filters(error.to_string()))?;
    let loader = loader(Arc::new(view))?;
    let mut errors = Vec::new();
    for entry in &configuration.filters {
        match prepare(&loader, entry, configuration, flags.modules_dir.as_deref(), &[]).await {
            Ok(filter) => {
                let rules: Vec<_> = filter.rules().iter().map(ToString::to_string).collect();
                for warning in filter.plan_warnings() {
                    eprintln!("{name}: warning: {warning}");
                }
                let about = filter.description();
                println!(
                    "{}: {} {} {} matches {}",
                    entry.name,
                    about.name,
                    about.version,
                    filter.digest(),
                    rules.join(" ")
                );
            }
            Err(reason) => errors.push(format!("{name}: filter {}: {reason}", entry.name)),
        }
    }
    if errors.is_empty() { Ok(()) } else { Err(CheckError::Filters(errors.join("\n"))) }
}
