//! Looked-up objects with a cache of their reads. Filters read the same one or two values of each object until it
//! changes. A reader that records its reads marks them, so that it records each only once.
//!
//! Bounds: the cache has [`KNOWN`] paths of an object or a selection, and short texts only.

use std::borrow::Cow;
use std::fmt;
use std::hash::{BuildHasher, DefaultHasher, Hash, Hasher, RandomState};
use std::sync::{Arc, LazyLock, Mutex, OnceLock, PoisonError};

use weir_document::{Document, Error, Path};

/// The maximum number of cached paths. Other values are read and recorded each time.
const KNOWN: usize = 16;
/// The maximum length of a cached text in bytes.
const TEXT: usize = 64;

/// A looked-up object.
pub struct CachedObject {
    document: Document,
    memory: Memory,
}

/// Objects found by a selector.
pub struct Selection {
    objects: Vec<Arc<CachedObject>>,
    identity: OnceLock<u64>,
    memory: Memory,
}

/// The recorder of a read and its generation. Opaque here.
type Mark = (u64, u64);

/// The fingerprint of a value that cannot be read.
const UNREADABLE: u64 = 0x7265_6164_6572_726f;

/// The key of the fingerprints of selections: SipHash with one random key per process. Without the key nobody can choose
/// names of objects so that two selections have the same fingerprint, which a filter would take for the same objects.
static KEY: LazyLock<RandomState> = LazyLock::new(RandomState::new);

/// A hasher for the fingerprint of what tenants choose. Equal input has an equal fingerprint for the life of the process.
#[must_use]
pub fn keyed_hasher() -> DefaultHasher {
    KEY.build_hasher()
}

/// The cached reads.
#[derive(Default)]
struct Memory(Mutex<Vec<Known>>);

/// The cached reads of a path. Without a path: the existence of the object, or the identity of the objects.
struct Known {
    at: Option<Path>,
    fingerprint: Option<u64>,
    /// A short text, or none if the value is missing.
    text: Option<Option<Box<str>>>,
    marked: Option<Mark>,
}

impl CachedObject {
    /// Wraps an object and makes it read-only.
    pub fn new(document: Document) -> Self {
        Self { document: document.read_only(), memory: Memory::default() }
    }

    /// Returns the object.
    pub fn document(&self) -> &Document {
        &self.document
    }

    /// Returns the fingerprint of the value at a path.
    ///
    /// # Errors
    /// Like [`Document::fingerprint`].
    pub fn fingerprint(&self, at: &Path) -> Result<u64, Error> {
        self.memory.fingerprint(at, || self.document.fingerprint(at))
    }

    /// Returns the value at a path as text.
    ///
    /// # Errors
    /// Like [`Document::text`].
    pub fn text(&self, at: &Path) -> Result<Option<Cow<'_, str>>, Error> {
        if let Some(text) = self.memory.get(Some(at), |known| known.text.clone()) {
            return Ok(text.map(|text| Cow::Owned(text.into())));
        }
        let text = self.document.text(at)?;
        if text.as_ref().is_none_or(|text| text.len() <= TEXT) {
            self.memory.put(Some(at), |known| known.text = Some(text.as_deref().map(Into::into)));
        }
        Ok(text)
    }

    /// Returns the fingerprint of the value at a path. A value that cannot be read has a fixed fingerprint.
    pub fn value(&self, at: &Path) -> u64 {
        self.fingerprint(at).unwrap_or(UNREADABLE)
    }

    /// Returns whether the read of a path has this mark. No path stands for the existence of the object.
    pub fn is_marked(&self, at: Option<&Path>, mark: Mark) -> bool {
        self.memory.get(at, |known| known.marked) == Some(mark)
    }

    /// Marks the read of a path. No path stands for the existence of the object.
    pub fn mark(&self, at: Option<&Path>, mark: Mark) {
        self.memory.put(at, |known| known.marked = Some(mark));
    }
}

impl Selection {
    /// Wraps objects, which must be sorted by namespace and name.
    pub fn new(objects: Vec<Arc<CachedObject>>) -> Self {
        Self { objects, identity: OnceLock::new(), memory: Memory::default() }
    }

    /// Returns the objects, sorted by namespace and name.
    pub fn objects(&self) -> &[Arc<CachedObject>] {
        &self.objects
    }

    /// Returns one fingerprint of the values at a path in all objects, in their order.
    ///
    /// # Errors
    /// The error of the first object that fails, like [`Document::fingerprint`].
    pub fn fingerprint(&self, at: &Path) -> Result<u64, Error> {
        self.memory.fingerprint(at, || {
            let mut hasher = keyed_hasher();
            self.objects.len().hash(&mut hasher);
            for object in &self.objects {
                object.fingerprint(at)?.hash(&mut hasher);
            }
            Ok(hasher.finish())
        })
    }

