//! `weir check`: a configuration and its modules, proven as the daemon would prove them, but for the cluster.

use std::path::PathBuf;
use std::sync::Arc;

use super::loader;
use crate::config::{CheckFlags, Configuration, ConfigurationError};
use crate::lookups::FileView;
use crate::reload::prove;
use weir_runtime::{Endpoint, EngineError};

/// Why a configuration is refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CheckError {
    /// The file can't be read.
    #[error("{}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// It is no configuration.
    #[error(transparent)]
    Configuration(#[from] ConfigurationError),
    /// Filters do not load; a line each.
    #[error("{0}")]
    Filters(String),
    /// No engine.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// No runtime.
    #[error("weir check")]
    System(#[source] std::io::Error),
}

/// Checks a configuration and prints a line for each filter; warnings go to standard error.
///
/// # Errors
/// With everything that would keep a daemon from taking it.
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
    // Stands for `--pod-address`, which is the daemon's and not the configuration's.
    let endpoint = Endpoint { host: "169.254.20.10".to_owned(), port: 10268 };
    let world = FileView::new("weir-check", [], Vec::new(), Some(endpoint))
        .map_err(|error| CheckError::Filters(error.to_string()))?;
    let loader = loader(Arc::new(world))?;
    let mut problems = Vec::new();
    for entry in &configuration.filters {
        match prove(&loader, entry, configuration, flags.modules_dir.as_deref(), &[]).await {
            Ok(filter) => {
                let rules: Vec<_> = filter.rules().iter().map(ToString::to_string).collect();
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
            Err(reason) => problems.push(format!("{name}: filter {}: {reason}", entry.name)),
        }
    }
    if problems.is_empty() { Ok(()) } else { Err(CheckError::Filters(problems.join("\n"))) }
}
