//! What a filter may read beside its object, as a trait: the daemon answers from feeds, `weir run` from files.
//!
//! Every answer is from memory and never waits. A [`Snapshot`] is one consistent state: it is taken once per call of a
//! filter and dropped with it.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use weir_document::{Document, Path};

use crate::resource::GroupResource;

/// One kind that a module's plan declares; see `lookup` in `wit/module.wit`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Lookup {
    /// The kind.
    pub resource: GroupResource,
    /// API versions the module can read, preferred first; empty: the server's preferred one.
    pub versions: Vec<String>,
    /// Only the object of this name.
    pub name: Option<String>,
    /// Only objects that this label selector matches.
    pub label_selector: Option<String>,
    /// PartialObjectMetadata is enough.
    pub metadata_only: bool,
    /// A server without the kind has none of it either way; if false, that is worth a warning.
    pub optional: bool,
}

/// One address of one of the node's interfaces.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Address {
    /// `eth0`.
    pub interface_name: String,
    /// The address, v4 or v6.
    pub ip: std::net::IpAddr,
    /// Of the on-link prefix.
    pub prefix_length: u8,
    /// Whether a default route of this family leaves through the interface.
    pub default_route: bool,
}

/// Where pods of this node reach the daemon.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Endpoint {
    /// An IP address.
    pub host: String,
    /// TCP port.
    pub port: u16,
}

/// The node and the cluster as filters see them.
pub trait World: Send + Sync + fmt::Debug {
    /// One consistent state of all looked-up kinds. Cheap: pointers are cloned, nothing is copied.
    fn snapshot(&self) -> Arc<dyn Snapshot>;
    /// The name of the node that the daemon runs on.
    fn node_name(&self) -> &str;
    /// The daemon's own endpoint for pods, if it has one.
    fn secure_endpoint(&self) -> Option<Endpoint>;
}

/// Where reads are recorded, so that a change of what a filter looked up is told from a change of what it did not.
pub trait Recorder: Send + Sync + fmt::Debug {
    /// Moves when what was recorded no longer counts: what is read from then on is to be recorded again.
    fn generation(&self) -> u64;
    /// A value was read. Called for every read: it must be cheap when nothing is new.
    fn note(&self, read: &Read, value: u64);
}

/// One consistent state. Objects are unfiltered.
pub trait Snapshot: Send + Sync + fmt::Debug {
    /// A number that no other state of the same world has.
    fn version(&self) -> u64;
    /// One object, or nothing. `lookup` is the declared lookup that covers the question.
    fn get(&self, lookup: &Lookup, namespace: Option<&str>, name: &str) -> Option<Arc<LookedUp>>;
    /// The objects of a namespace (or all) that a label selector matches, sorted by namespace and name.
    /// `Err` when the selector is malformed.
    fn find(&self, lookup: &Lookup, namespace: Option<&str>, label_selector: &str) -> Result<Arc<Selection>, String>;
    /// The node's addresses at this moment.
    fn addresses(&self) -> Arc<[Address]>;
}

/// A looked-up object with the fingerprints that were asked of it: a filter asks for the same ones for every object.
pub struct LookedUp {
    document: Document,
    fingerprints: Mutex<HashMap<Path, u64, foldhash::fast::RandomState>>,
}

/// Objects found by a selector, with the fingerprints that were asked of them.
pub struct Selection {
    objects: Vec<Arc<LookedUp>>,
    identity: OnceLock<u64>,
    fingerprints: Mutex<HashMap<Path, u64, foldhash::fast::RandomState>>,
}

/// How many fingerprints are remembered per object or selection; past it they are computed again each time.
const FINGERPRINTS: usize = 64;

impl LookedUp {
    /// Wraps an object; it becomes read-only.
    #[must_use]
    pub fn new(document: Document) -> Self {
        Self { document: document.read_only(), fingerprints: Mutex::default() }
    }

    /// The object.
    #[must_use]
    pub fn document(&self) -> &Document {
        &self.document
    }

    /// The fingerprint of the value at a path.
    ///
    /// # Errors
    /// As [`Document::fingerprint`].
    pub fn fingerprint(&self, at: &Path) -> Result<u64, weir_document::Error> {
        remembered(&self.fingerprints, at, || self.document.fingerprint(at))
    }
}

impl Selection {
    /// Wraps objects that are sorted by namespace and name.
    #[must_use]
    pub fn new(objects: Vec<Arc<LookedUp>>) -> Self {
        Self { objects, identity: OnceLock::new(), fingerprints: Mutex::default() }
    }

