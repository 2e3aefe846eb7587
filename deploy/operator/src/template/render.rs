//! `weir-operator render`: what a template makes of a pool, without a cluster.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::{BUILT_IN, PoolValues, Surroundings, Template, built_in, yaml};
use crate::config::RenderFlags;

/// The objects of a pool and those that pools share, as YAML.
///
/// # Errors
/// There is no such template, or it is invalid.
pub fn render(flags: &RenderFlags) -> Result<String, String> {
    let surroundings = flags.objects.surroundings().map_err(|error| error.to_string())?;
    let template = template(flags)?;
    known_templates(&template, &surroundings)?;
    let values = PoolValues { pool: &flags.pool, replicas: flags.replicas, http: None, https: None };
    let shared = template.shared_objects(&[&flags.pool], &surroundings).map_err(|error| error.to_string())?;
    let own = template.pool_objects(&values, &surroundings).map_err(|error| error.to_string())?;
    let texts = shared.iter().chain(&own).map(|object| yaml::write(&object.object).map_err(|error| error.to_string()));
    Ok(texts.collect::<Result<Vec<_>, _>>()?.join("---\n"))
}

/// Refuses `--set` for a template that does not exist. The operator cannot: a ConfigMap may bring the template later.
fn known_templates(rendered: &Template, surroundings: &Surroundings) -> Result<(), String> {
    let is_known = |name: &str| name == rendered.name || BUILT_IN.contains(&name);
    let names = |key: &str| key.split_once('.').is_some_and(|(template, _)| is_known(template));
    let Some(key) = surroundings.overrides.keys().find(|key| !names(key)) else { return Ok(()) };
    let mut known = BTreeSet::from(BUILT_IN);
    known.insert(&rendered.name);
    let known = known.into_iter().collect::<Vec<_>>().join(", ");
    Err(format!("--set {key} names a template that does not exist: there are {known}"))
}

fn template(flags: &RenderFlags) -> Result<Template, String> {
    let Some(path) = &flags.config_map else {
        let known = || {
            format!(
                "--controller: there is no built-in template {:?}: choose one of {}, or give your own with --config-map",
                flags.controller,
                BUILT_IN.join(", ")
            )
        };
        return built_in(&flags.controller).ok_or_else(known)?.map_err(|error| error.to_string());
    };
    let show = |reason: String| format!("{}: {reason}", path.display());
    let text = std::fs::read_to_string(path).map_err(|error| show(error.to_string()))?;
    let documents = yaml::documents(&text).map_err(show)?;
    let is_map = |document: &&Value| document.get("kind").is_some_and(|kind| kind == "ConfigMap");
    let map = documents.iter().find(is_map).ok_or_else(|| show("it has no ConfigMap".to_owned()))?;
    let data = map.get("data").cloned().unwrap_or_else(|| Value::Object(Map::new()));
    let data: BTreeMap<String, String> =
        serde_json::from_value(data).map_err(|error| show(format!("data: {error}")))?;
    Template::of_config_map(&flags.controller, &data).map_err(|error| show(error.to_string()))
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::render;
    use crate::config::{Command, CommandLine};

    /// The error of `weir-operator render`, of its flags too; empty if there is none.
    fn refused(arguments: &[&str]) -> String {
        let line = ["weir-operator", "render"].iter().chain(arguments);
        match CommandLine::try_parse_from(line) {
            Err(error) => error.to_string(),
            Ok(CommandLine { command: Command::Render(flags) }) => render(&flags).err().unwrap_or_default(),
            Ok(other) => panic!("{other:?}"),
        }
    }

    #[test]
    fn an_error_names_what_does_not_exist_and_what_does() {
        for (arguments, words) in [
            (
                ["--pool=a", "--set=traefik.imago=a"],
                "--set traefik.imago names a variable that does not exist: the template has image",
            ),
            (
                ["--pool=a", "--set=trafik.image=a"],
                "--set trafik.image names a template that does not exist: there are ingress-nginx, traefik",
            ),
            (
                ["--pool=a", "--controller=nginx"],
                "--controller: there is no built-in template \"nginx\": choose one of ingress-nginx, traefik, or give",
            ),
            (["--pool=A b", "--replicas=1"], "\"A b\" is not the name of a pool"),
            (["--pool=", "--replicas=1"], "\"\" is not the name of a pool"),
            (["--pool=a", "--namespace=a.b"], "\"a.b\" is not the name of a namespace"),
            (["--pool=a", "--replicas=0"], "0 is not in 1.."),
        ] {
            let error = refused(&arguments);
            assert!(error.contains(words), "{arguments:?}: {error}");
        }
        // The flags of an operator that has a value for each template.
        assert_eq!(refused(&["--pool=a", "--set=traefik.image=a", "--set=ingress-nginx.image=b"]), "");
    }
}
