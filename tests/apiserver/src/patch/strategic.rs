//! Strategic merge patch: objects merge, and lists of objects merge by their merge key.
//!
//! The merge keys are a table by field name instead of a schema, which is exact for the kinds of this server.
//! Directives: `$patch` (replace, delete), `$deleteFromPrimitiveList/…`, `$retainKeys`. `$setElementOrder/…` sets the
//! order.

use serde_json::{Map, Value};

/// Merges a patch into an object.
pub(super) fn apply(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    if let Value::Object(target) = target {
        merge_object(target, patch);
    }
}

fn merge_object(target: &mut Map<String, Value>, patch: &Map<String, Value>) {
    match patch.get("$patch").and_then(Value::as_str) {
        Some("replace") => target.clear(),
        Some("delete") => return target.clear(),
        _ => {}
    }
    if let Some(Value::Array(retained)) = patch.get("$retainKeys") {
        target.retain(|key, _| retained.iter().any(|kept| kept == key));
    }
    for (key, value) in patch {
        if let Some(field) = key.strip_prefix("$deleteFromPrimitiveList/") {
            delete_primitives(target, field, value);
        } else if key.starts_with('$') {
            continue;
        } else if value.is_null() {
            target.shift_remove(key);
        } else if let Value::Array(patch) = value {
            let slot = target.entry(key.clone()).or_insert_with(|| Value::Array(Vec::new()));
            merge_list(slot, key, patch);
        } else {
            apply(target.entry(key.clone()).or_insert(Value::Null), value);
        }
    }
    for (key, order) in patch {
        if let (Some(field), Value::Array(order)) = (key.strip_prefix("$setElementOrder/"), order) {
            reorder(target, field, order);
        }
    }
}

/// The merge key of a list's elements; `None` for lists that are replaced.
fn merge_key(field: &str, sample: &Map<String, Value>) -> Option<&'static str> {
    Some(match field {
        "containers"
        | "initContainers"
        | "ephemeralContainers"
        | "volumes"
        | "env"
        | "imagePullSecrets"
        | "secrets"
        | "resourceClaims" => "name",
        "ports" if sample.contains_key("containerPort") => "containerPort",
        "ports" => "port",
        "volumeMounts" => "mountPath",
        "volumeDevices" => "devicePath",
        "hostAliases" | "podIPs" | "hostIPs" => "ip",
        "conditions" | "addresses" if sample.contains_key("type") => "type",
        "ownerReferences" => "uid",
        "taints" => "key",
        "topologySpreadConstraints" => "topologyKey",
        _ => return None,
    })
}

fn merge_list(slot: &mut Value, field: &str, patch: &[Value]) {
    if !slot.is_array() {
        *slot = Value::Array(Vec::new());
    }
    let Value::Array(target) = slot else {
        return;
    };
    let replace = patch.iter().any(|one| one.get("$patch").and_then(Value::as_str) == Some("replace"));
    if field == "finalizers" && !replace {
        for one in patch {
            if !target.contains(one) {
                target.push(one.clone());
            }
        }
        return;
    }
    let sample = patch.iter().find_map(Value::as_object);
    let key = sample.and_then(|sample| merge_key(field, sample));
    let Some(key) = key.filter(|_| !replace) else {
        *target = patch.iter().filter(|one| one.get("$patch").is_none()).cloned().collect();
        return;
    };
    for one in patch {
        let same = |other: &Value| other.get(key).is_some() && other.get(key) == one.get(key);
        let found = target.iter().position(same);
        if one.get("$patch").and_then(Value::as_str) == Some("delete") {
            target.retain(|other| !same(other));
            continue;
        }
        match found.and_then(|index| target.get_mut(index)) {
            Some(element) => apply(element, one),
            None => {
                let mut element = Value::Null;
                apply(&mut element, one);
                target.push(element);
            }
        }
    }
}

fn delete_primitives(target: &mut Map<String, Value>, field: &str, gone: &Value) {
    if let (Some(Value::Array(list)), Value::Array(gone)) = (target.get_mut(field), gone) {
        list.retain(|value| !gone.contains(value));
    }
}

/// Elements that the order names come in that order. The others follow in their previous order.
fn reorder(target: &mut Map<String, Value>, field: &str, order: &[Value]) {
    let Some(Value::Array(list)) = target.get_mut(field) else {
        return;
    };
    let rank = |element: &Value| {
        order
            .iter()
            .position(|wanted| match wanted {
                Value::Object(keys) => keys.iter().all(|(key, value)| element.get(key) == Some(value)),
                plain => plain == element,
            })
            .unwrap_or(order.len())
    };
    list.sort_by_key(rank);
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn patched(mut target: Value, patch: Value) -> Value {
        apply(&mut target, &patch);
        target
    }

    #[test]
    fn lists_of_objects_merge_by_their_key() {
        let target = json!({"spec": {"containers": [{"name": "a", "image": "1", "env": [{"name": "X", "value": "1"}]}, {"name": "b"}]}});
        let patch = json!({"spec": {"containers": [
            {"name": "a", "image": "2", "env": [{"name": "Y", "value": "2"}]},
            {"name": "b", "$patch": "delete"},
            {"name": "c"},
        ]}});
        assert_eq!(
            patched(target, patch),
            json!({"spec": {"containers": [
                {"name": "a", "image": "2", "env": [{"name": "X", "value": "1"}, {"name": "Y", "value": "2"}]},
                {"name": "c"},
            ]}})
        );
    }

    #[test]
    fn other_lists_are_replaced() {
        let target = json!({"subsets": [{"addresses": [1]}], "args": ["a"]});
        let patch = json!({"subsets": [{"addresses": [2]}], "args": ["b", "c"]});
        assert_eq!(patched(target, patch.clone()), patch);
    }

    #[test]
    fn directives_delete_replace_retain_and_order() {
        let target = json!({"finalizers": ["a", "b"], "strategy": {"type": "x", "rolling": 1}, "map": {"k": 1}, "ports": [{"port": 1}, {"port": 2}]});
        let patch = json!({
            "$deleteFromPrimitiveList/finalizers": ["a"],
            "strategy": {"$retainKeys": ["type"], "type": "y"},
            "map": {"$patch": "replace", "n": 2},
            "$setElementOrder/ports": [{"port": 2}, {"port": 1}],
        });
        assert_eq!(
            patched(target, patch),
            json!({"finalizers": ["b"], "strategy": {"type": "y"}, "map": {"n": 2}, "ports": [{"port": 2}, {"port": 1}]})
        );
    }
}
