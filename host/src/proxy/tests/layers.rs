//! The modules of the proxy depend on each other in one direction only.

use std::path::{Path, PathBuf};

/// Each module with the modules that it may use.
const LAYERS: [(&str, &[&str]); 4] =
    [("route", &[]), ("response", &["route"]), ("websocket", &[]), ("service", &["response", "route", "websocket"])];

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

/// Returns the lines of a module and its submodules, without comments.
fn lines(module: &str) -> Vec<String> {
    let mut files = Vec::new();
    sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src").join(module), &mut files);
    assert!(!files.is_empty(), "{module} has no source files");
    let text = |file: &PathBuf| std::fs::read_to_string(file).unwrap();
    let lines: Vec<String> =
        files.iter().flat_map(|file| text(file).lines().map(str::to_owned).collect::<Vec<_>>()).collect();
    lines.into_iter().filter(|line| !line.trim_start().starts_with("//")).collect()
}

#[test]
fn modules_depend_on_each_other_in_one_direction() {
    for (module, allowed) in LAYERS {
        let lines = lines(&format!("proxy/{module}"));
        for (other, _) in LAYERS.iter().filter(|(other, _)| *other != module && !allowed.contains(other)) {
            let named = [format!("proxy::{other}::"), format!("use super::{other}::")];
            let found = lines.iter().find(|line| named.iter().any(|name| line.contains(name)));
            assert_eq!(found, None, "{module} uses {other}");
        }
    }
}
