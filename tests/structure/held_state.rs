//! What outlives a request: the table of SECURITY.md names each collection that a client could fill.

use std::collections::BTreeSet;
use std::path::Path;

use crate::source;

/// The types that hold many things by a key.
const COLLECTIONS: [&str; 7] = ["HashMap<", "HashSet<", "BTreeMap<", "BTreeSet<", "Cache<", "DashMap<", "IndexMap<"];
/// Those that hold many things in a row. They outlive a request in a lock.
const QUEUES: [&str; 2] = ["Vec<", "VecDeque<"];
/// The locks.
const LOCKS: [&str; 2] = ["Mutex<", "RwLock<"];
/// Collections whose keys no client chooses, that have few entries, or that live no longer than a request or a connection:
/// file, name and reason.
const OTHERS: &[(&str, &str, &str)] = &[
    ("src/explanation.rs", "seen", "of one answer: the components that have views"),
    ("process/src/folder.rs", "lost", "folders on the way to files that the configuration names"),
    ("process/src/folder.rs", "watched", "the folders on the way to files that the configuration names"),
    ("process/src/folder.rs", "sights", "files that the configuration names"),
    ("process/src/folder.rs", "names", "the ways to files that the configuration names"),
    ("process/src/folder.rs", "folders", "files that the configuration names"),
    ("process/src/folder.rs", "written", "files that the configuration names"),
    ("process/src/folder.rs", "complete", "files that the configuration names"),
    ("process/src/watched_files.rs", "files", "files that the configuration names"),
    ("process/src/watched_files.rs", "folders", "folders that the configuration names"),
    ("src/logging.rs", "LoggedOnce", "modules and files that the configuration names; 10,000"),
    ("src/reload/changes.rs", "entries", "the filters of the configuration"),
    ("src/reload/changes.rs", "named", "the filters of the configuration"),
    ("front/src/tls.rs", "client_ca", "a file that the configuration names"),
    ("upstream/src/certificates.rs", "names", "the certificate names them"),
    ("view/src/registry.rs", "named", "the configuration names them"),
    ("view/src/refresh.rs", "degraded", "objects of a store, which is charged"),
    ("view/src/watchers.rs", "watches", "open watches, which are charged"),
    ("view/src/machine/present.rs", "touched", "events of a history, while a watch that is charged begins"),
    ("view/src/metrics.rs", "sampled", "resources that stores hold"),
    ("view/src/chain_stamps.rs", "newest", "chains and the resources that they match; 4,096"),
    ("src/pool/relay.rs", "peers", "the configuration names them"),
    ("src/serve/cached/list_memory.rs", "starts", "segments of one of 64 lists in a buffer of their own"),
    ("src/offline/answer_memory/recorder.rs", "copies", "the same as that of answer_memory.rs"),
    ("store/src/disk/value_index.rs", "classes", "five classes, for a moment"),
    ("store/src/disk/value_index.rs", "owners", "for a moment"),
    ("store/src/disk/cache.rs", "stores", "open stores by number"),
    ("store/src/disk/conditions.rs", "Conditions", "ten conditions of the file"),
    ("store/src/disk/overlay.rs", "pages", "what mends the file in memory; 64 MiB"),
    ("store/src/disk/recovery.rs", "rows", "the rows of the file that is opened"),
    ("spec/src/cached.rs", "Memory", "16 paths of one object"),
    ("document/src/protobuf/schema.rs", "kinds", "the kinds of the schema"),
    ("document/src/protobuf/schema.rs", "resources", "the kinds of the schema"),
    ("document/src/string_set.rs", "set", "values of the objects of a lookup"),
    ("kube/src/impersonation.rs", "extra", "a request"),
    ("registry/src/credentials.rs", "credential_helpers", "the configuration names them"),
    ("registry/src/credentials.rs", "others", "the configuration names them"),
    ("registry/src/hosts.rs", "Registries", "the configuration names them"),
    ("registry/src/layout.rs", "blobs", "an artifact, while it is read"),
    ("registry/src/manifest.rs", "annotations", "an artifact, while it is read"),
    ("runtime/src/filter/breaker.rs", "namespaces", "three"),
    ("runtime/src/filter/dependency_set/change_set.rs", "whole", "the lookups of filters"),
    ("runtime/src/filter/dependency_set/change_set.rs", "objects", "changes of the cluster, until they are validated"),
    ("runtime/src/filter/dependency_set/change_set.rs", "touched", "the lookups of filters"),
    ("runtime/src/filter/dependency_set/table.rs", "places", "100,000 dependencies of a filter"),
    ("runtime/src/filter/dependency_set/table.rs", "objects", "100,000 dependencies of a filter"),
    ("runtime/src/filter/dependency_set/table.rs", "lookups", "100,000 dependencies of a filter"),
    ("runtime/src/filter/filter/batch.rs", "cache", "a batch of objects"),
    ("runtime/src/filter/set.rs", "begun", "1,024 chains of a set of filters"),
    ("runtime/src/filter/set.rs", "by_request", "1,024 kinds of requests"),
    ("runtime/src/filter/trace_cache.rs", "scopes", "four of a filter"),
    ("runtime/src/module/load.rs", "linked", "the modules of the configuration"),
    ("runtime/src/wasm/lookup.rs", "declared", "a call of a filter"),
    ("runtime/src/wasm/paths.rs", "paths", "4,096 paths of an instance"),
    ("runtime/src/wasm/pool.rs", "idle", "the instances of a filter"),
    ("runtime/src/wasm/wasi.rs", "partial", "a line of the log of an instance"),
    ("src/admin/activity.rs", "before", "the filters and caches that the configuration names"),
    ("src/admin/status.rs", "errors", "the configuration names them"),
    ("src/admin/status.rs", "left_out", "the configuration names them"),
    ("src/admin/status.rs", "live", "the configuration names them"),
    ("src/admin/status.rs", "loading", "the configuration names them"),
    ("src/admin/status.rs", "progress", "the configuration names them"),
    ("src/cli/dev/sources.rs", "files", "the sources of the author of a filter"),
    ("src/config/manifest.rs", "binary_data", "the configuration"),
    ("src/config/manifest.rs", "data", "the configuration"),
    ("src/config/model.rs", "binary_data", "the configuration"),
    ("src/config/model.rs", "kept", "the configuration"),
    ("src/config/resend.rs", "modes", "the configuration names them"),
    ("src/local_status/overlay.rs", "pods", "the pods of the node, and 8,192 of peers"),
    ("src/local_status/overlay.rs", "silent", "the other Weirs of the pool"),
    ("src/local_status/peers.rs", "pods", "2,048 of a message"),
    ("src/local_status/saved_status.rs", "pods", "the pods of the node"),
    ("src/local_status/state.rs", "peers", "the other Weirs of the pool"),
    ("src/local_status/state.rs", "pods", "the pods of the node"),
    ("src/local_status/state.rs", "silent", "the other Weirs of the pool"),
    ("src/modules/cache.rs", "pulling", "the modules of the configuration"),
    ("src/node_facts.rs", "labels", "the labels of the Node"),
    ("src/serve/cached/list_memory.rs", "ListMemory", "64 lists in a buffer of their own"),
    ("front/src/client_trust.rs", "connections", "open connections"),
    ("src/proxy/unread.rs", "answers", "open responses"),
    ("src/reload/last_good.rs", "filters", "the configuration names them"),
    ("store/src/file_objects.rs", "lookups", "the lookups of filters"),
    ("store/src/file_objects.rs", "objects", "files of the command line"),
    ("store/src/indexed_objects/cache.rs", "indexes", "eight of a lookup"),
    ("store/src/indexed_objects/cache.rs", "selections", "256 of a lookup"),
    ("store/src/reflectors.rs", "reflectors", "the lookups of filters"),
    ("upstream/src/h2_pool.rs", "connections", "64 of a thread, or one for each open request"),
    ("upstream/src/delegated_credential.rs", "open", "open requests"),
    ("upstream/src/replay_body.rs", "kept", "a request"),
];

