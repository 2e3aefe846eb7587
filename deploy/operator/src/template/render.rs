//! `weir-operator render`: what a template makes of a pool, without a cluster.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{BUILT_IN, PoolValues, Template, built_in, yaml};
use crate::config::RenderFlags;

/// The objects of a pool and those that pools share, as YAML.
///
/// # Errors
/// There is no such template, or it is invalid.
pub fn render(flags: &RenderFlags) -> Result<String, String> {
    let surroundings = flags.objects.surroundings().map_err(|error| error.to_string())?;
    let template = template(flags)?;
    let values = PoolValues { pool: &flags.pool, replicas: flags.replicas, http: None, https: None };
    let shared = template.shared_objects(&[&flags.pool], &surroundings).map_err(|error| error.to_string())?;
    let own = template.pool_objects(&values, &surroundings).map_err(|error| error.to_string())?;
    let texts = shared.iter().chain(&own).map(|object| yaml::write(&object.object).map_err(|error| error.to_string()));
    Ok(texts.collect::<Result<Vec<_>, _>>()?.join("---\n"))
}

fn template(flags: &RenderFlags) -> Result<Template, String> {
    let Some(path) = &flags.config_map else {
        let known = || format!("there is no built-in template {}: {}", flags.controller, BUILT_IN.join(", "));
        return built_in(&flags.controller).ok_or_else(known)?.map_err(|error| error.to_string());
    };
    let show = |reason: String| format!("{}: {reason}", path.display());
    let text = std::fs::read_to_string(path).map_err(|error| show(error.to_string()))?;
    let maps = yaml::documents(&text).map_err(show)?;
    let data = maps.iter().find_map(|map| map.get("data")).cloned().unwrap_or(Value::Null);
    let data: BTreeMap<String, String> =
        serde_json::from_value(data).map_err(|error| show(format!("data: {error}")))?;
    Template::of_config_map(&flags.controller, &data).map_err(|error| show(error.to_string()))
}