    /// Returns the fingerprint of the objects' namespaces and names.
    pub fn identity(&self) -> u64 {
        *self.identity.get_or_init(|| {
            let mut hasher = keyed_hasher();
            self.objects.len().hash(&mut hasher);
            for object in &self.objects {
                object.document.namespace().ok().flatten().hash(&mut hasher);
                object.document.name().ok().hash(&mut hasher);
            }
            hasher.finish()
        })
    }

    /// Returns the fingerprint of the objects' identity and of the values at a path. Values that cannot be read have a
    /// fixed fingerprint.
    pub fn value(&self, at: &Path) -> u64 {
        let mut hasher = keyed_hasher();
        (self.fingerprint(at).unwrap_or(UNREADABLE), self.identity()).hash(&mut hasher);
        hasher.finish()
    }

    /// Returns whether the read of a path has this mark. No path stands for the identity of the objects.
    pub fn is_marked(&self, at: Option<&Path>, mark: Mark) -> bool {
        self.memory.get(at, |known| known.marked) == Some(mark)
    }

    /// Marks the read of a path. No path stands for the identity of the objects.
    pub fn mark(&self, at: Option<&Path>, mark: Mark) {
        self.memory.put(at, |known| known.marked = Some(mark));
    }
}

impl Memory {
    fn fingerprint(&self, at: &Path, compute: impl FnOnce() -> Result<u64, Error>) -> Result<u64, Error> {
        if let Some(fingerprint) = self.get(Some(at), |known| known.fingerprint) {
            return Ok(fingerprint);
        }
        let fingerprint = compute()?;
        self.put(Some(at), |known| known.fingerprint = Some(fingerprint));
        Ok(fingerprint)
    }

    fn get<T>(&self, at: Option<&Path>, what: impl FnOnce(&Known) -> Option<T>) -> Option<T> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.iter().find(|known| known.at.as_ref() == at).and_then(what)
    }

    fn put(&self, at: Option<&Path>, value: impl FnOnce(&mut Known)) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = known.iter_mut().find(|known| known.at.as_ref() == at) {
            value(known);
        } else if known.len() < KNOWN {
            let mut new = Known { at: at.cloned(), fingerprint: None, text: None, marked: None };
            value(&mut new);
            known.reserve_exact(1);
            known.push(new);
        }
    }
}

impl fmt::Debug for CachedObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CachedObject").field("document", &self.document).finish_non_exhaustive()
    }
}

impl fmt::Debug for Selection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Selection").field("objects", &self.objects.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> Path {
        Path::parse(text).unwrap()
    }

    #[test]
    fn short_texts_are_cached_and_all_texts_are_those_of_the_object() {
        let long = "z".repeat(TEXT + 1);
        let json = format!(r#"{{"metadata":{{"name":"a"}},"short":"\u0061b","long":"{long}","null":null}}"#);
        let object = CachedObject::new(Document::json(json.into()));
        for _ in 0..2 {
            for (at, text) in [("short", Some("ab")), ("long", Some(&*long)), ("null", None), ("missing", None)] {
                assert_eq!(object.text(&path(at)).unwrap().as_deref(), text, "{at}");
            }
        }
        assert!(object.text(&path("short[*]")).is_err(), "text needs a path without [*]");
        assert_eq!(object.memory.get(Some(&path("long")), |known| known.text.clone()), None, "it is too long");
    }

    #[test]
    fn nobody_can_compute_the_fingerprints_of_selections() {
        let named = |name: &str| {
            Arc::new(CachedObject::new(Document::json(format!(r#"{{"metadata":{{"name":"{name}"}},"x":"y"}}"#).into())))
        };
        let (one, same, other) = (
            Selection::new(vec![named("a"), named("b")]),
            Selection::new(vec![named("a"), named("b")]),
            Selection::new(vec![named("b"), named("a")]),
        );
        assert_eq!((one.identity(), one.value(&path("x"))), (same.identity(), same.value(&path("x"))));
        assert_ne!(one.identity(), other.identity());
        assert_ne!(one.value(&path("x")), other.value(&path("x")), "other objects with the same values");
        // With a known key, a user who names objects can look for two selections that collide.
        let mut known = DefaultHasher::new();
        for name in ["a", "b"] {
            None::<std::borrow::Cow<'_, str>>.hash(&mut known);
            Some(std::borrow::Cow::Borrowed(name)).hash(&mut known);
        }
        assert_ne!(one.identity(), known.finish());
        let folded = one.objects().iter().try_fold(2_u64, |sum, object| {
            Ok::<_, Error>(sum.rotate_left(5).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ object.fingerprint(&path("x"))?)
        });
        assert_ne!(one.fingerprint(&path("x")).unwrap(), folded.unwrap());
    }

    #[test]
    fn the_cache_is_bounded() {
        let object = CachedObject::new(Document::json(r#"{"metadata":{"name":"a"}}"#.into()));
        for n in 0..2 * KNOWN {
            assert_eq!(object.text(&path(&format!("x{n}"))).unwrap(), None);
        }
        assert_eq!(object.memory.0.lock().unwrap().len(), KNOWN);
    }
}
