//! What all commands share: an engine with the user's compiled code, files of modules and objects, and filters whose lookups
//! never change.

use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use serde_json::Value;

use super::CommandError;
use crate::cache_directory::cache_directory;
use crate::config::Configuration;
use crate::config::author::{CompiledFlags, EntryFlags, ModuleFlags, WorldFlags};
use crate::logging::{Repeated, log_for_people};
use crate::lookups::FileView;
use crate::unpack::unpacked;
use weir_kube::{GroupResource, utf8, yaml_documents};
use weir_process::files::read_now;
use weir_runtime::{
    ClusterView, Compiler, Endpoint, Engine, EngineError, Filter, LoadError, Loader, LookupSource, Lookups, not_wasm,
};
use weir_spec::{Digest, FilterEntry, FilterName, LookupSpec, MAX_MODULE};
use weir_store::read_objects;

/// The largest file of objects in bytes.
const MAX_OBJECTS: usize = 256 << 20;

/// Lookups in objects that never change.
#[derive(Debug)]
struct StaticLookups(Arc<dyn ClusterView>);

/// Loads modules. Its loaders share what is compiled.
#[derive(Debug)]
pub struct Workbench(Loader);

impl LookupSource for StaticLookups {
    fn view(&self) -> Arc<dyn ClusterView> {
        self.0.clone()
    }

    fn follow(&self, _lookups: Vec<Arc<LookupSpec>>) -> BoxFuture<'static, Result<Lookups, String>> {
        // Objects that never change need no subscription.
        Box::pin(std::future::ready(Ok(Box::new(()) as Lookups)))
    }
}

impl Workbench {
    /// Creates a workbench that compiles modules in this process, without the limits that protect the daemon, and keeps
    /// nothing.
    ///
    /// # Errors
    /// This machine cannot run compiled modules.
    pub fn temporary() -> Result<Self, EngineError> {
        Ok(Self(Self::loader_of(Engine::new(None)?, None)))
    }

    /// Creates the workbench of a command, and shows the log. Modules are compiled as in the daemon. The user's cache has the
    /// result: modules of Python and JavaScript take seconds.
    pub(super) fn of(flags: &ModuleFlags, repeated: Repeated) -> Result<Self, CommandError> {
        Self::open(&flags.compiled, flags.verbosity, repeated)
    }

    /// The same for a command with a verbosity of its own.
    pub(super) fn open(compiled: &CompiledFlags, verbosity: u8, repeated: Repeated) -> Result<Self, CommandError> {
        log_for_people(verbosity, repeated);
        let Some(directory) = compiled.cache_dir() else { return Ok(Self::temporary()?) };
        let (directory, _) = cache_directory(Some(directory.clone())).map_err(CommandError::of_file(&directory))?;
        let (engine, compiler) = Compiler::open(&directory)?;
        Ok(Self(Self::loader_of(engine, Some(compiler))))
    }

    fn loader_of(engine: Engine, compiler: Option<Compiler>) -> Loader {
        let nothing: Arc<dyn ClusterView> = Arc::new(FileView::empty());
        Loader::new(engine, compiler, Arc::new(StaticLookups(nothing)), Arc::default(), 1)
    }

    /// Returns a loader for filters that see this world.
    #[must_use]
    pub fn loader(&self, view: FileView) -> Loader {
        self.0.reading(Arc::new(StaticLookups(Arc::new(view))))
    }
}

/// Loads a filter, and grants all its lookups, because it reads files only. `note` receives the lookups that a configuration
/// must grant.
pub(super) async fn load_granted(
    loader: &Loader,
    mut entry: FilterEntry,
    source: &str,
    module: &Bytes,
    note: impl Fn(&GroupResource),
) -> Result<Filter, LoadError> {
    let digest = Digest::of(module);
    loop {
        match loader.load(&entry, source.to_owned(), digest, module, || {}).await {
            Err(LoadError::Grant(resource)) if !entry.granted().contains(&resource) => {
                note(&resource);
                let mut grants = entry.granted();
                grants.push(resource);
                entry.grants = Some(grants);
            }
            loaded => return loaded,
        }
    }
}

/// Reads a file that is a module, also one that is compressed with gzip, or a configuration.
pub(super) fn read(path: &Path) -> Result<Bytes, CommandError> {
    let read = if path == Path::new("-") { standard_input() } else { read_now(path, MAX_MODULE) };
    let bytes = read.and_then(|bytes| unpacked(bytes.into()));
    bytes.map_err(CommandError::of_file(path))
}

/// The name of a file in messages.
pub(super) fn shown(path: &Path) -> String {
    if path == Path::new("-") { "standard input".to_owned() } else { path.display().to_string() }
}

/// Reads standard input, to the same bound as a file.
fn standard_input() -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let read = std::io::stdin().lock().take(MAX_MODULE as u64 + 1).read_to_end(&mut bytes)?;
    if read > MAX_MODULE {
        return Err(std::io::Error::other(format!("standard input has more than {MAX_MODULE} bytes")));
    }
    Ok(bytes)
}

/// Whether bytes are WebAssembly.
pub(super) fn is_module(bytes: &[u8]) -> bool {
    bytes.starts_with(b"\0asm")
}

/// Reads a module.
pub(super) fn module(path: &Path) -> Result<Bytes, CommandError> {
    let bytes = read(path)?;
    match not_wasm(&bytes) {
        Some(what) => Err(CommandError::invalid(path.display(), what)),
        None => Ok(bytes),
    }
}

/// Reads objects. `-` is standard input.
pub(super) fn objects(path: &Path) -> Result<Vec<Value>, CommandError> {
    objects_in(path, &text_of(path)?)
}

