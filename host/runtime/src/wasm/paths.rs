//! The paths of one instance. Parsed paths are cached. A path lives as long as the guest holds its handle.
//!
//! Bounds: a cache has [`PARSED`] texts of [`PARSED_TEXT`] in total, and is cleared when it is full. The guest may hold
//! [`HANDLES`] handles. An instance that holds [`MANY`] of them after a call is replaced, so that a guest that never drops
//! handles does not fail.

use std::collections::HashMap;

use wasmtime::Result;
use weir_document::Path;

use super::handles::Slots;

/// The maximum number of cached paths.
const PARSED: usize = 4096;
/// The maximum length of all cached texts in bytes.
const PARSED_TEXT: usize = 256 << 10;
/// The approximate memory of a path beside its text, which it has twice: whole and in segments.
const OVERHEAD: usize = 256;
/// The maximum number of handles.
pub(super) const HANDLES: usize = 1 << 16;
/// The number of handles at which an instance is replaced after a call.
pub(super) const MANY: usize = 1 << 14;

/// Parsed paths by text.
#[derive(Debug, Default)]
struct Parsed {
    paths: HashMap<String, Path, foldhash::fast::RandomState>,
    text: usize,
}

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

    /// Adds a path and returns its handle.
    pub(super) fn put(&mut self, path: Path) -> Result<u32> {
        self.handles.put(path)
    }

    /// Returns the path of a handle.
    pub(super) fn get(&self, number: u32) -> Result<&Path> {
        self.handles.get(number)
    }

    /// Frees a handle and returns its path.
    pub(super) fn free(&mut self, number: u32) -> Option<Path> {
        self.handles.free(number)
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
        self.parsed.put(expression, &path);
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
        known.put(key, &path);
        Ok(path)
    }
}

impl Parsed {
    fn get(&self, text: &str) -> Option<&Path> {
        self.paths.get(text)
    }

    fn put(&mut self, text: &str, path: &Path) {
        if self.paths.len() >= PARSED || self.text + text.len() > PARSED_TEXT {
            self.paths.clear();
            self.text = 0;
        }
        self.text += text.len();
        self.paths.insert(text.to_owned(), path.clone());
    }
}

/// Returns the approximate memory of a path in bytes.
pub(super) fn path_weight(path: &Path) -> usize {
    OVERHEAD + 2 * path.text().len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(paths: &mut Paths, expression: &str) -> u32 {
        let path = paths.parse(expression).unwrap();
        paths.put(path).unwrap()
    }

    #[test]
    fn a_filter_with_data_dependent_paths_never_runs_out_of_them() {
        let mut paths = Paths::new();
        let kept = open(&mut paths, "metadata.name");
        for n in 0..2 * HANDLES {
            let number = open(&mut paths, &format!("data.key-{n}"));
            assert_eq!(paths.get(number).unwrap().text(), format!("data.key-{n}"));
            paths.free(number);
            assert!(paths.member(Map::Labels, &format!("key-{n}")).is_ok());
        }
        assert_eq!(paths.get(kept).unwrap().text(), "metadata.name");
        assert!(paths.parsed.paths.len() <= PARSED && paths.labels.paths.len() <= PARSED && !paths.are_many());
    }

    #[test]
    fn the_texts_of_cached_paths_are_bounded() {
        let mut paths = Paths::new();
        for n in 0..PARSED {
            paths.parse(&format!("a{}-{n}", "x".repeat(900))).unwrap();
            assert!(paths.parsed.text <= PARSED_TEXT);
        }
        let texts: usize = paths.parsed.paths.keys().map(String::len).sum();
        assert_eq!(texts, paths.parsed.text);
    }

    #[test]
    fn a_guest_that_drops_no_path_is_replaced_long_before_it_fails() {
        let mut paths = Paths::new();
        for n in 0..MANY {
            assert!(!paths.are_many());
            open(&mut paths, &format!("a{n}"));
        }
        assert!(paths.are_many());
    }
}
