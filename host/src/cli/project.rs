//! `weir.toml`: what `weir test` and `weir dev` know of the project of a filter.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::CommandError;
use weir_kube::utf8;
use weir_process::files::read_now;

/// The name of the file.
pub(super) const FILE: &str = "weir.toml";
/// Where Cargo builds unless [`TARGET_DIR`] is set.
const TARGET: &str = "target";
/// The variable that names another folder.
const TARGET_DIR: &str = "CARGO_TARGET_DIR";
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
        let bytes = read_now(&path, MAX).map_err(|error| match error.kind() {
            ErrorKind::NotFound => {
                let reason = "there is none in this folder: create a project with `weir new`";
                CommandError::invalid(path.display(), reason)
            }
            _ => CommandError::of_file(&path)(error),
        })?;
        let text = utf8(&bytes).map_err(|reason| CommandError::invalid(path.display(), reason))?;
        let project: Self = toml::from_str(text).map_err(|error| {
            let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
            let line = before.matches('\n').count() + 1;
            CommandError::invalid(path.display(), format!("line {line}: {}", error.message()))
        })?;
        let target = std::env::var_os(TARGET_DIR).filter(|folder| !folder.is_empty()).map(PathBuf::from);
        Ok(Self { module: project.module_in(target.as_deref()), ..project })
    }

    /// Returns the module, which Cargo puts into another folder than `target` if its variable names one.
    fn module_in(&self, target: Option<&Path>) -> PathBuf {
        match (self.module.strip_prefix(TARGET), target) {
            (Ok(rest), Some(target)) if self.build.contains("cargo") => target.join(rest),
            _ => self.module.clone(),
        }
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
    fn the_module_of_cargo_is_in_its_target_folder() {
        let project = |build: &str, module: &str| Project {
            name: "a".to_owned(),
            build: build.to_owned(),
            watch: Vec::new(),
            module: module.into(),
        };
        let elsewhere = Some(Path::new("/cache/target"));
        let rust = project("cargo build --release", "target/wasm32-wasip2/release/a.wasm");
        assert_eq!(rust.module_in(elsewhere), Path::new("/cache/target/wasm32-wasip2/release/a.wasm"));
        assert_eq!(rust.module_in(None), rust.module);
        for other in [project("make", "target/a.wasm"), project("cargo build", "build/a.wasm")] {
            assert_eq!(other.module_in(elsewhere), other.module);
        }
    }

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
