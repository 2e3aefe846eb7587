//! Loads filters: checks the digest, compiles and links the module, calls `describe` and `configure`, checks the
//! grants, and waits for the lookups. Loading does not affect the filter set in force.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use futures_util::future::BoxFuture;

use super::compile::{CompileError, Compiler};
use crate::RuntimeMetrics;
use crate::{Bounds, ClusterView, Engine, InstanceContext, LinkError, Linked, Pool, RawLookup, StartError};
use crate::{DependencySet, Filter, FilterParts, Lookups};
use crate::{Digest, FilterEntry, MatchRule};
use weir_kube::GroupResource;
use weir_kube::LookupSpec;

/// The source of lookups: reflectors in the daemon, files in `weir run`.
pub trait LookupSource: Send + Sync + std::fmt::Debug {
    /// Returns the view that filters read from.
    fn view(&self) -> Arc<dyn ClusterView>;

    /// Subscribes to these lookups, and resolves when the first list of each is complete. The subscription ends when
    /// the returned value is dropped. Waits while the API server cannot be reached. Returns an error if waiting cannot
    /// help.
    fn follow(&self, lookups: Vec<Arc<LookupSpec>>) -> BoxFuture<'static, Result<Lookups, String>>;
}

/// Loads filters.
#[derive(Debug)]
pub struct Loader {
    engine: Engine,
    /// None: this process compiles modules itself, as in `weir run`.
    compiler: Option<Compiler>,
    lookups: Arc<dyn LookupSource>,
    metrics: Arc<RuntimeMetrics>,
    /// The maximum number of instances of one filter that are checked out.
    instances: usize,
    /// The code by digest. Filters with the same module share it.
    linked: Mutex<HashMap<Digest, Linked>>,
}

/// The reason why a filter did not load.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The module has another digest than the configuration.
    #[error("its digest is {found}, the configuration says {wanted}")]
    Digest {
        /// The digest of the module.
        found: Digest,
        /// The digest in the configuration.
        wanted: Digest,
    },
    /// The module did not compile.
    #[error(transparent)]
    Compile(#[from] CompileError),
    /// The module cannot be linked.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// The first instance failed, or refused the settings.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The plan contains an invalid match rule or resource.
    #[error("its plan is invalid: {0}")]
    Plan(String),
    /// The plan looks up a resource that the configuration does not grant.
    #[error("it looks up {0}, which its `grants` do not name")]
    Grant(GroupResource),
    /// Neither the configuration nor the module has match rules.
    #[error("it matches nothing: neither its entry nor the module names match rules")]
    NoRules,
    /// The lookups cannot be followed.
    #[error("{0}")]
    Lookups(String),
}

impl Loader {
    /// Creates a loader.
    #[must_use]
    pub fn new(
        engine: Engine,
        compiler: Option<Compiler>,
        lookups: Arc<dyn LookupSource>,
        metrics: Arc<RuntimeMetrics>,
        instances: usize,
    ) -> Self {
        Self { engine, compiler, lookups, metrics, instances, linked: Mutex::default() }
    }

    /// Loads a filter. Cancel-safe.
    ///
    /// # Errors
    /// If a step fails. The message gives the reason. The caller adds the filter and the module.
    pub async fn load(
        &self,
        entry: &FilterEntry,
        source: String,
        digest: Digest,
        module: &Bytes,
    ) -> Result<Filter, LoadError> {
        if let Some(wanted) = entry.digest.filter(|wanted| *wanted != digest) {
            return Err(LoadError::Digest { found: digest, wanted });
        }
        let linked = self.link(digest, module).await?;
        let dependencies = DependencySet::default();
        let context = |lookups| {
            Arc::new(InstanceContext {
                filter: entry.name.shared(),
                view: self.lookups.view(),
                lookups,
                epoch: dependencies.epoch(),
            })
        };
        let bounds = Bounds {
            memory: usize::try_from(entry.limits.memory.bytes()).unwrap_or(usize::MAX),
            time: entry.limits.time.duration(),
        };
        let settings = entry.settings_json();
        let ticking = self.engine.ticking();
        let description = linked.describe(context(Vec::new()), bounds).await?;
        let (_, plan) = linked.instance(context(Vec::new()), bounds, &settings).await?;
        drop(ticking);
        let matches = rules(entry, &plan.matches)?;
        let lookups = lookups(entry, &plan.lookups)?;
        let followed = self.lookups.follow(lookups.clone()).await.map_err(LoadError::Lookups)?;
        let pool = Pool::new(linked, context(lookups), bounds, settings, self.instances);
        let parts = FilterParts {
            entry: entry.clone(),
            digest,
            source,
            description,
            matches,
            pool,
            dependencies,
            lookups: followed,
        };
        Ok(Filter::new(parts, self.metrics.clone()))
    }

    /// Drops the code of modules whose digest is not used any more.
    pub fn retain(&self, used: impl Fn(&Digest) -> bool) {
        self.linked.lock().unwrap_or_else(PoisonError::into_inner).retain(|digest, _| used(digest));
    }

    async fn link(&self, digest: Digest, module: &Bytes) -> Result<Linked, LoadError> {
        if let Some(linked) = self.linked.lock().unwrap_or_else(PoisonError::into_inner).get(&digest) {
            return Ok(linked.clone());
        }
        if let Some(compiler) = &self.compiler {
            compiler.compile(&digest, module).await?;
        }
        let (engine, bytes) = (self.engine.clone(), module.clone());
        let linked = tokio::task::spawn_blocking(move || Linked::new(&engine, &bytes)).await;
        let linked = linked.map_err(|error| LoadError::Plan(error.to_string()))??;
        self.linked.lock().unwrap_or_else(PoisonError::into_inner).insert(digest, linked.clone());
        Ok(linked)
    }
}

fn rules(entry: &FilterEntry, planned: &[String]) -> Result<Vec<MatchRule>, LoadError> {
    let rules = match &entry.matches {
        Some(rules) => rules.clone(),
        None => planned
            .iter()
            .map(|rule| rule.parse().map_err(|error| LoadError::Plan(format!("{error}"))))
            .collect::<Result<_, _>>()?,
    };
    if rules.is_empty() && entry.matches.is_none() {
        return Err(LoadError::NoRules);
    }
    Ok(rules)
}

fn lookups(entry: &FilterEntry, planned: &[RawLookup]) -> Result<Vec<Arc<LookupSpec>>, LoadError> {
    let granted = entry.granted();
    planned
        .iter()
        .map(|raw| {
            let resource: GroupResource =
                raw.resource.parse().map_err(|error| LoadError::Plan(format!("lookup: {error}")))?;
            if !granted.contains(&resource) {
                return Err(LoadError::Grant(resource));
            }
            Ok(Arc::new(LookupSpec {
                resource,
                versions: raw.versions.clone(),
                name: raw.name.clone(),
                label_selector: raw.label_selector.clone(),
                metadata_only: raw.metadata_only,
                optional: raw.optional,
            }))
        })
        .collect()
}
