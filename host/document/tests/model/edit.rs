//! The effect of an edit as the contract specifies it, and the same edit on a document.

use super::read::{self, Segment};
use serde_json::{Map, Value as Tree};
use weir_document::{Document, Error, Path, Rows, Value};

/// One edit with its arguments. The bitmap is adjusted to the number of rows, unless `raw`.
#[derive(Debug, Clone)]
pub(crate) struct Edit {
    pub(crate) kind: Kind,
    pub(crate) expression: String,
    pub(crate) bits: Vec<u8>,
    pub(crate) raw: bool,
    pub(crate) value: Value,
    path: Path,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Kind {
    Set,
    SetRows,
    Remove,
    RemoveRows,
    Retain,
    Append,
}

impl Edit {
    /// Creates an edit with a valid path.
    pub(crate) fn new(kind: Kind, expression: String, bits: Vec<u8>, raw: bool, value: Value) -> Self {
        let path = Path::parse(&expression).unwrap();
        Edit { kind, expression, bits, raw, value, path }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

/// Applies the edit to a document. Returns the number of removed values.
pub(crate) fn run(document: &mut Document, edit: &Edit) -> Result<usize, Error> {
    let rows = match edit.kind {
        Kind::Retain if edit.path().wildcards() == 0 => 0,
        // The rows are those of the last `[*]`. The rest of the path is ignored.
        _ => document.column(edit.path())?.len(),
    };
    let bits = bits(edit, rows);
    let selected = Rows::from_bits(&bits);
    match edit.kind {
        Kind::Set => document.set(edit.path(), &edit.value).map(|()| 0),
        Kind::SetRows => document.set_rows(edit.path(), &selected, &edit.value).map(|()| 0),
        Kind::Remove => document.remove(edit.path()).map(|count| count as usize),
        Kind::RemoveRows => document.remove_rows(edit.path(), &selected).map(|count| count as usize),
        Kind::Retain => document.retain(edit.path(), &selected).map(|()| 0),
        Kind::Append => document.append(edit.path(), &edit.value).map(|()| 0),
    }
}

fn bits(edit: &Edit, rows: usize) -> Vec<u8> {
    if edit.raw { edit.bits.clone() } else { edit.bits.iter().copied().cycle().take(rows.div_ceil(8)).collect() }
}

fn has(bits: &[u8], row: usize) -> bool {
    bits.get(row / 8).is_some_and(|byte| byte >> (row % 8) & 1 == 1)
}

/// Applies the edit to the model. A failed edit changes nothing.
pub(crate) fn apply(model: &mut Tree, edit: &Edit) -> Result<usize, ()> {
    let segments = read::segments(&edit.expression);
    if is_protected(&segments, edit.kind) {
        return Err(());
    }
    let rows = read::rows(model, &segments).len();
    let bits = bits(edit, rows);
    let with_bits = matches!(edit.kind, Kind::SetRows | Kind::RemoveRows | Kind::Retain);
    if with_bits && bits.len() != rows.div_ceil(8) {
        return Err(());
    }
    let before = model.clone();
    let mut row = 0;
    let done = match edit.kind {
        Kind::Set => put(model, &segments, &|_| true, &mut row, &mut |slot| set(slot, &edit.value)),
        Kind::SetRows => put(model, &segments, &|row| has(&bits, row), &mut row, &mut |slot| set(slot, &edit.value)),
        Kind::Append => put(model, &segments, &|_| true, &mut row, &mut |slot| append(slot, &edit.value)),
        Kind::Remove => Ok(cut(model, &segments, &|_| true, &mut row)),
        Kind::RemoveRows => Ok(cut(model, &segments, &|row| has(&bits, row), &mut row)),
        Kind::Retain => match segments.iter().rposition(|segment| *segment == Segment::Wildcard) {
            None => Err(()),
            Some(last) => {
                cut(model, &segments[..=last], &|row| !has(&bits, row), &mut row);
                Ok(0)
            }
        },
    };
    if done.is_err() {
        *model = before;
    }
    done
}

/// The generated names can only match these two.
fn is_protected(segments: &[Segment], kind: Kind) -> bool {
    let name = |segment: &Segment, name: &str| *segment == Segment::Name(name.to_owned());
    let end = match kind {
        Kind::Retain => match segments.iter().rposition(|segment| *segment == Segment::Wildcard) {
            Some(last) => last,
            None => return true,
        },
        _ => segments.len(),
    };
    match &segments[..end] {
        [first] => name(first, "metadata"),
        [first, second, ..] => name(first, "metadata") && name(second, "name"),
        [] => true,
    }
}

fn tree(value: &Value) -> Tree {
    match value {
        Value::Null => Tree::Null,
        Value::Boolean(value) => Tree::Bool(*value),
        Value::Number(text) | Value::Json(text) => serde_json::from_str(text).unwrap(),
        Value::Text(text) => Tree::String(text.clone()),
    }
}

fn set(slot: &mut Tree, value: &Value) -> Result<(), ()> {
    *slot = tree(value);
    Ok(())
}

fn append(slot: &mut Tree, value: &Value) -> Result<(), ()> {
    match slot {
        Tree::Null => *slot = Tree::Array(vec![tree(value)]),
        Tree::Array(elements) => elements.push(tree(value)),
        _ => return Err(()),
    }
    Ok(())
}

/// Calls a function with the value at the path, in the selected rows. Creates objects along the path.
fn put(
    value: &mut Tree,
    segments: &[Segment],
    wanted: &dyn Fn(usize) -> bool,
    row: &mut usize,
    act: &mut dyn FnMut(&mut Tree) -> Result<(), ()>,
) -> Result<usize, ()> {
    let Some((segment, rest)) = segments.split_first() else {
        *row += 1;
        return if wanted(*row - 1) { act(value).map(|()| 0) } else { Ok(0) };
    };
    let many = segments.contains(&Segment::Wildcard);
    match (segment, value) {
        (Segment::Wildcard, Tree::Array(elements)) => {
            for element in elements {
                put(element, rest, wanted, row, act)?;
            }
        }
        (Segment::Wildcard, _) => {}
        (Segment::Name(name), Tree::Object(members)) if members.contains_key(name) => {
            put(&mut members[name], rest, wanted, row, act)?;
        }
        (Segment::Index(index), Tree::Array(elements)) if *index < elements.len() => {
            put(&mut elements[*index], rest, wanted, row, act)?;
        }
        // A missing value: no rows above a wildcard, otherwise one row, in which objects may be created, but no
        // elements.
        _ if many => {}
        (_, value) => {
            *row += 1;
            let makes = segments.iter().all(|segment| matches!(segment, Segment::Name(_)));
            if wanted(*row - 1) && makes {
                make(value, segments, act)?;
            }
        }
    }
    Ok(0)
}

fn make(value: &mut Tree, segments: &[Segment], act: &mut dyn FnMut(&mut Tree) -> Result<(), ()>) -> Result<(), ()> {
    let Some((Segment::Name(name), rest)) = segments.split_first() else {
        return act(value);
    };
    if value.is_null() {
        *value = Tree::Object(Map::new());
    }
    let members = value.as_object_mut().ok_or(())?;
    make(members.entry(name.clone()).or_insert(Tree::Null), rest, act)
}

/// Removes what the last segment selects. Returns the number of removed values.
fn cut(value: &mut Tree, segments: &[Segment], goes: &dyn Fn(usize) -> bool, row: &mut usize) -> usize {
    let Some((segment, rest)) = segments.split_first() else {
        return 0;
    };
    if !rest.is_empty() {
        return match (segment, value) {
            (Segment::Wildcard, Tree::Array(elements)) => {
                elements.iter_mut().map(|element| cut(element, rest, goes, row)).sum()
            }
            (Segment::Name(name), Tree::Object(members)) if members.contains_key(name) => {
                cut(&mut members[name], rest, goes, row)
            }
            (Segment::Index(index), Tree::Array(elements)) if *index < elements.len() => {
                cut(&mut elements[*index], rest, goes, row)
            }
            _ => {
                *row += usize::from(!segments.contains(&Segment::Wildcard));
                0
            }
        };
    }
    match (segment, value) {
        (Segment::Wildcard, Tree::Array(elements)) => {
            let before = elements.len();
            elements.retain(|_| {
                *row += 1;
                !goes(*row - 1)
            });
            before - elements.len()
        }
        (Segment::Wildcard, _) => 0,
        (segment, value) => {
            *row += 1;
            if !goes(*row - 1) {
                return 0;
            }
            match (segment, value) {
                (Segment::Name(name), Tree::Object(members)) => usize::from(members.shift_remove(name).is_some()),
                (Segment::Index(index), Tree::Array(elements)) if *index < elements.len() => {
                    elements.remove(*index);
                    1
                }
                _ => 0,
            }
        }
    }
}
