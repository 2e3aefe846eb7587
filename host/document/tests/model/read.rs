//! The result of a read as the contract specifies it.

use serde_json::Value as Tree;

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Segment {
    Name(String),
    Index(usize),
    Wildcard,
}

/// Parses an expression that `generate::path` created.
pub(crate) fn segments(expression: &str) -> Vec<Segment> {
    let inner = expression.strip_prefix('[').unwrap().strip_suffix(']').unwrap();
    inner
        .split("][")
        .map(|segment| match segment.strip_prefix('\'').and_then(|segment| segment.strip_suffix('\'')) {
            Some(name) => Segment::Name(serde_json::from_str(&format!("\"{}\"", name.replace('"', "\\\""))).unwrap()),
            None if segment == "*" => Segment::Wildcard,
            None => Segment::Index(segment.parse().unwrap()),
        })
        .collect()
}

fn down<'a>(value: &'a Tree, segment: &Segment) -> Option<&'a Tree> {
    match segment {
        Segment::Name(name) => value.as_object()?.get(name),
        Segment::Index(index) => value.as_array()?.get(*index),
        Segment::Wildcard => None,
    }
}

/// Returns a value for each row, none for a missing one.
pub(crate) fn rows<'a>(value: &'a Tree, segments: &[Segment]) -> Vec<Option<&'a Tree>> {
    let last = segments.iter().rposition(|segment| *segment == Segment::Wildcard).map_or(0, |last| last + 1);
    let mut rows = vec![value];
    for segment in &segments[..last] {
        rows = match segment {
            Segment::Wildcard => rows.iter().filter_map(|row| row.as_array()).flatten().collect(),
            other => rows.iter().filter_map(|row| down(row, other)).collect(),
        };
    }
    rows.into_iter().map(|row| segments[last..].iter().try_fold(row, down)).collect()
}

pub(crate) fn lengths(value: &Tree, segments: &[Segment]) -> Vec<u32> {
    let Some(last) = segments.iter().rposition(|segment| *segment == Segment::Wildcard) else {
        return Vec::new();
    };
    let size = |row: &Option<&Tree>| row.and_then(Tree::as_array).map_or(0, |array| array.len() as u32);
    rows(value, &segments[..last]).iter().map(size).collect()
}

/// Returns whether a column's cell has this value.
pub(crate) fn is_cell(cell: Option<&str>, value: Option<&Tree>) -> bool {
    match (cell, value) {
        (None, None | Some(Tree::Null)) => true,
        (Some(cell), Some(Tree::String(text))) => cell == text,
        (Some(cell), Some(value)) => !value.is_null() && serde_json::from_str::<Tree>(cell).unwrap() == *value,
        _ => false,
    }
}
