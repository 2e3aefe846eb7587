//! The code on the pages of `filters/docs` is that of the examples, which are built and tested. A block names its file
//! behind the language, and is in that file line by line.

#![allow(clippy::unwrap_used, reason = "tests and their helpers: a panic is the report")]

use std::fs;
use std::path::{Path, PathBuf};

/// Languages of blocks that need a file. Commands and their output have none.
const CODE: &[&str] = &["c", "go", "javascript", "python", "rust", "toml", "yaml"];

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs")
}

/// Returns the pages with their texts.
fn pages() -> Vec<(PathBuf, String)> {
    let paths = fs::read_dir(docs()).unwrap().map(|entry| entry.unwrap().path());
    let pages = paths.filter(|path| path.extension().is_some_and(|extension| extension == "md"));
    pages.map(|path| (path.clone(), fs::read_to_string(path).unwrap())).collect()
}

/// Returns the fenced blocks of a page, each as what follows the fence and the content.
fn blocks(page: &str) -> Vec<(&str, &str)> {
    let mut blocks = Vec::new();
    let mut rest = page;
    while let Some((_, after)) = rest.split_once("\n```") {
        let (info, content) = after.split_once('\n').unwrap();
        let (block, after) = content.split_once("\n```\n").unwrap();
        blocks.push((info, block));
        rest = after;
    }
    blocks
}

#[test]
fn code_on_the_pages_is_that_of_the_examples() {
    let mut found = 0;
    for (path, page) in pages() {
        for (info, block) in blocks(&page) {
            let (language, file) = info.split_once(' ').unwrap_or((info, ""));
            let place = format!("{}: {}", path.display(), block.lines().next().unwrap_or_default());
            if file.is_empty() {
                assert!(!CODE.contains(&language), "{place}: the block names no file");
                continue;
            }
            let original = fs::read_to_string(docs().join(file)).unwrap_or_default();
            assert!(format!("\n{original}").contains(&format!("\n{block}\n")), "{place}: it is not in {file}");
            found += 1;
        }
    }
    assert!(found >= 15, "only {found} blocks found");
}

#[test]
fn links_of_the_pages_lead_to_files() {
    for (path, page) in pages() {
        let code: Vec<_> = blocks(&page).into_iter().map(|(_, block)| block).collect();
        let prose = code.into_iter().fold(page.clone(), |page, block| page.replace(block, ""));
        for link in prose.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let file = link.split('#').next().unwrap_or_default();
            let is_local = !file.is_empty() && !link.contains("://");
            assert!(!is_local || docs().join(file).exists(), "{}: {link} leads nowhere", path.display());
        }
    }
}

#[test]
fn the_index_names_every_page() {
    let index = fs::read_to_string(docs().join("README.md")).unwrap();
    for (path, _) in pages() {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap();
        assert!(name == "README.md" || index.contains(&format!("]({name})")), "{name}");
    }
}
