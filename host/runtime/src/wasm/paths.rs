//! The paths of one instance. Parsed paths are cached. A path lives as long as the guest holds its handle.
//!
//! Bounds: the cache has [`PARSED`] texts, and is cleared when it is full. The guest may hold [`HANDLES`] handles. An
//! instance that holds [`MANY`] of them after a call is replaced, so that a guest that never drops handles does not
//! fail.

use std::collections::HashMap;

use wasmtime::Result;
use weir_document::Path;

use super::handles::Slots;

/// The maximum number of cached paths.
const PARSED: usize = 4096;
/// The maximum number of handles.
pub(super) const HANDLES: usize = 1 << 16;
/// The number of handles at which an instance is replaced after a call.
pub(super) const MANY: usize = 1 << 14;

type Parsed = HashMap<String, Path, foldhash::fast::RandomState>;

/// The paths of one instance.
#[derive(Debug)]
pub(super) struct Paths {
    handles: Slots<Path>,
    parsed: Parsed,
    labels: Parsed,
    annotations: Parsed,
}

/// The maps in metadata that filters read by key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Map {
    Labels,
    Annotations,
}

impl Paths {
    pub(super) fn new() -> Self {
        Self {
            handles: Slots::new(HANDLES, "paths"),
            parsed: Parsed::default(),
            labels: Parsed::default(),
            annotations: Parsed::default(),
        }
    }

    /// Returns a handle for an expression, or the reason why it is not a valid path.
    pub(super) fn open(&mut self, expression: &str) -> Result<Result<u32, String>> {
        match self.parse(expression) {
            Ok(path) => self.handles.put(path).map(Ok),
            Err(reason) => Ok(Err(reason)),
        }
    }

    /// Returns the path of a handle.
    pub(super) fn get(&self, number: u32) -> Result<&Path> {
        self.handles.get(number)
    }

    /// Frees a handle.
    pub(super) fn free(&mut self, number: u32) {
        self.handles.free(number);
    }

    /// Returns whether the guest holds so many handles that the instance must be replaced.
    pub(super) fn are_many(&self) -> bool {
        self.handles.held() >= MANY
    }

    /// Parses an expression.
    pub(super) fn parse(&mut self, expression: &str) -> Result<Path, String> {
        if let Some(path) = self.parsed.get(expression) {
            return Ok(path.clone());
        }
        let path = Path::parse(expression).map_err(|error| error.to_string())?;
        remember(&mut self.parsed, expression, &path);
        Ok(path)
    }

    /// Returns the path of one label or annotation.
    pub(super) fn member(&mut self, map: Map, key: &str) -> Result<Path> {
        let (known, name) = match map {
            Map::Labels => (&mut self.labels, "labels"),
            Map::Annotations => (&mut self.annotations, "annotations"),
        };
        if let Some(path) = known.get(key) {
            return Ok(path.clone());
        }
        let quoted = key.replace('\\', "\\\\").replace('\'', "\\'");
        let path = Path::parse(&format!("metadata.{name}['{quoted}']"));
        let path = path.map_err(|error| wasmtime::Error::msg(error.to_string()))?;
        remember(known, key, &path);
        Ok(path)
    }
}

fn remember(paths: &mut Parsed, text: &str, path: &Path) {
    if paths.len() >= PARSED {
        paths.clear();
    }
    paths.insert(text.to_owned(), path.clone());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_with_data_dependent_paths_never_runs_out_of_them() {
        let mut paths = Paths::new();
        let kept = paths.open("metadata.name").unwrap().unwrap();
        for n in 0..2 * HANDLES {
            let number = paths.open(&format!("data.key-{n}")).unwrap().unwrap();
            assert_eq!(paths.get(number).unwrap().text(), format!("data.key-{n}"));
            paths.free(number);
            assert!(paths.member(Map::Labels, &format!("key-{n}")).is_ok());
        }
        assert_eq!(paths.get(kept).unwrap().text(), "metadata.name");
        assert!(paths.parsed.len() <= PARSED && paths.labels.len() <= PARSED && !paths.are_many());
    }

    #[test]
    fn a_guest_that_drops_no_path_is_replaced_long_before_it_fails() {
        let mut paths = Paths::new();
        for n in 0..MANY {
            assert!(!paths.are_many());
            paths.open(&format!("a{n}")).unwrap().unwrap();
        }
        assert!(paths.are_many());
    }
}
