//! `weir new`: creates the project of a filter. The templates and, for Rust, the sources of the SDK are in this program, so
//! that an author needs nothing but the tools of a language.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use flate2::read::GzDecoder;

use super::CommandError;
use super::wit;
use crate::config::author::{Language, NewFlags};
use weir_spec::FilterName;

mod embedded {
    //! The files of `host/templates` and of the SDK, by path, compressed with gzip. See `host/build.rs`.
    include!(concat!(env!("OUT_DIR"), "/embedded.rs"));
}

/// Where the project of a Rust filter has the SDK.
const SDK: &str = "weir-sdk";

/// Creates the project.
///
/// # Errors
/// The name is not valid for a filter, the folder exists, or a file cannot be written.
pub fn new(flags: &NewFlags) -> Result<(), CommandError> {
    let folder = PathBuf::from(&flags.name);
    let name = folder.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let name: FilterName = name.parse().map_err(|error| CommandError::invalid(&flags.name, format!("{error}")))?;
    if folder.exists() {
        return Err(CommandError::invalid(folder.display(), "it exists already"));
    }
    create(&folder, &name, flags.lang)?;
    print_line!("Created {}. Its README.md says how to build and test it.", folder.display());
    Ok(())
}

fn create(folder: &Path, name: &FilterName, language: Language) -> Result<(), CommandError> {
    let ident = name.as_str().replace('-', "_");
    let place = |text: &str| text.replace("{{name}}", name.as_str()).replace("{{ident}}", &ident);
    for (path, packed) in template(language) {
        let path = folder.join(place(path));
        match String::from_utf8(unpacked(packed)?) {
            Ok(text) => write(&path, place(&text).as_bytes())?,
            Err(other) => write(&path, other.as_bytes())?,
        }
    }
    if language != Language::Rust {
        return wit::write_to(&folder.join("wit"));
    }
    let sdk = folder.join(SDK);
    embedded::SDK.iter().try_for_each(|(path, packed)| write(&sdk.join(path), &unpacked(packed)?))?;
    // Where the repository has a link to the contract.
    wit::write_to(&sdk.join("filters/sdk/wit"))
}

fn template(language: Language) -> &'static [(&'static str, &'static [u8])] {
    match language {
        Language::Rust => embedded::RUST,
        Language::Go => embedded::GO,
        Language::Js => embedded::JS,
        Language::Python => embedded::PYTHON,
        Language::C => embedded::C,
    }
}

fn unpacked(packed: &[u8]) -> Result<Vec<u8>, CommandError> {
    let mut content = Vec::new();
    GzDecoder::new(packed).read_to_end(&mut content).map_err(CommandError::System)?;
    Ok(content)
}

fn write(path: &Path, content: &[u8]) -> Result<(), CommandError> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).map_err(CommandError::of_directory(folder))?;
    }
    std::fs::write(path, content).map_err(CommandError::of_file(path))
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum as _;

    use super::*;
    use crate::cli::project::{FILE, Project};

    #[test]
    fn every_language_gets_a_project_without_placeholders() {
        let folder = tempfile::tempdir().unwrap();
        let name: FilterName = "hide-marked".parse().unwrap();
        for language in Language::value_variants() {
            let project = folder.path().join(format!("{language:?}"));
            create(&project, &name, *language).unwrap();
            let read = Project::read(&project).unwrap();
            assert_eq!(read.name, "hide-marked");
            for watched in &read.watch {
                assert!(project.join(watched).exists(), "{language:?}: {}", watched.display());
            }
            for file in ["README.md", "filters.yaml", "cases/hide.yaml", ".gitignore", FILE] {
                let text = std::fs::read_to_string(project.join(file)).unwrap();
                assert!(!text.contains("{{"), "{language:?}: {file}");
            }
        }
    }
}
