//! `weir wit`: the contract between Weir and filters.

use std::io::Write as _;
use std::path::Path;

use super::CommandError;
use crate::config::author::WitFlags;

/// The files of the contract by name.
pub(super) const FILES: &[(&str, &str)] = &[
    ("world.wit", include_str!("../../../wit/world.wit")),
    ("module.wit", include_str!("../../../wit/module.wit")),
    ("objects.wit", include_str!("../../../wit/objects.wit")),
    ("cluster.wit", include_str!("../../../wit/cluster.wit")),
    ("node.wit", include_str!("../../../wit/node.wit")),
    ("log.wit", include_str!("../../../wit/log.wit")),
];

/// The page on the contract for authors.
const README: &str = include_str!("../../../wit/README.md");

/// Prints the contract as one file, or writes its files into a directory.
///
/// # Errors
/// A file or standard output cannot be written.
pub fn wit(flags: &WitFlags) -> Result<(), CommandError> {
    match &flags.out {
        Some(directory) => write_to(directory),
        None => std::io::stdout().write_all(whole().as_bytes()).map_err(CommandError::System),
    }
}

/// Writes the files into a directory, which it creates.
pub(super) fn write_to(directory: &Path) -> Result<(), CommandError> {
    std::fs::create_dir_all(directory).map_err(CommandError::of_directory(directory))?;
    for (name, text) in FILES.iter().chain(&[("README.md", README)]) {
        let path = directory.join(name);
        std::fs::write(&path, text).map_err(CommandError::of_file(&path))?;
    }
    Ok(())
}

/// The contract as one file: the package is named once.
fn whole() -> String {
    let package = FILES.first().and_then(|(_, text)| text.lines().find(|line| line.starts_with("package ")));
    let parts = FILES.iter().map(|(_, text)| {
        text.lines().filter(|line| !line.starts_with("package ")).fold(String::new(), |all, line| all + line + "\n")
    });
    parts.fold(format!("{}\n", package.unwrap_or_default()), |all, part| all + "\n" + part.trim() + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_are_all_of_the_contract_and_one_file_names_the_package_once() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../wit");
        let mut found: Vec<_> = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| name.ends_with(".wit"))
            .collect();
        found.sort();
        let mut embedded: Vec<_> = FILES.iter().map(|(name, _)| *name).collect();
        embedded.sort_unstable();
        assert_eq!(found, embedded);
        let whole = whole();
        assert_eq!(whole.lines().filter(|line| line.starts_with("package ")).count(), 1);
        assert!(whole.starts_with("package weir:filter@"));
        for interface in ["objects", "cluster", "node", "log", "module"] {
            assert!(whole.contains(&format!("\ninterface {interface} {{")), "{interface}");
        }
    }
}
