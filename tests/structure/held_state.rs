//! What outlives a request: the table of SECURITY.md names each collection that a client could fill.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::source;

/// Where collections could be keyed by what clients choose.
const FOLDERS: [&str; 6] =
    ["src/proxy", "src/view", "src/ledger", "../host/store/src/disk", "src/ledger.rs", "src/client_table.rs"];
const FILES: [&str; 2] = ["src/connections.rs", "store/src/resource_stores.rs"];
/// The types that hold many things by a key.
const COLLECTIONS: [&str; 7] = ["HashMap<", "HashSet<", "BTreeMap<", "BTreeSet<", "Cache<", "DashMap<", "IndexMap<"];
/// Collections whose keys no client chooses, or that live no longer than a request or a connection: file, name and reason.
const OTHERS: &[(&str, &str, &str)] = &[
    ("src/proxy/server/certificate_info.rs", "names", "the certificate names them"),
    ("src/view/registry.rs", "named", "the configuration names them"),
    ("src/view/refresh.rs", "failed", "objects of a store, which is charged"),
    ("src/view/watchers.rs", "watches", "open watches, which are charged"),
    ("src/view/metrics.rs", "sampled", "resources that stores hold"),
    ("src/proxy/resume/chain_starts.rs", "after", "chains and the resources that they match; 4,096"),
    ("src/proxy/response/relay.rs", "peers", "the configuration names them"),
    ("src/proxy/response/cached/list_memory.rs", "starts", "segments of one of 64 lists in a buffer of their own"),
    ("src/proxy/response/answer_memory/recorder.rs", "copies", "the same as that of answer_memory.rs"),
    ("store/src/disk/value_index.rs", "classes", "five classes, for a moment"),
    ("store/src/disk/value_index.rs", "owners", "for a moment"),
    ("store/src/disk/cache.rs", "stores", "open stores by number"),
    ("store/src/disk/recovery.rs", "rows", "the rows of the file that is opened"),
];

/// The name that a line declares as a collection: of a field, or of a struct around one.
fn declared(line: &str) -> Option<&str> {
    let line = line.trim();
    let is_collection = COLLECTIONS.iter().any(|collection| line.contains(collection));
    if !is_collection || line.starts_with("//") || line.contains("fn ") || line.contains("let ") || line.contains("=>")
    {
        return None;
    }
    let bare = line.trim_start_matches("pub(crate) ").trim_start_matches("pub(super) ");
    let bare = bare.strip_prefix("pub(in crate::proxy) ").unwrap_or(bare);
    let bare = bare.strip_prefix("pub ").unwrap_or(bare);
    if let Some(rest) = bare.strip_prefix("struct ") {
        return rest.split(['(', '<']).next().filter(|_| rest.contains('('));
    }
    let (name, of) = bare.split_once(": ")?;
    let is_field =
        name.chars().all(|c| c.is_ascii_lowercase() || c == '_') && of.ends_with(',') && !of.starts_with('&');
    (is_field && !of.contains("::new") && !of.contains("builder")).then_some(name)
}

fn found(host: &Path) -> BTreeSet<(String, String)> {
    let mut paths: Vec<PathBuf> = FILES.iter().map(|file| host.join(file)).collect();
    for folder in FOLDERS {
        let folder = host.join(folder.trim_start_matches("../host/"));
        if folder.is_dir() {
            source::files(&folder, &mut paths);
        } else {
            paths.push(folder);
        }
    }
    let is_test = |path: &Path| path.components().any(|part| part.as_os_str().to_string_lossy().starts_with("tests"));
    let mut found = BTreeSet::new();
    for path in paths {
        let relative = path.strip_prefix(host).expect("it is below").to_path_buf();
        if is_test(&relative) {
            continue;
        }
        let text = std::fs::read_to_string(&path).expect("a source is read");
        let code = text.split("#[cfg(test)]").next().unwrap_or_default();
        for name in code.lines().filter_map(declared) {
            found.insert((relative.display().to_string(), name.to_owned()));
        }
    }
    found
}

/// The collections of the table, each with its test.
fn documented(root: &Path) -> Vec<((String, String), String)> {
    let text = std::fs::read_to_string(root.join("SECURITY.md")).expect("the document is read");
    let section = text.split("## What outlives a request").nth(1).expect("the section is there");
    let section = section.split("\n## ").next().unwrap_or_default();
    let rows = section.lines().filter(|line| line.starts_with('|')).skip(2);
    rows.map(|row| {
        let cells: Vec<_> = row.trim_matches('|').split(" | ").collect();
        assert_eq!(cells.len(), 7, "seven columns: {row}");
        assert!(cells.iter().all(|cell| !cell.trim().is_empty()), "no empty cell: {row}");
        let code: Vec<_> = cells[1].split('`').skip(1).step_by(2).collect();
        let test = cells[6].trim().trim_matches('`').to_owned();
        ((code[0].trim_start_matches("../").to_owned(), code[1].to_owned()), test)
    })
    .collect()
}

#[test]
fn each_collection_that_a_client_could_fill_is_in_the_table_of_security_md() {
    let root = crate::root();
    let (found, documented) = (found(&root.join("host")), documented(&root));
    assert!(found.len() > 30, "the sources are read: {found:?}");
    for (file, name) in &found {
        let known = documented.iter().any(|((path, field), _)| path == file && field == name)
            || OTHERS.iter().any(|(path, field, _)| path == file && field == name);
        assert!(known, "{file}: `{name}` is a collection that is neither in the table of SECURITY.md nor in OTHERS");
    }
    for (row, _) in &documented {
        assert!(found.contains(row), "SECURITY.md: there is no collection {row:?}");
    }
    for (file, name, _) in OTHERS {
        assert!(found.contains(&((*file).to_owned(), (*name).to_owned())), "OTHERS: there is no {name} in {file}");
    }
}

#[test]
fn each_bound_in_the_table_of_security_md_has_a_test() {
    let root = crate::root();
    let mut paths = Vec::new();
    for folder in ["host", "tests/attack", "tests/behaviour"] {
        source::files(&root.join(folder), &mut paths);
    }
    let sources: Vec<_> = paths.iter().map(|path| std::fs::read_to_string(path).unwrap_or_default()).collect();
    for (row, test) in documented(&root) {
        let exists = sources.iter().any(|source| source.contains(&format!("fn {test}()")));
        assert!(exists, "SECURITY.md: there is no test {test} for {row:?}");
    }
}
