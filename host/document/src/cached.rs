//! Objects that many calls read, with what was read of them: filters read the same one or two values of every object, for
//! as long as it is the same one. Readers that record their reads mark those that they have.
//!
//! Bounds: [`KNOWN`] values of an object or a selection, of texts only short ones.

use std::borrow::Cow;
use std::fmt;
use std::hash::{BuildHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use crate::{Document, Error, Path};

/// How many paths are remembered; past it values are read, and recorded, again each time.
const KNOWN: usize = 16;
/// Longest text of an object that is remembered, in bytes.
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

/// Who has recorded a read, and in which of its generations. Opaque here.
type Mark = (u64, u64);

/// Stands for a value that can't be read.
const UNREADABLE: u64 = 0x7265_6164_6572_726f;

/// Values that were read.
#[derive(Default)]
struct Memory(Mutex<Vec<Known>>);

/// What was read at a path; without one: that it is there, or which they are.
struct Known {
    at: Option<Path>,
    fingerprint: Option<u64>,
    /// A short one, or that there is none.
    text: Option<Option<Box<str>>>,
    marked: Option<Mark>,
}

impl CachedObject {
    /// Wraps an object; it becomes read-only.
    pub fn new(document: Document) -> Self {
        Self { document: document.read_only(), memory: Memory::default() }
    }

    /// The object.
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
        if let Some(text) = self.memory.get(Some(at), |known| known.text.clone()) {
            return Ok(text.map(|text| Cow::Owned(text.into())));
        }
        let text = self.document.text(at)?;
        if text.as_ref().is_none_or(|text| text.len() <= TEXT) {
            self.memory.put(Some(at), |known| known.text = Some(text.as_deref().map(Into::into)));
        }
        Ok(text)
    }

    /// The recorded form of a value in it.
    pub fn value(&self, at: &Path) -> u64 {
        self.fingerprint(at).unwrap_or(UNREADABLE)
    }

    /// Whether the read of the value at a path (without one: that it is there) bears this mark.
    pub fn is_marked(&self, at: Option<&Path>, mark: Mark) -> bool {
        self.memory.get(at, |known| known.marked) == Some(mark)
    }

    /// Marks the read of the value at a path, or that it is there.
    pub fn mark(&self, at: Option<&Path>, mark: Mark) {
        self.memory.put(at, |known| known.marked = Some(mark));
    }
}

impl Selection {
    /// Wraps objects that are sorted by namespace and name.
    pub fn new(objects: Vec<Arc<CachedObject>>) -> Self {
        Self { objects, identity: OnceLock::new(), memory: Memory::default() }
    }

    /// The objects, sorted by namespace and name.
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

    /// The recorded form of which objects it holds.
    pub fn identity(&self) -> u64 {
        *self.identity.get_or_init(|| {
            let mut hasher = foldhash::fast::FixedState::default().build_hasher();
            for object in &self.objects {
                object.document.namespace().ok().flatten().hash(&mut hasher);
                object.document.name().ok().hash(&mut hasher);
            }
            hasher.finish()
        })
    }

    /// The recorded form of a value in all of them.
    pub fn value(&self, at: &Path) -> u64 {
        self.fingerprint(at).unwrap_or(UNREADABLE).rotate_left(1) ^ self.identity()
    }

    /// Whether the read of the value at a path (without one: which objects they are) bears this mark.
    pub fn is_marked(&self, at: Option<&Path>, mark: Mark) -> bool {
        self.memory.get(at, |known| known.marked) == Some(mark)
    }

    /// Marks the read of the value at a path, or of which objects they are.
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
    fn texts_are_read_once_if_they_are_short_and_are_what_the_object_has() {
        let long = "z".repeat(TEXT + 1);
        let json = format!(r#"{{"metadata":{{"name":"a"}},"short":"\u0061b","long":"{long}","null":null}}"#);
        let object = CachedObject::new(Document::json(json.into()));
        for _ in 0..2 {
            for (at, text) in [("short", Some("ab")), ("long", Some(&*long)), ("null", None), ("missing", None)] {
                assert_eq!(object.text(&path(at)).unwrap().as_deref(), text, "{at}");
            }
        }
        assert!(object.text(&path("short[*]")).is_err(), "the path does not fit the question");
        assert_eq!(object.memory.get(Some(&path("long")), |known| known.text.clone()), None, "it is too long");
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let object = CachedObject::new(Document::json(r#"{"metadata":{"name":"a"}}"#.into()));
        for n in 0..2 * KNOWN {
            assert_eq!(object.text(&path(&format!("x{n}"))).unwrap(), None);
        }
        assert_eq!(object.memory.0.lock().unwrap().len(), KNOWN);
    }
}