    /// The objects, sorted by namespace and name.
    #[must_use]
    pub fn objects(&self) -> &[Arc<LookedUp>] {
        &self.objects
    }

    /// One fingerprint over the values at a path in all objects, their order included.
    ///
    /// # Errors
    /// As [`Document::fingerprint`], for the first object that fails.
    pub fn fingerprint(&self, at: &Path) -> Result<u64, weir_document::Error> {
        remembered(&self.fingerprints, at, || {
            self.objects.iter().try_fold(self.objects.len() as u64, |sum, object| {
                Ok(sum.rotate_left(5).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ object.fingerprint(at)?)
            })
        })
    }
}

fn remembered<E>(
    known: &Mutex<HashMap<Path, u64, foldhash::fast::RandomState>>,
    at: &Path,
    compute: impl FnOnce() -> Result<u64, E>,
) -> Result<u64, E> {
    if let Some(found) = known.lock().unwrap_or_else(PoisonError::into_inner).get(at) {
        return Ok(*found);
    }
    let value = compute()?;
    let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
    if known.len() < FINGERPRINTS {
        known.insert(at.clone(), value);
    }
    Ok(value)
}

impl fmt::Debug for LookedUp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LookedUp").field("document", &self.document).finish_non_exhaustive()
    }
}

impl fmt::Debug for Selection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Selection").field("objects", &self.objects.len()).finish_non_exhaustive()
    }
}

/// A read that a filter made beside its object, as recorded: what was asked, so that it can be asked again.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Read {
    /// Whether an object exists (`at: None`), or a value in it.
    Object {
        /// The lookup that answered.
        lookup: Arc<Lookup>,
        /// As asked.
        namespace: Option<Box<str>>,
        /// As asked.
        name: Box<str>,
        /// The path read; none: only whether the object exists.
        at: Option<Path>,
    },
    /// Which objects a selection holds (`at: None`), or a value in all of them.
    Selection {
        /// The lookup that answered.
        lookup: Arc<Lookup>,
        /// As asked.
        namespace: Option<Box<str>>,
        /// As asked.
        label_selector: Box<str>,
        /// The path read; none: only the objects' names.
        at: Option<Path>,
    },
    /// The node's addresses.
    Addresses,
}

impl Read {
    /// Reads again, as it is now. Equal to what was recorded while nothing that counts has changed.
    #[must_use]
    pub fn value(&self, snapshot: &dyn Snapshot) -> u64 {
        match self {
            Self::Object { lookup, namespace, name, at } => {
                match (snapshot.get(lookup, namespace.as_deref(), name), at) {
                    (Some(object), Some(at)) => value_at(&object, at),
                    (found, _) => u64::from(found.is_some()),
                }
            }
            Self::Selection { lookup, namespace, label_selector, at } => {
                match (snapshot.find(lookup, namespace.as_deref(), label_selector), at) {
                    (Ok(selection), Some(at)) => selection_value_at(&selection, at),
                    (Ok(selection), None) => identity_of(&selection),
                    (Err(_), _) => UNREADABLE,
                }
            }
            Self::Addresses => addresses_value(&snapshot.addresses()),
        }
    }
}

/// Stands for a value that can't be read.
const UNREADABLE: u64 = 0x7265_6164_6572_726f;

/// The recorded form of a value in an object.
#[must_use]
pub(super) fn value_at(object: &LookedUp, at: &Path) -> u64 {
    object.fingerprint(at).unwrap_or(UNREADABLE)
}

/// The recorded form of a value in all objects of a selection.
#[must_use]
pub(super) fn selection_value_at(selection: &Selection, at: &Path) -> u64 {
    selection.fingerprint(at).unwrap_or(UNREADABLE).rotate_left(1) ^ identity_of(selection)
}

/// The recorded form of which objects a selection holds.
#[must_use]
pub(super) fn identity_of(selection: &Selection) -> u64 {
    use std::hash::{BuildHasher, Hash, Hasher};
    *selection.identity.get_or_init(|| {
        let mut hasher = foldhash::fast::FixedState::default().build_hasher();
        for object in &selection.objects {
            object.document.namespace().ok().flatten().hash(&mut hasher);
            object.document.name().ok().hash(&mut hasher);
        }
        hasher.finish()
    })
}

/// The recorded form of the node's addresses.
#[must_use]
pub(super) fn addresses_value(addresses: &[Address]) -> u64 {
    use std::hash::BuildHasher;
    foldhash::fast::FixedState::default().hash_one(addresses)
}
