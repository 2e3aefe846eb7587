//! The ten questions of a newcomer, in a table of deploy/README.md: each is answered by sections that take three minutes to read.

use std::path::{Path, PathBuf};

use crate::links::{anchor, headings};
use crate::root;

/// What an adult reads in three minutes of a technical text.
const MAX_WORDS: usize = 600;

/// A section of a document: up to the next heading of its level or a higher one. That of a title ends at the next heading.
fn section(document: &Path, heading: &str) -> String {
    let text = std::fs::read_to_string(document).unwrap();
    let at = headings(document).into_iter();
    let mut at = at.skip_while(|(_, title)| anchor(title) != heading);
    let (first, title) = at.next().unwrap_or_else(|| panic!("{} has no heading {heading}", document.display()));
    let level = |title: &str| title.bytes().take_while(|byte| *byte == b'#').count();
    let own = level(&title);
    let end = at.find(|(_, other)| own == 1 || level(other) <= own).map_or(usize::MAX, |(line, _)| line);
    text.lines().skip(first + 1).take(end - first - 1).collect::<Vec<_>>().join("\n")
}

/// The rows of the table: a question, and the files and headings to which its answer links.
fn questions() -> Vec<(String, Vec<(PathBuf, String)>)> {
    let page = root().join("deploy/README.md");
    let text = std::fs::read_to_string(&page).unwrap();
    let rows = text.lines().skip_while(|line| !line.starts_with("| ten questions of a newcomer |")).skip(2);
    let rows = rows.take_while(|line| line.starts_with('|')).map(|row| {
        let mut cells = row.split('|').map(str::trim).skip(1);
        let (question, answer) = (cells.next().unwrap(), cells.next().unwrap());
        let links = answer.split("](").skip(1).filter_map(|rest| rest.split(')').next());
        let links = links.map(|link| {
            let (file, heading) = link.split_once('#').unwrap_or_else(|| panic!("{link} names no section"));
            let file = if file.is_empty() { page.clone() } else { page.parent().unwrap().join(file) };
            (file, heading.to_owned())
        });
        (question.to_owned(), links.collect())
    });
    rows.collect()
}

#[test]
fn ten_questions_of_a_newcomer_are_answered_in_three_minutes_reading() {
    let questions = questions();
    assert_eq!(questions.len(), 10, "{questions:?}");
    for (question, answers) in questions {
        assert!(question.ends_with('?') && !answers.is_empty(), "{question}: no section answers it");
        for (file, heading) in answers {
            let words = section(&file, &heading).split_whitespace().count();
            assert!(words <= MAX_WORDS, "{question} {}#{heading} has {words} words", file.display());
            assert!(words > 20, "{question} {}#{heading} has {words} words", file.display());
        }
    }
}

#[test]
fn the_readme_stays_within_its_length() {
    let text = std::fs::read_to_string(root().join("README.md")).unwrap();
    assert!(text.lines().count() <= 120, "README.md has {} lines", text.lines().count());
    assert!(text.contains("](deploy/README.md)"), "an operator finds the questions");
}
