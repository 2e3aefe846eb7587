//! The sources of a project. Two states are the same if no file was added, removed or written.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::cli::project::{FILE, Project};
use weir_process::WatchedFiles;

/// A state of the sources: size and time of each file.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Sources {
    files: BTreeMap<PathBuf, (u64, Option<SystemTime>)>,
    /// The directories whose entries show all changes.
    directories: Vec<PathBuf>,
}

impl Sources {
    /// Reads the state, and reports each change after it.
    pub(super) async fn watch(project: &Project, cases: &Path) -> (WatchedFiles, Self) {
        // Events of a folder cover each file in it.
        let directories = Self::read(project, cases).directories.into_iter();
        let watcher = WatchedFiles::new(directories.map(|directory| (directory, 0)));
        watcher.begin().await;
        (watcher, Self::read(project, cases))
    }

    /// Reads the state of a project in the working directory: what it watches, its cases, entry and `weir.toml`. What is in the
    /// folder of the module, such as `build` or `target`, is made by builds and does not count, and neither do hidden files.
    pub(super) fn read(project: &Project, cases: &Path) -> Self {
        let mut sources = Self { files: BTreeMap::new(), directories: Vec::new() };
        let outputs = project.module.components().next().map(|first| PathBuf::from(first.as_os_str()));
        let outputs = outputs.filter(|first| *first != project.module);
        let own = [Path::new(FILE), Path::new(super::FILTERS), cases];
        for path in project.watch.iter().map(PathBuf::as_path).chain(own) {
            sources.add(path, outputs.as_deref(), &project.module);
        }
        sources.directories.sort();
        sources.directories.dedup();
        sources
    }

    fn add(&mut self, path: &Path, outputs: Option<&Path>, module: &Path) {
        // Without a leading `./`, as the module is written.
        let path: PathBuf = path.components().filter(|part| *part != std::path::Component::CurDir).collect();
        if outputs.is_some_and(|outputs| path == *outputs) || path == *module {
            return;
        }
        let place = if path.as_os_str().is_empty() { Path::new(".") } else { &path };
        let Ok(metadata) = place.metadata() else { return };
        if !metadata.is_dir() {
            let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
            self.directories.push(parent.to_owned());
            self.files.insert(path, (metadata.len(), metadata.modified().ok()));
            return;
        }
        self.directories.push(place.to_owned());
        let Ok(entries) = std::fs::read_dir(place) else { return };
        for entry in entries.filter_map(Result::ok) {
            if !entry.file_name().as_encoded_bytes().starts_with(b".") {
                self.add(&path.join(entry.file_name()), outputs, module);
            }
        }
    }
}
