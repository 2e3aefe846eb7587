//! Whether an object of the cluster still has what was applied.

use serde_json::Value;

/// Whether each field of `desired` is in `live` with the same value. Fields that only `live` has belong to others or are
/// defaults. Elements of lists are compared in order, as far as `desired` has some, and lists may be longer in `live`.
#[must_use]
pub(super) fn contains(live: &Value, desired: &Value) -> bool {
    match (live, desired) {
        (Value::Object(live), Value::Object(desired)) => desired.iter().all(|(key, desired)| match live.get(key) {
            Some(live) => contains(live, desired),
            // The API server leaves out what is empty.
            None => is_empty(desired),
        }),
        (Value::Array(live), Value::Array(desired)) => {
            // An element that another field manager put between ours is not ours.
            let mut rest = live.iter();
            desired.iter().all(|desired| rest.any(|live| contains(live, desired)))
        }
        (live, desired) => live == desired,
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(fields) => fields.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::String(text) => text.is_empty(),
        Value::Bool(value) => !value,
        Value::Number(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_what_was_applied_counts() {
        let desired = json!({"spec": {"replicas": 2, "ports": [{"name": "a"}, {"name": "b"}], "paused": false}});
        for live in [
            json!({"spec": {"replicas": 2, "ports": [{"name": "a", "nodePort": 3}, {"name": "b"}]}, "status": {}}),
            json!({"spec": {"replicas": 2, "ports": [{"name": "a"}, {"name": "others"}, {"name": "b"}], "x": 1}}),
        ] {
            assert!(contains(&live, &desired), "{live}");
        }
        for live in [
            json!({"spec": {"replicas": 3, "ports": [{"name": "a"}, {"name": "b"}]}}),
            json!({"spec": {"replicas": 2, "ports": [{"name": "a"}]}}),
            json!({"spec": {"ports": [{"name": "a"}, {"name": "b"}]}}),
            json!({"spec": {"replicas": 2, "ports": [{"name": "a"}, {"name": "b"}], "paused": true}}),
            json!({}),
        ] {
            assert!(!contains(&live, &desired), "{live}");
        }
    }
}
