//! `weir.toml`: what `weir test` and `weir dev` know of the project of a filter.

use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::CommandError;
use weir_process::files::read_now;

/// The name of the file.
pub(super) const FILE: &str = "weir.toml";
/// The largest file in bytes.
const MAX: usize = 64 << 10;

/// The project of one filter.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Project {
    /// The name of the filter.
    pub(super) name: String,
    /// The shell command that builds the module.
    pub(super) build: String,
    /// Files and folders whose changes make the module out of date.
    pub(super) watch: Vec<PathBuf>,
    /// The module that the build makes.
    pub(super) module: PathBuf,
}

impl Project {
    /// Reads the project in a folder.
    pub(super) fn read(folder: &Path) -> Result<Self, CommandError> {
        let path = folder.join(FILE);
        let bytes = read_now(&path, MAX).map_err(CommandError::of_file(&path))?;
        let text =
            String::from_utf8(bytes).map_err(|_| CommandError::invalid(path.display(), "it is not UTF-8 text"))?;
        toml::from_str(&text).map_err(|error| {
            let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
            let line = before.matches('\n').count() + 1;
            CommandError::invalid(path.display(), format!("line {line}: {}", error.message()))
        })
    }

    /// Returns the module of a command: the given one, or that of the project in the working directory.
    pub(super) fn module_or(given: Option<&Path>) -> Result<PathBuf, CommandError> {
        if let Some(path) = given {
            return Ok(path.to_owned());
        }
        let here = Path::new("");
        if !Path::new(FILE).exists() {
            return Err(CommandError::invalid(
                FILE,
                "there is none in this folder: give a module, or create a project with `weir new`",
            ));
        }
        Ok(here.join(Self::read(here)?.module))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_project_is_read_and_mistakes_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let write = |text: &str| std::fs::write(folder.path().join(FILE), text).unwrap();
        let all = "name = 'a'\nbuild = 'make'\nwatch = ['src', 'Makefile']\nmodule = 'build/a.wasm'\n";
        write(all);
        let project = Project::read(folder.path()).unwrap();
        assert_eq!((project.build.as_str(), project.module.as_path()), ("make", Path::new("build/a.wasm")));
        for (text, part) in [
            (all.replace("build = 'make'\n", ""), "missing field `build`"),
            (all.replace("watch", "watches"), "unknown field `watches`"),
            (all.replace("['src', 'Makefile']", "'src'"), "line 3: invalid type"),
            ("name = ".to_owned(), "line 1: "),
        ] {
            write(&text);
            let error = Project::read(folder.path()).unwrap_err().to_string();
            assert!(error.contains(part) && error.contains("weir.toml"), "{error}");
        }
    }
}
