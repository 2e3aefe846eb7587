//! What a cache on disk is opened with, and what its stores are called.

use std::ffi::OsStr;
use std::fs::OpenOptions;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use weir_kube::GroupResource;
use weir_upstream::Connectivity;

use super::overlay::Overlay;
use super::ready_time::ReadyTime;
use super::storage::OpenedStorage;
use crate::cache::{Collection, ObjectContent};

/// The longest read: the first one verifies the whole file, which takes a slow disk half a minute.
pub(super) const READ_DEADLINE: Duration = Duration::from_secs(120);
/// The longest one while the API server answers.
pub(super) const READ_ONLINE: Duration = Duration::from_secs(2);
/// After this time a commit is worth a line.
pub(super) const LONG: Duration = Duration::from_secs(10);

/// The forms of the file: the present one first, then those that this release reads. A new form comes before its predecessor,
/// which stays.
pub(super) const FORMS: &[Form] = &[PRESENT];
const PRESENT: Form = Form { format: "1", file: "watch-cache.redb" };

/// What a release writes. Each form has a file of its own, so that a roll-back finds what the older release has left, and the
/// next upgrade what the newer one has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Form {
    /// The version of the tables' content, as the file has it.
    pub(super) format: &'static str,
    /// The file name in the cache directory.
    pub(super) file: &'static str,
}

/// Opens the storage of the database. Tests replace it.
pub(super) type OpenStorage = Arc<dyn Fn() -> io::Result<OpenedStorage> + Send + Sync>;

/// The settings of a cache on disk.
#[derive(Clone)]
#[expect(missing_debug_implementations, reason = "the way to open the storage has no representation")]
pub struct DiskConfig {
    /// The database file.
    pub(super) path: PathBuf,
    /// The form of that file.
    pub(super) form: Form,
    /// The older forms beside it.
    pub(super) older: &'static [Form],
    /// The key file.
    pub(super) key_file: KeyFile,
    /// The name of this node.
    pub(super) node_name: String,
    /// The most bytes of all stores. Stores that nobody uses are evicted first.
    pub max_bytes: u64,
    /// The longest time between a change and its commit, the commit itself aside.
    pub commit_interval: Duration,
    /// So many bytes of changes are committed before the interval ends.
    pub commit_bytes: u64,
    /// How often a resourceVersion that moves without a change of an object is committed.
    pub(crate) bookmark_interval: Duration,
    /// How long a restore waits for the identity of the cluster. An unreachable API server cannot report it.
    pub(crate) identity_wait: Duration,
    /// Whether an API server can be reached: during an outage, only what was added since gives way.
    pub connectivity: Option<Connectivity>,
    /// Where an earlier release had the cache directory. It goes after a day of being ready, with the key beside it.
    pub former: Option<PathBuf>,
    /// For how long the daemon has been ready and online.
    pub(super) ready: Arc<ReadyTime>,
    pub(super) storage: OpenStorage,
    /// Opens it while it cannot be written.
    pub(super) readable: OpenStorage,
}

/// Where the encryption key is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum KeyFile {
    /// It is created if it does not exist.
    Own {
        /// Where it is.
        path: PathBuf,
        /// Where an earlier start may have created it. It is moved from there.
        former: Option<PathBuf>,
    },
    /// Supplied by the host. It must exist.
    Given(PathBuf),
}

impl KeyFile {
    pub(super) fn path(&self) -> &Path {
        match self {
            Self::Own { path, .. } | Self::Given(path) => path,
        }
    }

    /// Whether there is a key, at its place or where it was.
    pub(super) fn exists(&self) -> bool {
        let former = match self {
            Self::Own { former, .. } => former.as_deref(),
            Self::Given(_) => None,
        };
        self.path().exists() || former.is_some_and(Path::exists)
    }
}

impl DiskConfig {
    /// The settings of a cache in this directory, which only this daemon uses.
    #[must_use]
    pub fn new(directory: &Path, node_name: &str) -> Self {
        Self::with_forms(directory, node_name, FORMS)
    }

    /// Whether a file of a cache directory has this name because it is a watch cache of any form.
    #[must_use]
    pub fn is_watch_cache(name: &OsStr) -> bool {
        FORMS.iter().any(|form| name == form.file)
    }

    /// The same for these forms, of which there is at least one.
    pub(super) fn with_forms(directory: &Path, node_name: &str, forms: &'static [Form]) -> Self {
        let (form, older) = forms.split_first().map_or((PRESENT, forms), |(form, older)| (*form, older));
        let path = directory.join(form.file);
        let mut key = directory.as_os_str().to_owned();
        key.push(".key");
        let (storage, readable) = (file_storage(path.clone()), readable_storage(path.clone()));
        Self {
            path,
            form,
            older,
            key_file: KeyFile::Own { path: key.into(), former: None },
            node_name: node_name.to_owned(),
            max_bytes: 512 << 20,
            commit_interval: Duration::from_millis(500),
            commit_bytes: 4 << 20,
            bookmark_interval: Duration::from_secs(10),
            identity_wait: Duration::from_millis(100),
            connectivity: None,
            former: None,
            ready: Arc::default(),
            storage,
            readable,
        }
    }

