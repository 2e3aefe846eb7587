//! Reads templates: the built-in ones, and those of ConfigMaps.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use super::{Template, TemplateError, Variables, yaml};

/// The names of the built-in templates.
pub const BUILT_IN: [&str; 2] = ["ingress-nginx", "traefik"];

/// The files of a template.
type Files<'a> = [(&'a str, Option<&'a str>); 3];

macro_rules! files {
    ($name:literal $(, $shared:literal)?) => {
        [
            ("template.yaml", Some(include_str!(concat!("../../templates/", $name, "/template.yaml")))),
            ("pool.yaml", Some(include_str!(concat!("../../templates/", $name, "/pool.yaml")))),
            ("shared.yaml", files!(@ $($shared)?)),
        ]
    };
    (@) => { None };
    (@ $shared:literal) => { Some(include_str!(concat!("../../templates/", $shared))) };
}

/// A built-in template; `None` if there is none of this name.
///
/// # Errors
/// The built-in template is invalid, which tests exclude.
#[must_use]
pub fn built_in(name: &str) -> Option<Result<Template, TemplateError>> {
    let files: Files<'_> = match name {
        "ingress-nginx" => files!("ingress-nginx", "ingress-nginx/shared.yaml"),
        "traefik" => files!("traefik"),
        _ => return None,
    };
    Some(Template::parse(name, files))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Head {
    version: String,
    #[serde(default)]
    variables: Variables,
}

impl Template {
    /// The template of a ConfigMap.
    ///
    /// # Errors
    /// A key is missing or unknown, or its text is not what it should be.
    pub fn of_config_map(name: &str, data: &BTreeMap<String, String>) -> Result<Self, TemplateError> {
        let known = ["template.yaml", "pool.yaml", "shared.yaml"];
        if let Some(key) = data.keys().find(|key| !known.contains(&key.as_str())) {
            return Err(TemplateError::new(name, format!("the key {key} is none of {}", known.join(", "))));
        }
        Self::parse(name, known.map(|key| (key, data.get(key).map(String::as_str))))
    }

    fn parse(name: &str, [head, pool, shared]: Files<'_>) -> Result<Self, TemplateError> {
        let error = |reason: String| TemplateError::new(name, reason);
        let required = |(key, text): (&str, Option<&str>)| {
            text.map(|text| (key.to_owned(), text.to_owned())).ok_or_else(|| error(format!("{key} is missing")))
        };
        let read = |(key, text): (String, String)| {
            yaml::documents(&text).map_err(|reason| error(format!("{key} is not YAML: {reason}")))
        };
        let mut heads = read(required(head)?)?;
        let (Some(head), true) = (heads.pop(), heads.is_empty()) else {
            return Err(error("template.yaml is not one document with `version` and `variables`".to_owned()));
        };
        let head: Head = serde_json::from_value(head).map_err(|reason| error(format!("template.yaml: {reason}")))?;
        let pool = read(required(pool)?)?;
        if !pool.iter().any(|object| object.get("kind") == Some(&Value::from("Deployment"))) {
            return Err(error("pool.yaml has no Deployment: nothing would run".to_owned()));
        }
        let shared = match shared {
            (_, None) => Vec::new(),
            shared => read(required(shared)?)?,
        };
        Ok(Self { name: name.to_owned(), version: head.version, defaults: head.variables, pool, shared })
    }
}
