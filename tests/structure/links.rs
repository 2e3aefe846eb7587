//! Every link of a document leads to a file, and to a heading where it names one.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::root;

/// The copies that `weir new` makes have the file beside them.
const OF_NEW_PROJECTS: &str = "wit/README.md";

#[test]
fn every_link_of_a_document_leads_somewhere() {
    let mut documents = Vec::new();
    find(&root(), &mut documents);
    assert!(documents.len() > 20, "{documents:?}");
    let mut dead = Vec::new();
    for document in &documents {
        for line in prose(document) {
            for target in line.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
                if target.contains("://") || target.contains(' ') || target == OF_NEW_PROJECTS {
                    continue;
                }
                let (path, heading) = target.split_once('#').unwrap_or((target, ""));
                let file = match path {
                    "" => document.clone(),
                    path => document.parent().unwrap().join(path),
                };
                let is_there = file.exists() && (heading.is_empty() || headings(&file).contains(heading));
                if !is_there {
                    dead.push(format!("{}: {target}", document.display()));
                }
            }
        }
    }
    assert!(dead.is_empty(), "{}", dead.join("\n"));
}

/// The documents of the repository.
fn find(folder: &Path, documents: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        let (path, name) = (entry.path(), entry.file_name().into_string().unwrap());
        if path.is_dir() && !name.starts_with('.') && !["target", "node_modules"].contains(&name.as_str()) {
            find(&path, documents);
        } else if name.ends_with(".md") {
            documents.push(path);
        }
    }
}

/// The lines outside of code blocks.
fn prose(document: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(document).unwrap();
    let mut is_code = false;
    let mut is_prose = |line: &&str| {
        is_code ^= line.trim_start().starts_with("```");
        !is_code
    };
    text.lines().filter(&mut is_prose).map(str::to_owned).collect()
}

/// The anchors of the headings of a document, as GitHub makes them, and those of rows of tables.
fn headings(document: &Path) -> BTreeSet<String> {
    let lines = prose(document);
    let of_rows =
        lines.iter().flat_map(|line| line.split("<a id=\"").skip(1)).filter_map(|rest| rest.split('"').next());
    let of_rows: BTreeSet<_> = of_rows.map(str::to_owned).collect();
    let headings = lines.into_iter().filter(|line| line.starts_with('#'));
    let anchor = |line: String| {
        let text = line.trim_start_matches('#').trim().to_lowercase();
        let is_kept = |sign: &char| sign.is_alphanumeric() || ['-', '_', ' '].contains(sign);
        text.chars().filter(is_kept).collect::<String>().replace(' ', "-")
    };
    headings.map(anchor).chain(of_rows).collect()
}