    /// The same settings, for a file that was set aside.
    pub(super) fn of_file(&self, path: PathBuf) -> Self {
        let (storage, readable) = (file_storage(path.clone()), readable_storage(path.clone()));
        Self { path, storage, readable, ..self.clone() }
    }

    /// The settings of each file that an earlier release may have left: of the older forms, and in the former directory. The newest
    /// form comes first.
    pub(super) fn predecessors(&self) -> Vec<Self> {
        let older = self.older.iter().map(|form| (self.path.with_file_name(form.file), *form));
        let forms = std::iter::once(self.form).chain(self.older.iter().copied());
        let former = self.former.iter().flat_map(|former| forms.clone().map(|form| (former.join(form.file), form)));
        older.chain(former).map(|(path, form)| Self { form, ..self.of_file(path) }).collect()
    }

    pub(super) fn file_name(&self) -> String {
        self.path.display().to_string()
    }

    /// Reads the encryption key from this file.
    #[must_use]
    pub fn with_key_file(self, path: Option<PathBuf>) -> Self {
        let key_file = path.map_or(self.key_file, KeyFile::Given);
        Self { key_file, ..self }
    }

    /// Keeps the generated key in this directory, and moves one there that is beside the cache.
    #[must_use]
    pub fn with_key_dir(self, directory: Option<&Path>) -> Self {
        let key_file = match (directory, self.key_file) {
            (Some(directory), KeyFile::Own { path, .. }) => {
                let moved = directory.join(path.file_name().unwrap_or("cache.key".as_ref()));
                let former = (path != moved).then_some(path);
                KeyFile::Own { path: moved, former }
            }
            (_, other) => other,
        };
        Self { key_file, ..self }
    }
}

/// A database file that only this user can read.
fn file_storage(path: PathBuf) -> OpenStorage {
    use std::os::unix::fs::OpenOptionsExt as _;
    Arc::new(move || {
        create_parent(&path)?;
        is_file(&path)?;
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(&path);
        let file = file.map_err(|error| match error.kind() {
            io::ErrorKind::PermissionDenied if path.exists() => {
                io::Error::new(io::ErrorKind::InvalidData, "its owner or its mode keeps this user from it")
            }
            _ => error,
        })?;
        OpenedStorage::in_file(file)
    })
}

/// Creates the directory of a file, for this user alone.
pub(super) fn create_parent(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt as _;
    path.parent().map_or(Ok(()), |directory| std::fs::DirBuilder::new().recursive(true).mode(0o700).create(directory))
}

/// A database file that is only read.
fn readable_storage(path: PathBuf) -> OpenStorage {
    Arc::new(move || {
        is_file(&path)?;
        let file = OpenedStorage::in_file(OpenOptions::new().read(true).open(&path)?)?;
        Ok(Arc::new(Overlay::new(file.backend)?).into())
    })
}

/// Reading a pipe would take for ever, and a link may lead anywhere.
fn is_file(path: &Path) -> io::Result<()> {
    match std::fs::symlink_metadata(path) {
        Ok(found) if !found.is_file() => Err(io::Error::new(io::ErrorKind::InvalidData, "it is not a file")),
        _ => Ok(()),
    }
}

/// The name of a store on disk: its collection, and the identity that read it. Nobody else is served from it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct StoreName {
    identity: String,
    resource: String,
    group: String,
    version: String,
    path: String,
    field_selector: String,
    label_selector: String,
    #[serde(default)]
    content: ObjectContent,
}

impl StoreName {
    /// Names the store of a collection that this identity reads.
    #[must_use]
    pub(crate) fn new(identity: &str, collection: &Collection) -> Self {
        Self {
            identity: identity.to_owned(),
            resource: collection.resource.resource.clone(),
            group: collection.resource.group.clone(),
            version: collection.version.clone(),
            path: collection.path.clone(),
            field_selector: collection.field_selector.clone(),
            label_selector: collection.label_selector.clone(),
            content: collection.content,
        }
    }

    /// The identity that read the store.
    #[must_use]
    pub(crate) fn identity(&self) -> &str {
        &self.identity
    }

    /// The collection.
    #[must_use]
    pub(crate) fn collection(&self) -> Collection {
        Collection {
            resource: GroupResource::new(&self.resource, &self.group),
            version: self.version.clone(),
            path: self.path.clone(),
            field_selector: self.field_selector.clone(),
            label_selector: self.label_selector.clone(),
            parameters: String::new(),
            content: self.content,
        }
    }
}

impl std::fmt::Display for StoreName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({})", self.collection(), self.identity)
    }
}

/// Whether the objects of a store are encrypted on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Confidentiality {
    /// Objects that every node may read. They are compressed.
    Plain,
    /// Secrets and tokens. They are encrypted, and not compressed: the size of compressed data reveals something about its
    /// content.
    Encrypted,
}
