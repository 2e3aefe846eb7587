//! Looked-up objects and selections of them, with the values that filters read of them: a filter reads the same one or
//! two values of every object that it looks up, for as long as the object is the same. They also remember in which epoch
//! of a filter's dependency set a value was stored.
//!
//! Bounds: [`VALUES`] paths of an object or a selection, short texts only.

use std::borrow::Cow;
use std::fmt;
use std::hash::{BuildHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use weir_document::{Document, Error, Path};

use super::dependency::{EpochMark, UNREADABLE};
use super::view::Lookup;

/// How many paths are remembered; values at further ones are read, and stored as dependencies, each time.
const VALUES: usize = 16;
/// Longest text that is remembered, in bytes.
const TEXT: usize = 64;

/// A looked-up object.
pub struct CachedObject {
    document: Document,
    memory: Memory,
}

/// Objects that a label selector matches.
pub struct Selection {
    objects: Vec<Arc<CachedObject>>,
    identity: OnceLock<u64>,
    memory: Memory,
}

/// A successful lookup of one object.
#[derive(Debug, Clone)]
pub(super) struct LookupHit {
    pub(super) object: Arc<CachedObject>,
    pub(super) lookup: Arc<Lookup>,
}

/// A selection, and the lookup that made it.
#[derive(Debug)]
pub(super) struct SelectionHit {
    pub(super) selection: Arc<Selection>,
    pub(super) lookup: Arc<Lookup>,
    pub(super) namespace: Option<Box<str>>,
    pub(super) label_selector: Box<str>,
}

/// Values that were read.
#[derive(Default)]
pub(super) struct Memory(Mutex<Vec<Remembered>>);

/// What was read at a path; without one: that the object exists, or which objects are selected.
struct Remembered {
    at: Option<Path>,
    fingerprint: Option<u64>,
    /// A short text, or that there is none.
    text: Option<Option<Box<str>>>,
    /// Where and when the value was stored last as a dependency.
    stored: Option<EpochMark>,
}

impl CachedObject {
    /// Wraps an object; it becomes read-only.
    #[must_use]
    pub fn new(document: Document) -> Self {
        Self { document: document.read_only(), memory: Memory::default() }
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
    pub fn fingerprint(&self, at: &Path) -> Result<u64, Error> {
        self.memory.fingerprint(at, || self.document.fingerprint(at))
    }

    /// The value at a path as text.
    ///
    /// # Errors
    /// As [`Document::text`].
    pub fn text(&self, at: &Path) -> Result<Option<Cow<'_, str>>, Error> {
        if let Some(text) = self.memory.get(Some(at), |value| value.text.clone()) {
            return Ok(text.map(|text| Cow::Owned(text.into())));
        }
        let text = self.document.text(at)?;
        if text.as_ref().is_none_or(|text| text.len() <= TEXT) {
            self.memory.put(Some(at), |value| value.text = Some(text.as_deref().map(Into::into)));
        }
        Ok(text)
    }

    /// The value at a path as a dependency.
    pub(super) fn value(&self, at: &Path) -> u64 {
        self.fingerprint(at).unwrap_or(UNREADABLE)
    }

    pub(super) fn memory(&self) -> &Memory {
        &self.memory
    }
}

impl Selection {
    /// Wraps objects that are sorted by namespace and name.
    #[must_use]
    pub fn new(objects: Vec<Arc<CachedObject>>) -> Self {
        Self { objects, identity: OnceLock::new(), memory: Memory::default() }
    }

    /// The objects, sorted by namespace and name.
    #[must_use]
    pub fn objects(&self) -> &[Arc<CachedObject>] {
        &self.objects
    }

    /// One fingerprint over the values at a path in all objects, their order included.
    ///
    /// # Errors
    /// As [`Document::fingerprint`], for the first object that fails.
    pub fn fingerprint(&self, at: &Path) -> Result<u64, Error> {
        self.memory.fingerprint(at, || {
            self.objects.iter().try_fold(self.objects.len() as u64, |sum, object| {
                Ok(sum.rotate_left(5).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ object.fingerprint(at)?)
            })
        })
    }

    /// Which objects it holds, as a dependency.
    pub(super) fn identity(&self) -> u64 {
        *self.identity.get_or_init(|| {
            let mut hasher = foldhash::fast::FixedState::default().build_hasher();
            for object in &self.objects {
                object.document.namespace().ok().flatten().hash(&mut hasher);
                object.document.name().ok().hash(&mut hasher);
            }
            hasher.finish()
        })
    }

    /// The value at a path in all objects, as a dependency.
    pub(super) fn value(&self, at: &Path) -> u64 {
        self.fingerprint(at).unwrap_or(UNREADABLE).rotate_left(1) ^ self.identity()
    }

    pub(super) fn memory(&self) -> &Memory {
        &self.memory
    }
}

impl Memory {
    /// Whether the value is stored as a dependency in this epoch.
    pub(super) fn is_stored(&self, at: Option<&Path>, mark: EpochMark) -> bool {
        self.get(at, |value| value.stored) == Some(mark)
    }

    /// The value was stored as a dependency in this epoch.
    pub(super) fn mark_stored(&self, at: Option<&Path>, mark: EpochMark) {
        self.put(at, |value| value.stored = Some(mark));
    }

    fn fingerprint(&self, at: &Path, compute: impl FnOnce() -> Result<u64, Error>) -> Result<u64, Error> {
        if let Some(fingerprint) = self.get(Some(at), |value| value.fingerprint) {
            return Ok(fingerprint);
        }
        let fingerprint = compute()?;
        self.put(Some(at), |value| value.fingerprint = Some(fingerprint));
        Ok(fingerprint)
    }

    fn get<T>(&self, at: Option<&Path>, what: impl FnOnce(&Remembered) -> Option<T>) -> Option<T> {
        let values = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        values.iter().find(|value| value.at.as_ref() == at).and_then(what)
    }

    fn put(&self, at: Option<&Path>, change: impl FnOnce(&mut Remembered)) {
        let mut values = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(value) = values.iter_mut().find(|value| value.at.as_ref() == at) {
            change(value);
        } else if values.len() < VALUES {
            let mut new = Remembered { at: at.cloned(), fingerprint: None, text: None, stored: None };
            change(&mut new);
            values.reserve_exact(1);
            values.push(new);
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
    use super::super::dependency::Epoch;
    use super::*;

    fn path(text: &str) -> Path {
        Path::parse(text).unwrap()
    }

    #[test]
    fn a_value_is_stored_once_in_each_epoch_of_each_dependency_set() {
        let object = CachedObject::new(Document::json(r#"{"metadata":{"name":"a"},"x":"y"}"#.into()));
        let (one, other) = (Epoch::new(0), Epoch::new(0));
        let store = |at: Option<&Path>, epoch: &Epoch| {
            let stored = object.memory.is_stored(at, epoch.mark());
            object.memory.mark_stored(at, epoch.mark());
            stored
        };
        let x = path("x");
        assert!(!store(None, &one) && !store(Some(&x), &one));
        assert!(store(None, &one) && store(Some(&x), &one));
        assert!(!store(Some(&x), &other), "another set does not have it");
        one.advance(1);
        assert!(!store(Some(&x), &one), "the set was cleared");
    }

    #[test]
    fn short_texts_are_read_once() {
        let long = "z".repeat(TEXT + 1);
        let json = format!(r#"{{"metadata":{{"name":"a"}},"short":"\u0061b","long":"{long}","null":null}}"#);
        let object = CachedObject::new(Document::json(json.into()));
        for _ in 0..2 {
            for (at, text) in [("short", Some("ab")), ("long", Some(&*long)), ("null", None), ("missing", None)] {
                assert_eq!(object.text(&path(at)).unwrap().as_deref(), text, "{at}");
            }
        }
        assert!(object.text(&path("short[*]")).is_err(), "the path does not fit the read");
        assert_eq!(object.memory.get(Some(&path("long")), |value| value.text.clone()), None, "it is too long");
    }

    #[test]
    fn remembered_values_are_bounded() {
        let object = CachedObject::new(Document::json(r#"{"metadata":{"name":"a"}}"#.into()));
        for n in 0..2 * VALUES {
            assert_eq!(object.text(&path(&format!("x{n}"))).unwrap(), None);
        }
        assert_eq!(object.memory.0.lock().unwrap().len(), VALUES);
    }
}
