//! Files use the standard terms of the field, and plain English: none contains a word that `WORDS` lists.

use std::path::{Path, PathBuf};

use crate::root;

/// Words and phrases that have a plainer term: a program reports or logs, a credential is delegated, "a client that", "again".
const WORDS: [&str; 19] = [
    "anew",
    "foreseen",
    "foresight",
    "hither",
    "lend",
    "lending",
    "lends",
    "lent",
    "loan",
    "loans",
    "of who",
    "tell",
    "telling",
    "tells",
    "thus",
    "told",
    "who wants",
    "whoever",
    "whom",
];

/// Files and folders that are not checked.
const FREE: [&str; 10] = [
    // Log lines of earlier versions.
    "CHANGELOG.md",
    // Names of other projects' crates.
    "Cargo.lock",
    // Not ours.
    "LICENSE",
    // Inputs that a fuzzer has made.
    "tests/fuzz/corpus",
    // Not cleaned yet.
    "deploy/helm",
    "host",
    "tests/controlplane",
    "tests/deploy",
    "tests/real/converge.rs",
    // The words themselves.
    "tests/structure/words.rs",
];

/// Output of the daemon and names of its code that other files quote, each with the text of `host/` that it depends on.
const QUOTES: [(&str, &str); 7] = [
    ("the API server told the time", "the API server told the time"),
    ("written anew", "watch cache on disk is written anew"),
    ("whoever issued it", "whoever issued it has to renew it"),
    ("\"Told\"", "struct Told("),
    ("`lent`", "lent: Mutex<"),
    ("lent_credential.rs", "mod lent_credential;"),
    ("Caller::of_lent(", "fn of_lent("),
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
fn each_exception_is_still_needed() {
    for free in FREE {
        assert!(root().join(free).exists(), "FREE: there is no {free}");
    }
    let mut files = Vec::new();
    find(&root().join("host"), &[], &mut files);
    let host: Vec<_> = files.iter().filter_map(|file| std::fs::read_to_string(file).ok()).collect();
    for (quote, source) in QUOTES {
        assert!(host.iter().any(|text| text.contains(source)), "QUOTES: remove {quote:?}, host/ has no {source:?}");
    }
}

#[test]
fn words_are_found_whole_in_any_case_and_in_names() {
    assert_eq!(words_in("Whoever waits is told; nobody tells."), ["tells", "told", "whoever"]);
    assert_eq!(words_in("fn pods_are_told() {} // Of who, of whose"), ["of who", "told"]);
    assert_eq!(words_in("silent intelligence, Bertoldo, taller, a thusly tellable loaner"), [""; 0]);
    assert_eq!(words_in("weir.logged(\"the API server told the time\")"), [""; 0]);
}

/// The files of the tree, except these and the results of builds.
fn find(folder: &Path, free: &[&str], files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        let (path, name) = (entry.path(), entry.file_name().into_string().unwrap());
        if name.starts_with('.') || free.iter().any(|free| path == root().join(free)) {
            continue;
        }
        if !path.is_dir() {
            files.push(path);
        } else if !name.starts_with("target") && name != "node_modules" {
            find(&path, free, files);
        }
    }
}

/// The words of the list in a line, without those in quotes.
fn words_in(line: &str) -> Vec<&'static str> {
    let mut line = line.to_owned();
    for (quote, _) in QUOTES {
        line = line.replace(quote, "");
    }
    line.make_ascii_lowercase();
    let is_in_line = |word: &&str| {
        line.match_indices(*word).any(|(at, _)| {
            let before = line[..at].chars().next_back();
            let after = line[at + word.len()..].chars().next();
            ![before, after].into_iter().flatten().any(char::is_alphanumeric)
        })
    };
    WORDS.into_iter().filter(is_in_line).collect()
}
