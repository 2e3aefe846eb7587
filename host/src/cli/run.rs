//! `weir run`: runs one filter on objects from files and prints the changes as a diff.

use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use diffy::DiffOptions;
use serde_json::Value;
use weir_document::{Document, resource_of};

use super::loader;
use crate::config::RunFlags;
use crate::lookups::FileView;
use weir_kube::{GroupResource, VerbClass};
use weir_runtime::{Digest, Endpoint, EngineError, FilterEntry, FilterSet, LoadError, MAX_MODULE, Outcome};
use weir_store::{FileObjectsError, read_objects};

/// The largest file of objects, in bytes.
const MAX_OBJECTS: usize = 256 << 20;

/// The result of a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RunSummary {
    /// Objects that the filter ran on.
    pub objects: usize,
    /// Objects that it failed on.
    pub failed: usize,
}

/// A reason why the filter did not run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// A file cannot be read.
    #[error("{}", path.display())]
    File {
        /// The name of the file or flag.
        path: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// A file does not contain Kubernetes objects.
    #[error("{what}")]
    Objects {
        /// The name of the file or flag.
        what: String,
        /// The cause.
        #[source]
        source: FileObjectsError,
    },
    /// The file name of the module, or the settings, are not valid for a filter.
    #[error("{}: {reason}", path.display())]
    Entry {
        /// The module.
        path: PathBuf,
        /// The cause.
        reason: String,
    },
    /// The module cannot be loaded.
    #[error("module {}", path.display())]
    Load {
        /// The name of the file or flag.
        path: PathBuf,
        /// The cause.
        #[source]
        source: Box<LoadError>,
    },
    /// This machine cannot run compiled modules.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The tokio runtime cannot be created, or standard output is closed.
    #[error("cannot start the tokio runtime or write to standard output")]
    System(#[source] std::io::Error),
}

/// Runs a filter and prints the outcome for each object.
///
/// # Errors
/// A file or the module is not usable. If the filter fails on an object, the result counts the failure.
pub fn run(flags: &RunFlags) -> Result<RunSummary, RunError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(RunError::System)?;
    let (text, summary) = runtime.block_on(run_filter(flags))?;
    std::io::stdout().write_all(text.as_bytes()).map_err(RunError::System)?;
    Ok(summary)
}

async fn run_filter(flags: &RunFlags) -> Result<(String, RunSummary), RunError> {
    let set = load(flags).await?;
    let (mut text, mut summary) = (String::new(), RunSummary::default());
    for object in objects(&flags.object)? {
        summary.objects += 1;
        let field = |name: &str| object.get(name).and_then(Value::as_str).unwrap_or_default();
        let resource = resource_of(field("apiVersion"), field("kind"));
        let title = title(&object, &resource);
        let resource = resource.parse().unwrap_or_else(|_| GroupResource::new(&resource, ""));
        let Some(chain) = set.chain("weir-run", &resource, VerbClass::Read) else { continue };
        let document = Document::json(Bytes::from(object.to_string()));
        for outcome in chain.run(vec![document]).await {
            // Writing to a String cannot fail.
            let _ = match outcome {
                Outcome::Unchanged => writeln!(text, "{title}: unchanged"),
                Outcome::Hidden => writeln!(text, "{title}: hidden"),
                Outcome::Edited(bytes) => writeln!(text, "{title}: edited\n{}", diff(&object, &bytes)),
                Outcome::Failed(failure) => {
                    summary.failed += 1;
                    writeln!(text, "{title}: failed ({}): {}", failure.class.label(), failure.message)
                }
            };
        }
    }
    Ok((text, summary))
}

/// Loads the filter as a set of one that matches all objects.
async fn load(flags: &RunFlags) -> Result<FilterSet, RunError> {
    let module = read(&flags.module, MAX_MODULE)?;
    let mut cluster = Vec::new();
    for path in &flags.cluster {
        cluster.extend(objects(path)?);
    }
    let endpoint = flags.pod_address.map(|address| Endpoint { host: address.to_string(), port: flags.secure_port });
    let view = FileView::new(&flags.node_name, cluster, Vec::new(), endpoint)
        .map_err(|source| RunError::Objects { what: "--cluster".to_owned(), source })?;
    let loader = loader(Arc::new(view))?;
    let mut entry = entry(flags)?;
    let digest = Digest::of(&module);
    loop {
        match loader.load(&entry, flags.module.display().to_string(), digest, &module).await {
            Ok(filter) => return Ok(FilterSet::new(vec![Arc::new(filter)])),
            // Here a lookup reads only the files of --cluster. In the daemon it needs the grant.
            Err(LoadError::Grant(resource)) if !entry.granted().contains(&resource) => {
                eprintln!("weir: note: the configuration of this filter needs {resource} in `grants`");
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
        _ => return Err(refused("--settings: not a JSON object".to_owned())),
    };
    // All given objects, whatever the module's own rules match.
    let every = "*/*".parse().map_err(|error| refused(format!("{error}")))?;
    Ok(FilterEntry { settings, ..FilterEntry::of(name, Some(vec![every])) })
}

fn objects(path: &Path) -> Result<Vec<Value>, RunError> {
    let bytes = read(path, MAX_OBJECTS)?;
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
    let mut options = DiffOptions::new();
    options.set_original_filename("before").set_modified_filename("after");
    options.create_patch(&before, &after).to_string()
}
