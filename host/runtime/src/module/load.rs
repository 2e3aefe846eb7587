//! Loads filters: checks the digest, compiles and links the module, calls `describe` and `configure`, checks the
//! grants, and waits for the lookups. Loading does not affect the filter set in force.

use std::any::Any;
use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;

use super::compile::{CompileError, Compiler};
use crate::RuntimeMetrics;
use crate::{
    Bounds, ClusterView, Description, Engine, InstanceContext, LinkError, Linked, Plan, Pool, RawLookup, StartError,
};
use crate::{DependencySet, Filter, FilterParts, Lookups};
use weir_kube::GroupResource;
use weir_process::one_line;
use weir_spec::{Digest, FilterEntry, LookupSpec, MatchRule};

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
    compiler: Option<Arc<Compiler>>,
    lookups: Arc<dyn LookupSource>,
    metrics: Arc<RuntimeMetrics>,
    /// The maximum number of instances of one filter that are checked out.
    instances: usize,
    /// The code by digest. Filters with the same module share it.
    linked: Arc<Mutex<HashMap<Digest, Linked>>>,
}

/// What a module says of itself and needs with its settings.
#[derive(Debug)]
pub struct Probe {
    /// The result of `describe`.
    pub description: Description,
    /// The match rules of its plan, which apply if the configuration has none. They are not validated.
    pub matches: Vec<String>,
    /// The lookups of its plan. They are not validated.
    pub lookups: Vec<RawLookup>,
    /// The linear memory of the first instance in bytes.
    pub memory: usize,
    /// The interfaces that the module imports.
    pub imports: Vec<String>,
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
    /// The engine panicked on the module.
    #[error("the WebAssembly engine cannot run it: {0}")]
    Panic(String),
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

impl LoadError {
    /// Whether the same module and entry fail again, whenever they are loaded.
    #[must_use]
    pub fn is_final(&self) -> bool {
        match self {
            Self::Compile(error) => matches!(error, CompileError::TooLarge(_) | CompileError::Refused(_)),
            Self::Digest { .. } | Self::Link(_) | Self::Plan(_) | Self::Grant(_) | Self::NoRules => true,
            Self::Start(_) | Self::Panic(_) | Self::Lookups(_) => false,
        }
    }
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
        Self { engine, compiler: compiler.map(Arc::new), lookups, metrics, instances, linked: Arc::default() }
    }

    /// Returns a loader of filters that look up elsewhere. Both share the code of modules.
    #[must_use]
    pub fn reading(&self, lookups: Arc<dyn LookupSource>) -> Self {
        let Self { engine, compiler, metrics, instances, linked, .. } = self;
        let (engine, compiler, metrics, linked) = (engine.clone(), compiler.clone(), metrics.clone(), linked.clone());
        Self { engine, compiler, lookups, metrics, instances: *instances, linked }
    }

    /// Loads a filter. Once all is done but what it looks up, `waits` is called: the objects may be long in coming, and what was
    /// done is not done again. Cancel-safe.
    ///
    /// # Errors
    /// If a step fails. The message gives the reason. The caller adds the filter and the module.
    pub async fn load(
        &self,
        entry: &FilterEntry,
        source: String,
        digest: Digest,
        module: &Bytes,
        waits: impl FnOnce(),
    ) -> Result<Filter, LoadError> {
        if let Some(wanted) = entry.digest.filter(|wanted| *wanted != digest) {
            return Err(LoadError::Digest { found: digest, wanted });
        }
        let linked = self.link(digest, module).await?;
        let dependencies = DependencySet::default();
        let context = |lookups| {
            Arc::new(InstanceContext::new(entry.name.shared(), self.lookups.view(), lookups, dependencies.epoch()))
        };
        let bounds = bounds(entry);
        let settings = entry.settings_json();
        let Probe { description, matches, lookups, .. } =
            self.probe(&linked, context(Vec::new()), bounds, &settings).await?;
        let matches = rules(entry, &matches)?;
        let lookups = granted(entry, &lookups)?;
        waits();
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

    /// Compiles a module, and describes and configures an instance of it. It needs no grants and follows no lookups.
    ///
    /// # Errors
    /// If the module is refused or fails.
    pub async fn inspect(&self, entry: &FilterEntry, module: &Bytes) -> Result<Probe, LoadError> {
        let linked = self.link(Digest::of(module), module).await?;
        let epoch = DependencySet::default().epoch();
        let context = InstanceContext::new(entry.name.shared(), self.lookups.view(), Vec::new(), epoch);
        self.probe(&linked, Arc::new(context), bounds(entry), &entry.settings_json()).await
    }

    async fn probe(
        &self,
        linked: &Linked,
        context: Arc<InstanceContext>,
        bounds: Bounds,
        settings: &str,
    ) -> Result<Probe, LoadError> {
        let probe = async {
            let _ticking = linked.engine().ticking();
            let description = linked.describe(context.clone(), bounds).await?;
            let (instance, Plan { matches, lookups }) = linked.instance(context, bounds, settings).await?;
            let (memory, imports) = (instance.memory(), linked.imports());
            Ok::<_, StartError>(Probe { description, matches, lookups, memory, imports })
        };
        AssertUnwindSafe(probe).catch_unwind().await.map_err(|panic| panicked(&*panic))?.map_err(LoadError::Start)
    }

    /// Drops what belongs to other filters than those that are active now: the code of their modules, and the series of their
    /// circuit breakers.
    pub fn retain(&self, active: &[Arc<Filter>]) {
        let used = |digest: &Digest| active.iter().any(|filter| filter.digest() == digest);
        self.linked.lock().unwrap_or_else(PoisonError::into_inner).retain(|digest, _| used(digest));
        self.metrics.retain_breakers(active.iter().map(|filter| (filter.name(), filter.is_suspended())));
    }

    async fn link(&self, digest: Digest, module: &Bytes) -> Result<Linked, LoadError> {
        if let Some(linked) = self.linked.lock().unwrap_or_else(PoisonError::into_inner).get(&digest) {
            return Ok(linked.clone());
        }
        let compiled = match &self.compiler {
            Some(compiler) => Some(compiler.compile(&digest, module).await?),
            None => None,
        };
        let (engine, bytes) = (self.engine.clone(), module.clone());
        // The code stays until it is loaded, also if nobody waits for that any more.
        let link = move || Linked::new(compiled.as_ref().map_or(&engine, |compiled| &compiled.engine), &bytes);
        let linked = tokio::task::spawn_blocking(link).await;
        let linked = linked.map_err(|error| match error.try_into_panic() {
            Ok(panic) => panicked(&*panic),
            Err(error) => LoadError::Panic(error.to_string()),
        })??;
        self.linked.lock().unwrap_or_else(PoisonError::into_inner).insert(digest, linked.clone());
        Ok(linked)
    }
}

/// A panic of the engine refuses the module that caused it.
fn panicked(panic: &(dyn Any + Send)) -> LoadError {
    let message = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    LoadError::Panic(one_line(message.unwrap_or("it panicked"), 1024))
}

fn bounds(entry: &FilterEntry) -> Bounds {
    Bounds {
        memory: usize::try_from(entry.limits.memory.bytes()).unwrap_or(usize::MAX),
        time: entry.limits.time.duration(),
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

fn granted(entry: &FilterEntry, planned: &[RawLookup]) -> Result<Vec<Arc<LookupSpec>>, LoadError> {
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
