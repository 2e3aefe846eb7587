//! The names of filters and of module files in the configuration.

use std::fmt;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;

/// The name of a filter: lower-case letters, digits and dashes. It is valid as a ConfigMap key, a metric label and a
/// log field.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FilterName(Arc<str>);

/// The file name of a module. It is never a path, so that a configuration can only name files of the modules directory
/// and keys of the ConfigMap's `binaryData`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ModuleFile(Box<str>);

/// The reason why a name is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NameError {
    /// The text is not a filter name.
    #[error("{0:?} is not a filter name: 1 to 63 lower-case letters, digits and inner dashes")]
    Filter(String),
    /// The text is not a module file name.
    #[error("{0:?} is not a module file name: 1 to 253 letters, digits, `-`, `_` and `.`, no path, ending in .wasm")]
    Module(String),
}

impl FilterName {
    /// Returns the name as a shared string, for labels and failures.
    #[must_use]
    pub fn shared(&self) -> Arc<str> {
        self.0.clone()
    }

    /// Returns a name for the module in a file that no configuration names: its stem, with dashes for what a name may not have.
    /// `hide-1.2.wasm` is `hide-1-2`. None if nothing of the stem is left.
    #[must_use]
    pub fn of_file(file: &Path) -> Option<Self> {
        let name = file.file_name()?.to_string_lossy().to_ascii_lowercase();
        let stem = name.strip_suffix(".gz").unwrap_or(&name);
        let stem = stem.strip_suffix(".wasm").unwrap_or(stem);
        let dashed: String = stem.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).take(63).collect();
        dashed.trim_matches('-').parse().ok()
    }

    /// Returns the name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl ModuleFile {
    /// Returns the default file of a filter.
    #[must_use]
    pub(crate) fn of_filter(name: &FilterName) -> Self {
        Self(format!("{name}.wasm").into())
    }

    /// Returns the name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for FilterName {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        let ends = |byte: Option<&u8>| byte.is_some_and(|byte| inner(*byte));
        let bytes = text.as_bytes();
        let valid = bytes.len() <= 63
            && ends(bytes.first())
            && ends(bytes.last())
            && bytes.iter().all(|byte| inner(*byte) || *byte == b'-');
        if valid { Ok(Self(text.into())) } else { Err(NameError::Filter(text.chars().take(100).collect())) }
    }
}

impl FromStr for ModuleFile {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        // The characters of ConfigMap keys.
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        let valid = text.len() <= 253
            && text.strip_suffix(".wasm").is_some_and(|stem| !stem.is_empty() && !stem.starts_with('.'))
            && text.bytes().all(allowed);
        if valid { Ok(Self(text.into())) } else { Err(NameError::Module(text.chars().take(300).collect())) }
    }
}

impl fmt::Display for FilterName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for ModuleFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filter_names_are_valid_keys_and_labels() {
        for good in ["a", "servicetopology", "my-filter-2"] {
            assert_eq!(good.parse::<FilterName>().unwrap().as_str(), good);
        }
        for bad in ["", "-a", "a-", "A", "a_b", "a.b", "a b", &"a".repeat(64)] {
            assert!(bad.parse::<FilterName>().unwrap_err().to_string().contains("is not a filter name"), "{bad}");
        }
    }

    #[test]
    fn every_module_file_gives_a_name() {
        let name = |file: &str| FilterName::of_file(Path::new(file)).map(|name| name.as_str().to_owned());
        for (file, wanted) in [
            ("build/hide.wasm", "hide"),
            ("hide-1.2.wasm", "hide-1-2"),
            ("hide_marked.wasm", "hide-marked"),
            ("Hide.wasm", "hide"),
            ("hide.wasm.gz", "hide"),
            ("_hide_.wasm", "hide"),
            ("a b.bin", "a-b-bin"),
        ] {
            assert_eq!(name(file).as_deref(), Some(wanted), "{file}");
        }
        assert_eq!(name(&format!("{}.wasm", "a".repeat(200))), Some("a".repeat(63)));
        assert_eq!(name("---.wasm"), None);
    }

    #[test]
    fn a_module_file_name_is_never_a_path() {
        for good in ["a.wasm", "My_filter-1.2.wasm"] {
            assert_eq!(good.parse::<ModuleFile>().unwrap().as_str(), good);
        }
        for bad in
            ["", ".wasm", "..wasm", "../a.wasm", "/a.wasm", "a/b.wasm", "a\\b.wasm", "a.wat", "a b.wasm", "a\0.wasm"]
        {
            assert!(bad.parse::<ModuleFile>().unwrap_err().to_string().contains("is not a module file name"), "{bad}");
        }
    }
}
