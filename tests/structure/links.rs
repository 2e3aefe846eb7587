//! Every link of a document leads to a file, and to a heading where it names one.

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
        for (_, line) in prose(document) {
            for target in line.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
                if target.contains("://") || target.contains(' ') || target == OF_NEW_PROJECTS {
                    continue;
                }
                let (path, heading) = target.split_once('#').unwrap_or((target, ""));
                let file = match path {
                    "" => document.clone(),
                    path => document.parent().unwrap().join(path),
                };
                let has = |place: &str| {
                    headings(&file).iter().any(|(_, title)| anchor(title) == place)
                        || rows(&file).iter().any(|row| row == place)
                };
                let is_there = file.exists() && (heading.is_empty() || has(heading));
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

/// The lines outside of code blocks, with their numbers.
fn prose(document: &Path) -> Vec<(usize, String)> {
    let text = std::fs::read_to_string(document).unwrap();
    let mut is_code = false;
    let mut is_prose = |(_, line): &(usize, &str)| {
        is_code ^= line.trim_start().starts_with("```");
        !is_code
    };
    text.lines().enumerate().filter(&mut is_prose).map(|(number, line)| (number, line.to_owned())).collect()
}

/// The headings of a document, with the numbers of their lines.
pub(crate) fn headings(document: &Path) -> Vec<(usize, String)> {
    prose(document).into_iter().filter(|(_, line)| line.starts_with('#')).collect()
}

/// The anchor of a heading, as GitHub makes it.
pub(crate) fn anchor(heading: &str) -> String {
    let text = heading.trim_start_matches('#').trim().to_lowercase();
    let is_kept = |sign: &char| sign.is_alphanumeric() || ['-', '_', ' '].contains(sign);
    text.chars().filter(is_kept).collect::<String>().replace(' ', "-")
}

/// The anchors of rows of tables.
fn rows(document: &Path) -> Vec<String> {
    let anchors = |line: &str| -> Vec<String> {
        line.split("<a id=\"").skip(1).filter_map(|rest| Some(rest.split_once('"')?.0.to_owned())).collect()
    };
    prose(document).iter().flat_map(|(_, line)| anchors(line)).collect()
}