/// The name that a line declares as one of these types: of a field, or of a struct around one.
fn declared<'a>(line: &'a str, types: &[&str]) -> Option<&'a str> {
    let line = line.trim();
    let is_collection = types.iter().any(|collection| line.contains(collection));
    if !is_collection || line.starts_with("//") || line.contains("fn ") || line.contains("let ") || line.contains("=>")
    {
        return None;
    }
    let bare = line.trim_start_matches("pub(crate) ").trim_start_matches("pub(super) ");
    let bare = bare.strip_prefix("pub ").unwrap_or(bare);
    if let Some(rest) = bare.strip_prefix("struct ") {
        return rest.split(['(', '<']).next().filter(|_| rest.contains('('));
    }
    let (name, of) = bare.split_once(": ")?;
    let is_field =
        name.chars().all(|c| c.is_ascii_lowercase() || c == '_') && of.ends_with(',') && !of.starts_with('&');
    (is_field && !of.contains("::new") && !of.contains("builder")).then_some(name)
}

/// The collections that a file declares. `Vec<` counts in a lock, or in a struct that a lock of the file holds.
fn collections(code: &str) -> Vec<&str> {
    let in_locks = LOCKS.iter().flat_map(|lock| code.split(lock).skip(1));
    let locked: BTreeSet<_> = in_locks.filter_map(|rest| rest.split('>').next()).collect();
    let (mut inside, mut names) = ("", Vec::new());
    for line in code.lines() {
        if let Some((_, rest)) = line.split_once("struct ") {
            inside = rest.split([' ', '<', '(', ';']).next().unwrap_or_default();
        } else if line.starts_with('}') {
            inside = "";
        }
        let is_locked = locked.contains(inside) || LOCKS.iter().any(|lock| line.contains(&format!("{lock}Vec")));
        let queue = || declared(line, &QUEUES).filter(|_| is_locked);
        names.extend(declared(line, &COLLECTIONS).or_else(queue));
    }
    names
}

/// The collections of all crates of the daemon.
fn found(host: &Path) -> BTreeSet<(String, String)> {
    let mut paths = Vec::new();
    for manifest in source::manifests(host) {
        source::files(&manifest.with_file_name("src"), &mut paths);
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
        for name in collections(code) {
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
