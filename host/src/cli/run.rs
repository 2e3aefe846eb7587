//! `weir run`: one filter, objects from files, and what it makes of them as a diff.

use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use serde_json::Value;
use similar::TextDiff;
use weir_document::{Document, resource_of};

use super::loader;
use crate::config::RunFlags;
use weir_kube::VerbClass;
use weir_runtime::{Digest, FilterEntry};
use weir_store::{FileObjectsError, read_objects};

use crate::lookups::FileView;
use weir_kube::GroupResource;
use weir_runtime::{Endpoint, EngineError};
use weir_runtime::{FilterSet, Outcome};
use weir_runtime::{LoadError, MAX_MODULE};

/// Largest file of objects that is read, in bytes.
const OBJECTS: usize = 256 << 20;

/// How a run ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Ran {
    /// Objects shown to the filter.
    pub objects: usize,
    /// Objects on which it failed.
    pub failed: usize,
}

/// Why nothing was run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// A file can't be read.
    #[error("{}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// Files do not hold Kubernetes objects.
    #[error("{what}")]
    Objects {
        /// Which.
        what: String,
        /// Why.
        #[source]
        source: FileObjectsError,
    },
    /// A file's name, or the settings, can't be a filter's.
    #[error("{}: {reason}", path.display())]
    Entry {
        /// Which module.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// The module does not load.
    #[error("module {}", path.display())]
    Load {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: Box<LoadError>,
    },
    /// No engine.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// No runtime, or standard output is closed.
    #[error("weir run")]
    System(#[source] std::io::Error),
}

/// Runs a filter and prints what it makes of each object.
///
/// # Errors
/// When a file or the module can't be used. A filter that fails on an object is no error here, but counted.
pub fn run(flags: &RunFlags) -> Result<Ran, RunError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(RunError::System)?;
    let (text, ran) = runtime.block_on(show(flags))?;
    std::io::stdout().write_all(text.as_bytes()).map_err(RunError::System)?;
    Ok(ran)
}

async fn show(flags: &RunFlags) -> Result<(String, Ran), RunError> {
    let set = load(flags).await?;
    let (mut text, mut ran) = (String::new(), Ran::default());
    for object in objects(&flags.object)? {
        ran.objects += 1;
        let field = |name: &str| object.get(name).and_then(Value::as_str).unwrap_or_default();
        let resource = resource_of(field("apiVersion"), field("kind"));
        let title = title(&object, &resource);
        let resource = resource.parse().unwrap_or_else(|_| GroupResource::new(&resource, ""));
        let Some(chain) = set.chain("weir-run", &resource, VerbClass::Read) else { continue };
        let document = Document::json(Bytes::from(object.to_string()));
        for outcome in chain.run(vec![document]).await {
            // Writing to a String does not fail.
            let _ = match outcome {
                Outcome::Unchanged => writeln!(text, "{title}: unchanged"),
                Outcome::Hidden => writeln!(text, "{title}: hidden"),
                Outcome::Edited(bytes) => writeln!(text, "{title}: edited\n{}", diff(&object, &bytes)),
                Outcome::Failed(failure) => {
                    ran.failed += 1;
                    writeln!(text, "{title}: failed ({}): {}", failure.class.label(), failure.message)
                }
            };
        }
    }
    Ok((text, ran))
}

/// A set of the one filter, for every object.
async fn load(flags: &RunFlags) -> Result<FilterSet, RunError> {
    let module = read(&flags.module, MAX_MODULE)?;
    let mut cluster = Vec::new();
    for path in &flags.cluster {
        cluster.extend(objects(path)?);
    }
    let endpoint = flags.pod_address.map(|address| Endpoint { host: address.to_string(), port: flags.secure_port });
    let world = FileView::new(&flags.node_name, cluster, Vec::new(), endpoint)
        .map_err(|source| RunError::Objects { what: "--cluster".to_owned(), source })?;
    let loader = loader(Arc::new(world))?;
    let mut entry = entry(flags)?;
    let digest = Digest::of(&module);
    loop {
        match loader.load(&entry, flags.module.display().to_string(), digest, &module).await {
            Ok(filter) => return Ok(FilterSet::new(vec![Arc::new(filter)])),
            // Here there is nobody to protect from the author's own lookups, but a daemon wants it written.
            Err(LoadError::Grant(resource)) if !entry.granted().contains(&resource) => {
                eprintln!("weir: note: in a configuration its entry needs `grants:` with {resource}");
                let mut grants = entry.granted();
                grants.push(resource);
                entry.grants = Some(grants);
            }
            Err(source) => return Err(RunError::Load { path: flags.module.clone(), source: Box::new(source) }),
        }
    }
}

fn entry(flags: &RunFlags) -> Result<FilterEntry, RunError> {
    let refused = |reason: String| RunError::Entry { path: flags.module.clone(), reason };
    let stem = flags.module.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default().replace('_', "-");
    let name = stem.parse().map_err(|error| refused(format!("{error}")))?;
    let settings = match serde_json::from_str(&flags.settings) {
        Ok(Value::Object(settings)) => settings,
        _ => return Err(refused("--settings is no JSON object".to_owned())),
    };
    // All objects that were given, whatever the module would match by itself.
    let every = "*/*".parse().map_err(|error| refused(format!("{error}")))?;
    Ok(FilterEntry { settings, ..FilterEntry::of(name, Some(vec![every])) })
}

fn objects(path: &Path) -> Result<Vec<Value>, RunError> {
    let bytes = read(path, OBJECTS)?;
    read_objects(&String::from_utf8_lossy(&bytes))
        .map_err(|source| RunError::Objects { what: path.display().to_string(), source })
}

fn read(path: &Path, limit: usize) -> Result<Bytes, RunError> {
    let failed = |source| RunError::File { path: path.to_owned(), source };
    let most = limit as u64 + 1;
    let mut bytes = Vec::new();
    if path.as_os_str() == "-" {
        std::io::stdin().lock().take(most).read_to_end(&mut bytes).map_err(failed)?;
    } else {
        std::fs::File::open(path).and_then(|file| file.take(most).read_to_end(&mut bytes)).map_err(failed)?;
    }
    if bytes.len() > limit {
        return Err(failed(std::io::Error::other(format!("larger than {limit} bytes"))));
    }
    Ok(bytes.into())
}

fn title(object: &Value, resource: &str) -> String {
    let of = |name: &str| object.pointer(&format!("/metadata/{name}")).and_then(Value::as_str).unwrap_or_default();
    match of("namespace") {
        "" => format!("{resource} {}", of("name")),
        namespace => format!("{resource} {namespace}/{}", of("name")),
    }
}

fn diff(before: &Value, after: &[u8]) -> String {
    let pretty = |value: &Value| serde_json::to_string_pretty(value).unwrap_or_default() + "\n";
    let after = match serde_json::from_slice::<Value>(after) {
        Ok(value) => pretty(&value),
        Err(_) => String::from_utf8_lossy(after).into_owned(),
    };
    let before = pretty(before);
    TextDiff::from_lines(&before, &after).unified_diff().context_radius(3).header("before", "after").to_string()
}
