//! What a read should answer, by the words of the contract.

use serde_json::Value as Tree;

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Step {
    Name(String),
    Index(usize),
    Every,
}

/// The steps of an expression that `generate::path` made.
pub(crate) fn steps(expression: &str) -> Vec<Step> {
    let inner = expression.strip_prefix('[').unwrap().strip_suffix(']').unwrap();
    inner
        .split("][")
        .map(|step| match step.strip_prefix('\'').and_then(|step| step.strip_suffix('\'')) {
            Some(name) => Step::Name(serde_json::from_str(&format!("\"{}\"", name.replace('"', "\\\""))).unwrap()),
            None if step == "*" => Step::Every,
            None => Step::Index(step.parse().unwrap()),
        })
        .collect()
}

fn down<'a>(value: &'a Tree, step: &Step) -> Option<&'a Tree> {
    match step {
        Step::Name(name) => value.as_object()?.get(name),
        Step::Index(index) => value.as_array()?.get(*index),
        Step::Every => None,
    }
}

/// A cell for every row, none for a missing one.
pub(crate) fn rows<'a>(value: &'a Tree, steps: &[Step]) -> Vec<Option<&'a Tree>> {
    let last = steps.iter().rposition(|step| *step == Step::Every).map_or(0, |last| last + 1);
    let mut rows = vec![value];
    for step in &steps[..last] {
        rows = match step {
            Step::Every => rows.iter().filter_map(|row| row.as_array()).flatten().collect(),
            other => rows.iter().filter_map(|row| down(row, other)).collect(),
        };
    }
    rows.into_iter().map(|row| steps[last..].iter().try_fold(row, down)).collect()
}

pub(crate) fn lengths(value: &Tree, steps: &[Step]) -> Vec<u32> {
    let Some(last) = steps.iter().rposition(|step| *step == Step::Every) else {
        return Vec::new();
    };
    let size = |row: &Option<&Tree>| row.and_then(Tree::as_array).map_or(0, |array| array.len() as u32);
    rows(value, &steps[..last]).iter().map(size).collect()
}

/// Whether a column's cell is this value.
pub(crate) fn is_cell(cell: Option<&str>, value: Option<&Tree>) -> bool {
    match (cell, value) {
        (None, None | Some(Tree::Null)) => true,
        (Some(cell), Some(Tree::String(text))) => cell == text,
        (Some(cell), Some(value)) => !value.is_null() && serde_json::from_str::<Tree>(cell).unwrap() == *value,
        _ => false,
    }
}
