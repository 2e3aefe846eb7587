//! JSON patch, RFC 6902, over RFC 6901 pointers.
//!
//! Memory: the operations of one patch.

use serde::Deserialize;
use serde_json::Value;

use crate::status::Status;

/// One operation.
#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "op", rename_all = "lowercase")]
pub(crate) enum Operation {
    Add { path: String, value: Value },
    Remove { path: String },
    Replace { path: String, value: Value },
    Move { from: String, path: String },
    Copy { from: String, path: String },
    Test { path: String, value: Value },
}

pub(super) fn parse(patch: Value) -> Result<Vec<Operation>, Status> {
    serde_json::from_value(patch).map_err(|error| Status::bad_request(format!("error decoding patch: {error}")))
}

/// Applies all operations in order. The error text names the operation that failed.
pub(super) fn apply(target: &mut Value, operations: &[Operation]) -> Result<(), String> {
    for operation in operations {
        match operation {
            Operation::Add { path, value } => add(target, path, value.clone())?,
            Operation::Remove { path } => drop(remove(target, path)?),
            Operation::Replace { path, value } => {
                *at(target, path)? = value.clone();
            }
            Operation::Move { from, path } => {
                let value = remove(target, from)?;
                add(target, path, value)?;
            }
            Operation::Copy { from, path } => {
                let value = at(target, from)?.clone();
                add(target, path, value)?;
            }
            Operation::Test { path, value } => {
                if at(target, path)? != value {
                    return Err(format!("testing value {path} failed"));
                }
            }
        }
    }
    Ok(())
}

fn at<'a>(target: &'a mut Value, path: &str) -> Result<&'a mut Value, String> {
    target.pointer_mut(path).ok_or_else(|| format!("path does not exist: {path}"))
}

fn parent<'a>(target: &'a mut Value, path: &str) -> Result<(&'a mut Value, String), String> {
    let (parent, last) = path.rsplit_once('/').ok_or_else(|| format!("not a pointer: {path}"))?;
    let key = last.replace("~1", "/").replace("~0", "~");
    Ok((at(target, parent)?, key))
}

fn add(target: &mut Value, path: &str, value: Value) -> Result<(), String> {
    if path.is_empty() {
        *target = value;
        return Ok(());
    }
    let (parent, key) = parent(target, path)?;
    match parent {
        Value::Object(map) => {
            map.insert(key, value);
        }
        Value::Array(list) if key == "-" => list.push(value),
        Value::Array(list) => {
            let index = key.parse().ok().filter(|index| *index <= list.len());
            let index = index.ok_or_else(|| format!("index out of range: {path}"))?;
            list.insert(index, value);
        }
        _ => return Err(format!("path does not exist: {path}")),
    }
    Ok(())
}

fn remove(target: &mut Value, path: &str) -> Result<Value, String> {
    let missing = || format!("path does not exist: {path}");
    let (parent, key) = parent(target, path)?;
    match parent {
        Value::Object(map) => map.shift_remove(&key).ok_or_else(missing),
        Value::Array(list) => {
            let index = key.parse().ok().filter(|index| *index < list.len());
            index.map(|index| list.remove(index)).ok_or_else(missing)
        }
        _ => Err(missing()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn patched(mut target: Value, patch: Value) -> Result<Value, String> {
        apply(&mut target, &parse(patch).unwrap()).map(|()| target)
    }

    #[test]
    fn json_patches_follow_rfc_6902() {
        let target = json!({"a": {"b/c": [1, 2]}, "d": 1});
        let patch = json!([
            {"op": "test", "path": "/d", "value": 1},
            {"op": "add", "path": "/a/b~1c/1", "value": 9},
            {"op": "add", "path": "/a/b~1c/-", "value": 3},
            {"op": "copy", "from": "/d", "path": "/e"},
            {"op": "move", "from": "/d", "path": "/f"},
            {"op": "replace", "path": "/e", "value": null},
            {"op": "remove", "path": "/a/b~1c/0"},
        ]);
        assert_eq!(patched(target, patch), Ok(json!({"a": {"b/c": [9, 2, 3]}, "e": null, "f": 1})));
    }

    #[test]
    fn an_operation_that_does_not_fit_is_refused() {
        for patch in [
            json!([{"op": "remove", "path": "/no"}]),
            json!([{"op": "replace", "path": "/no", "value": 1}]),
            json!([{"op": "add", "path": "/no/x", "value": 1}]),
            json!([{"op": "add", "path": "/list/7", "value": 1}]),
            json!([{"op": "test", "path": "/list", "value": 1}]),
        ] {
            assert!(patched(json!({"list": [1]}), patch).is_err());
        }
    }
}
