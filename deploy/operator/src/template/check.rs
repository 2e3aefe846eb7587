//! Renders manifests and rejects what the operator must not apply: other kinds, other namespaces, names that two pools would
//! share, and the same object twice.

use serde_json::{Map, Value};

use super::{KINDS, Kind, Surroundings, Template, TemplateError, Variables, kind_of};

/// An object that may be applied, without labels and owner.
#[derive(Debug, Clone, PartialEq)]
pub struct RenderedObject {
    /// Its kind.
    pub kind: &'static Kind,
    /// Its name.
    pub name: String,
    /// The whole object.
    pub object: Value,
}

/// Renders manifests. `pool`: the name of the pool and the part of object names that stands for it.
pub(super) fn objects(
    template: &Template,
    manifests: &[Value],
    variables: &Variables,
    surroundings: &Surroundings,
    pool: Option<(&str, &str)>,
) -> Result<Vec<RenderedObject>, TemplateError> {
    let mut objects: Vec<RenderedObject> = Vec::new();
    for (at, manifest) in manifests.iter().enumerate() {
        let place = |reason: String| {
            let file = if pool.is_some() { "pool.yaml" } else { "shared.yaml" };
            TemplateError::new(&template.name, format!("object {} of {file}: {reason}", at + 1))
        };
        let Some(object) = variables.apply(manifest).map_err(place)? else { continue };
        let object = object_of(object, surroundings, pool).map_err(place)?;
        if pool.is_some() && !is_named_by_pool(manifest) {
            let (kind, name) = (object.kind.kind, &object.name);
            return Err(place(format!("{kind} {name} does not have ${{name}} in its name: pools would share it")));
        }
        if objects.iter().any(|other| other.kind == object.kind && other.name == object.name) {
            return Err(place(format!("{} {} occurs twice", object.kind.kind, object.name)));
        }
        objects.push(object);
    }
    objects.sort_by_key(|object| KINDS.iter().position(|kind| kind == object.kind));
    Ok(objects)
}

/// Whether the pool is in the name. The manifest decides: a rendered name may contain that of a pool by chance.
fn is_named_by_pool(manifest: &Value) -> bool {
    let name = manifest.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
    name.contains("${name}") || name == "${pool}"
}

fn object_of(
    mut object: Value,
    surroundings: &Surroundings,
    pool: Option<(&str, &str)>,
) -> Result<RenderedObject, String> {
    let text = |key: &str| object.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let (api_version, kind_name) = (text("apiVersion"), text("kind"));
    let Some(kind) = kind_of(&api_version, &kind_name) else {
        let known: Vec<_> = KINDS.iter().map(|kind| kind.kind).collect();
        return Err(format!(
            "{api_version} {kind_name} is not a kind that the operator may apply: {}",
            known.join(", ")
        ));
    };
    let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else {
        return Err(format!("{kind_name} has no metadata"));
    };
    let Some(name) = metadata.get("name").and_then(Value::as_str).map(str::to_owned) else {
        return Err(format!("{kind_name} has no name"));
    };
    namespace(kind, &name, metadata, surroundings)?;
    if kind.kind == "Deployment" {
        of_this_pool(&object, &name, surroundings, pool)?;
    }
    Ok(RenderedObject { kind, name, object })
}

/// Sets the namespace, or rejects another one.
fn namespace(
    kind: &Kind,
    name: &str,
    metadata: &mut Map<String, Value>,
    surroundings: &Surroundings,
) -> Result<(), String> {
    let given = metadata.get("namespace").and_then(Value::as_str);
    match (kind.namespaced, given) {
        (false, Some(other)) => Err(format!("{} {name} has no namespace, and the template names {other}", kind.kind)),
        (true, Some(other)) if other != surroundings.namespace => Err(format!(
            "{} {name} is in the namespace {other}: the operator applies objects in {} only",
            kind.kind, surroundings.namespace
        )),
        (true, None) => {
            metadata.insert("namespace".to_owned(), surroundings.namespace.clone().into());
            Ok(())
        }
        _ => Ok(()),
    }
}

/// A Deployment of a pool runs on the nodes of that pool.
fn of_this_pool(
    object: &Value,
    name: &str,
    surroundings: &Surroundings,
    pool: Option<(&str, &str)>,
) -> Result<(), String> {
    let Some((pool, _)) = pool else { return Ok(()) };
    let selector =
        object.pointer("/spec/template/spec/nodeSelector").and_then(|nodes| nodes.get(&surroundings.pool_label));
    if selector.and_then(Value::as_str) == Some(pool) {
        return Ok(());
    }
    Err(format!("Deployment {name} does not select the nodes with {}={pool}", surroundings.pool_label))
}
