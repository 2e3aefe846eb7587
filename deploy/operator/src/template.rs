//! Templates: the manifests of an ingress controller, with variables. A template is data: three files below `templates/`, or the
//! same three keys of a ConfigMap.
//!
//! The language is ours: variables stand in parsed manifests, so that no value can become structure. `minijinja` renders text, in
//! which one can, and overlays by server-side apply would have to repeat each name and selector that has the pool in it.
//!
//! `template.yaml` names the version and the default values of variables, `pool.yaml` has the objects of a pool, and the optional
//! `shared.yaml` those that exist once. [`Template::pool_objects`] and [`Template::shared_objects`] render and check them: what
//! they return names allowed kinds in the one namespace only.

mod check;
mod kinds;
mod parse;
mod render;
mod substitute;
pub mod yaml;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

pub use self::check::RenderedObject;
pub use self::kinds::{CONFIG_MAP, KINDS, Kind, kind_of};
pub use self::parse::{BUILT_IN, built_in};
pub use self::render::render;
pub use self::substitute::Variables;

/// The manifests of an ingress controller.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Template {
    /// The name, as in `spec.controller`.
    pub name: String,
    /// The version of the ingress controller.
    pub version: String,
    defaults: Variables,
    pool: Vec<Value>,
    shared: Vec<Value>,
}

/// A template that cannot be used, and the reason.
#[derive(Debug, thiserror::Error)]
#[error("template {template}: {reason}")]
pub struct TemplateError {
    template: String,
    reason: String,
}

impl TemplateError {
    fn new(template: &str, reason: impl Into<String>) -> Self {
        Self { template: template.to_owned(), reason: reason.into() }
    }
}

/// What the objects of a pool are made for.
#[derive(Debug, Clone)]
pub struct PoolValues<'a> {
    /// The name of the pool.
    pub pool: &'a str,
    /// Replicas of the ingress controller.
    pub replicas: i32,
    /// The node port of HTTP, if it is given.
    pub http: Option<i32>,
    /// The node port of HTTPS, if it is given.
    pub https: Option<i32>,
}

/// What all objects are made for: the operator's configuration.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Surroundings {
    /// The namespace of all objects that have one.
    pub namespace: String,
    /// The label of a node that names its pool.
    pub pool_label: String,
    /// The API server's address through Weir, if the template sets it in the environment of its pods.
    pub api_server: Option<(String, u16)>,
    /// Values of variables, by `template.variable`.
    pub overrides: BTreeMap<String, String>,
}

impl Template {
    /// The objects of a pool.
    ///
    /// # Errors
    /// A variable is unknown, or an object is not allowed.
    pub fn pool_objects(
        &self,
        values: &PoolValues<'_>,
        surroundings: &Surroundings,
    ) -> Result<Vec<RenderedObject>, TemplateError> {
        let mut variables = self.variables(surroundings)?;
        let short = object_name(values.pool);
        variables.set("pool", values.pool);
        variables.set("name", &*short);
        variables.set("replicas", values.replicas);
        variables.set_optional("nodePortHttp", values.http);
        variables.set_optional("nodePortHttps", values.https);
        check::objects(self, &self.pool, &variables, surroundings, Some((values.pool, &short)))
    }

    /// The objects that exist once, for these pools.
    ///
    /// # Errors
    /// A variable is unknown, or an object is not allowed.
    pub fn shared_objects(
        &self,
        pools: &[&str],
        surroundings: &Surroundings,
    ) -> Result<Vec<RenderedObject>, TemplateError> {
        let mut variables = self.variables(surroundings)?;
        let quoted: Vec<_> = pools.iter().map(|pool| format!("'{pool}'")).collect();
        variables.set("quotedPools", quoted.join(", "));
        check::objects(self, &self.shared, &variables, surroundings, None)
    }

    /// A hash of everything but the pools: a change of it upgrades the ingress controllers.
    #[must_use]
    pub fn revision(&self, surroundings: &Surroundings) -> String {
        let mut hash = Sha256::new();
        let overrides: Vec<_> = surroundings.overrides.iter().filter(|(key, _)| self.owns(key)).collect();
        let parts = (&self.name, &self.version, &self.defaults, &self.pool, &self.shared, &overrides);
        let place = (&surroundings.namespace, &surroundings.pool_label, &surroundings.api_server);
        hash.update(serde_json::to_vec(&(parts, place)).unwrap_or_default());
        short_hash(hash)
    }

    /// Whether a value of the operator's flags, `template.variable`, is for this template.
    pub(crate) fn owns(&self, key: &str) -> bool {
        key.split_once('.').is_some_and(|(template, _)| template == self.name)
    }

    fn variables(&self, surroundings: &Surroundings) -> Result<Variables, TemplateError> {
        let mut variables = self.defaults.clone();
        for (key, value) in surroundings.overrides.iter().filter(|(key, _)| self.owns(key)) {
            let (_, variable) = key.split_once('.').unwrap_or_default();
            if !variables.has(variable) {
                let known = match variables.names().collect::<Vec<_>>().join(", ") {
                    none if none.is_empty() => "the template has no variables".to_owned(),
                    known => format!("the template has {known}"),
                };
                let reason = format!("--set {key} names a variable that does not exist: {known}");
                return Err(TemplateError::new(&self.name, reason));
            }
            variables.set(variable, &**value);
        }
        variables.set("template", &*self.name);
        variables.set("version", &*self.version);
        variables.set("revision", self.revision(surroundings).chars().take(8).collect::<String>());
        variables.set("namespace", &*surroundings.namespace);
        variables.set("poolLabel", &*surroundings.pool_label);
        let (host, port) = surroundings.api_server.clone().unzip();
        variables.set_optional("apiServerHost", host);
        variables.set_optional("apiServerPort", port.map(|port| port.to_string()));
        Ok(variables)
    }
}

/// The part of object names that stands for a pool: its name, or where that is no short DNS label, a part of it and a hash.
#[must_use]
pub fn object_name(pool: &str) -> String {
    if pool.len() <= 32 && !pool.contains('.') {
        return pool.to_owned();
    }
    let part: String = pool.chars().take(23).map(|c| if c == '.' { '-' } else { c }).collect();
    let hash = short_hash(Sha256::new_with_prefix(pool));
    format!("{}-{}", part.trim_end_matches('-'), hash.chars().take(8).collect::<String>())
}

pub(crate) fn short_hash(hash: Sha256) -> String {
    hash.finalize().iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests;