/// Reads the objects that a command is about. A file without any is a mistake, and an empty list is said.
pub(super) fn some_objects(path: &Path) -> Result<Vec<Value>, CommandError> {
    let text = text_of(path)?;
    let objects = objects_in(path, &text)?;
    if objects.is_empty() {
        if yaml_documents(&text).is_ok_and(|documents| documents.is_empty()) {
            let reason = "it has no object: give Kubernetes objects as YAML documents, JSON or a list";
            return Err(CommandError::invalid(shown(path), reason));
        }
        eprintln!("{}: its list has no object", shown(path));
    }
    Ok(objects)
}

fn objects_in(path: &Path, text: &str) -> Result<Vec<Value>, CommandError> {
    read_objects(text).map_err(|source| CommandError::Objects { what: shown(path), source })
}

/// Reads a text. `-` is standard input.
fn text_of(path: &Path) -> Result<String, CommandError> {
    let failed = CommandError::of_file(path);
    let bytes = if path.as_os_str() == "-" {
        let mut bytes = Vec::new();
        std::io::stdin().lock().take(MAX_OBJECTS as u64 + 1).read_to_end(&mut bytes).map_err(&failed)?;
        if bytes.len() > MAX_OBJECTS {
            return Err(failed(std::io::Error::other(format!("larger than {MAX_OBJECTS} bytes"))));
        }
        bytes
    } else {
        read_now(path, MAX_OBJECTS).map_err(failed)?
    };
    let text = utf8(&bytes).map_err(|reason| CommandError::invalid(shown(path), reason))?;
    Ok(text.to_owned())
}

/// Parses what was read from a filters file or a ConfigMap.
pub(super) fn configuration(path: &Path, bytes: &[u8]) -> Result<Configuration, CommandError> {
    if is_module(bytes) {
        return Err(CommandError::invalid(shown(path), "it is a module, give a configuration"));
    }
    let name = shown(path);
    let text = utf8(bytes).map_err(|reason| CommandError::invalid(&name, reason))?;
    if text.trim().is_empty() {
        return Err(CommandError::invalid(name, "it is empty: give a filters file or the manifest of a ConfigMap"));
    }
    let configuration = Configuration::from_file(&name, text)?;
    for warning in &configuration.warnings {
        eprintln!("{name}: warning: {warning}");
    }
    Ok(configuration)
}

/// Returns the entry of a module: that of `--filters`, or one with `--settings`.
pub(super) fn entry(flags: &EntryFlags, module: &Path) -> Result<FilterEntry, CommandError> {
    match &flags.filters {
        None => entry_of(module, &flags.settings),
        Some(path) => listed_entry(path, flags.filter.as_deref(), module),
    }
}

/// Returns the entry of a module that no configuration names.
pub(super) fn entry_of(module: &Path, settings: &str) -> Result<FilterEntry, CommandError> {
    let invalid = |reason: String| CommandError::invalid(shown(module), reason);
    let file = if module == Path::new("-") { Path::new("stdin") } else { module };
    let name = FilterName::of_file(file).ok_or_else(|| {
        invalid("its file name has no letter or digit, so that the filter has no name: rename the file".to_owned())
    })?;
    let settings = match serde_json::from_str(settings) {
        Ok(Value::Object(settings)) => settings,
        _ => return Err(invalid("--settings: not a JSON object".to_owned())),
    };
    Ok(FilterEntry { settings, ..FilterEntry::of(name, None) })
}

fn listed_entry(path: &Path, name: Option<&str>, module: &Path) -> Result<FilterEntry, CommandError> {
    let filters = configuration(path, &read(path)?)?.filters;
    let file = module.file_name().and_then(|file| file.to_str()).unwrap_or_default();
    let position = match name {
        Some(name) => filters.iter().position(|entry| entry.name.as_str() == name),
        None => filters
            .iter()
            .position(|entry| entry.module.file() == Some(file))
            .or_else(|| (filters.len() == 1).then_some(0)),
    };
    let found = position.and_then(|position| filters.into_iter().nth(position));
    // The digest is that of a release, and not of what an author builds.
    found.map(|entry| FilterEntry { digest: None, ..entry }).ok_or_else(|| {
        let wanted = name.map_or_else(|| format!("with the module {file}"), |name| format!("named {name}"));
        CommandError::invalid(path.display(), format!("it has no filter {wanted}"))
    })
}

/// Returns what a filter sees beside its objects.
pub(super) fn world(flags: &WorldFlags) -> Result<FileView, CommandError> {
    let mut cluster = Vec::new();
    for path in &flags.cluster {
        cluster.extend(objects(path)?);
    }
    let endpoint = flags.pod_address.map(|address| Endpoint { host: address.to_string(), port: flags.secure_port });
    FileView::new(&flags.node_name, cluster, Vec::new(), endpoint)
        .map_err(|source| CommandError::Objects { what: "--cluster".to_owned(), source })
}

/// What a filter sees without a cluster. The address for pods is that of the manifests: a daemon would know its own.
pub(super) fn seen(node: &str) -> Result<FileView, CommandError> {
    let endpoint = Endpoint { host: "169.254.20.10".to_owned(), port: 10268 };
    FileView::new(node, [], Vec::new(), Some(endpoint))
        .map_err(|source| CommandError::Objects { what: "no objects".to_owned(), source })
}

/// Runs the future of a command.
pub(super) fn block_on<T>(command: impl Future<Output = Result<T, CommandError>>) -> Result<T, CommandError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(CommandError::System)?;
    runtime.block_on(command)
}
