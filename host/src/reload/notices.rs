//! What makes the reloader read its configuration and its modules again.

use weir_upstream::{DirectoryWatcher, WatchedFiles};

use crate::config::ConfigSource;
use crate::modules::Modules;

/// Changes of what a configuration is read from. What else is in the folder of a file, such as a log, does not count: it would
/// end each load before it is done.
pub(super) struct Notices {
    files: WatchedFiles,
    modules: DirectoryWatcher,
}

impl Notices {
    pub(super) fn new(source: &ConfigSource, modules: &Modules) -> Self {
        let files = source.file().into_iter().chain(modules.files()).cloned().collect();
        let directories = modules.directory.iter().cloned().collect();
        Self { files: WatchedFiles::new(files), modules: DirectoryWatcher::new(directories) }
    }

    /// Resolves after a change. Cancel-safe.
    pub(super) async fn changed(&mut self) {
        tokio::select! {
            () = self.files.changed() => {}
            () = self.modules.changed() => {}
        }
    }
}
