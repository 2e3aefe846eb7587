//! The rooms of the proxy depend on each other in one direction only, and codecs on none of them.

use std::path::{Path, PathBuf};

/// Each room with the rooms that it may use.
const ROOMS: [(&str, &[&str]); 5] = [
    ("server", &[]),
    ("resume", &[]),
    ("response", &["server", "resume"]),
    ("identity", &["server"]),
    ("route", &["server", "response", "identity"]),
];

fn sources(at: &Path, found: &mut Vec<PathBuf>) {
    let file = at.with_extension("rs");
    if file.is_file() {
        found.push(file);
    }
    let Ok(entries) = std::fs::read_dir(at) else { return };
    for entry in entries {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else {
            found.push(path);
        }
    }
}

/// The lines of a module and of those below it that bring other items into scope.
fn uses(module: &str) -> Vec<String> {
    let mut files = Vec::new();
    sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src").join(module), &mut files);
    assert!(!files.is_empty(), "{module} has no sources");
    let text = |file: &PathBuf| std::fs::read_to_string(file).unwrap();
    let lines: Vec<String> =
        files.iter().flat_map(|file| text(file).lines().map(str::to_owned).collect::<Vec<_>>()).collect();
    lines.into_iter().filter(|line| !line.trim_start().starts_with("//")).collect()
}

#[test]
fn rooms_depend_on_each_other_in_one_direction() {
    for (room, allowed) in ROOMS {
        let lines = uses(&format!("proxy/{room}"));
        for (other, _) in ROOMS.iter().filter(|(other, _)| *other != room && !allowed.contains(other)) {
            let named = [format!("proxy::{other}::"), format!("use super::{other}::")];
            let found = lines.iter().find(|line| named.iter().any(|name| line.contains(name)));
            assert_eq!(found, None, "{room} uses {other}");
        }
    }
}

#[test]
fn codecs_know_neither_the_proxy_nor_the_upstream_body() {
    let lines = uses("codec");
    let found = lines.iter().find(|line| line.contains("crate::proxy") || line.contains("weir_upstream"));
    assert_eq!(found, None);
}
