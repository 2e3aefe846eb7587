//! Files use the standard terms of the field, and plain English: none contains a word that `WORDS` lists.

use std::path::{Path, PathBuf};

use crate::root;

/// Words and phrases that have a plainer term: a program reports or logs, a credential is delegated, "a client that", "again".
const WORDS: [&str; 23] = [
    "anew",
    "dice",
    "foreseen",
    "foresight",
    "hither",
    "lend",
    "lending",
    "lends",
    "lent",
    "loan",
    "loans",
    "mends_by_itself",
    "narrator",
    "of who",
    "tell",
    "telling",
    "tells",
    "thus",
    "told",
    "who wants",
    "whoever",
    "whom",
    "way_through",
];

/// Files and folders that are not checked.
const FREE: [&str; 5] = [
    // Log lines of earlier versions.
    "CHANGELOG.md",
    // Names of other projects' crates.
    "Cargo.lock",
    // Not ours.
    "LICENSE",
    // Inputs that a fuzzer has made.
    "tests/fuzz/corpus",
    // The words themselves.
    "tests/structure/words.rs",
];

#[test]
fn no_file_contains_a_word_that_has_a_plainer_term() {
    let mut files = Vec::new();
    find(&root(), &FREE, &mut files);
    assert!(files.len() > 500, "the tree is read: {} files", files.len());
    let mut found = Vec::new();
    for file in &files {
        // Other files are images, modules and archives.
        let Ok(text) = std::fs::read_to_string(file) else { continue };
        for (at, line) in text.lines().enumerate() {
            let words = words_in(line);
            if !words.is_empty() {
                found.push(format!("{}:{}: {}", file.display(), at + 1, words.join(", ")));
            }
        }
    }
    assert!(found.is_empty(), "use the standard term or a plain one:\n{}", found.join("\n"));
}

#[test]
fn each_exception_is_there() {
    for free in FREE {
        assert!(root().join(free).exists(), "FREE: there is no {free}");
    }
}

#[test]
fn words_are_found_whole_in_any_case_and_in_names() {
    assert_eq!(words_in("Whoever waits is told; nobody tells."), ["tells", "told", "whoever"]);
    assert_eq!(words_in("fn pods_are_told() {} // Of who, of whose"), ["of who", "told"]);
    assert_eq!(words_in("silent intelligence, Bertoldo, taller, a thusly tellable loaner"), [""; 0]);
}

/// The files of the tree, except these and the results of builds.
fn find(folder: &Path, free: &[&str], files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        let (path, name) = (entry.path(), entry.file_name().into_string().unwrap());
        // A link leads to a file of the tree, which is checked itself.
        if name.starts_with('.') || path.is_symlink() || free.iter().any(|free| path == root().join(free)) {
            continue;
        }
        if !path.is_dir() {
            files.push(path);
        } else if !name.starts_with("target") && name != "node_modules" {
            find(&path, free, files);
        }
    }
}

/// The words of the list in a line.
fn words_in(line: &str) -> Vec<&'static str> {
    let line = line.to_ascii_lowercase();
    let is_in_line = |word: &&str| {
        line.match_indices(*word).any(|(at, _)| {
            let before = line[..at].chars().next_back();
            let after = line[at + word.len()..].chars().next();
            ![before, after].into_iter().flatten().any(char::is_alphanumeric)
        })
    };
    WORDS.into_iter().filter(is_in_line).collect()
}
