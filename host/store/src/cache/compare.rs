//! Compares the objects of a store with those that the API server lists: names, uids and versions. No I/O.
//!
//! Both sides must be of one resourceVersion. [`state_at`] is the state that a store had at the version of a list, however far
//! it has come since.

use std::cmp::Ordering;
use std::sync::Arc;

use rpds::RedBlackTreeMapSync;
use weir_document::{Document, Path, path};

use super::event::StoreEvent;
use super::object::{Object, ObjectFormat};
use super::snapshot::Snapshot;
use super::trust::Doubt;
use crate::StoreKey;

static UID: Path = path!("metadata.uid");

/// What a comparison knows of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fingerprint {
    /// The namespace and the name.
    pub(crate) key: StoreKey,
    /// The uid; empty if the object has none.
    pub(crate) uid: Box<str>,
    /// The resourceVersion.
    pub(crate) version: u64,
}

/// The first difference between a store and the API server.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Difference {
    /// The API server has an object that the store lacks.
    #[error("{} is missing", shown(.0))]
    Missing(StoreKey),
    /// The store has an object that the API server does not have.
    #[error("{} does not exist in the API server", shown(.0))]
    Unknown(StoreKey),
    /// The object of this name is another one.
    #[error("{} has the uid {stored:?}, and {served:?} in the API server", shown(key))]
    Uid {
        /// The object.
        key: StoreKey,
        /// The uid in the store.
        stored: Box<str>,
        /// The uid in the API server.
        served: Box<str>,
    },
    /// The object has another version.
    #[error("{} has the resourceVersion {stored}, and {served} in the API server", shown(key))]
    Version {
        /// The object.
        key: StoreKey,
        /// The version in the store.
        stored: u64,
        /// The version in the API server.
        served: u64,
    },
    /// The object has other content at the same version.
    #[error("{} has other content at the same resourceVersion", shown(.0))]
    Content(StoreKey),
    /// The store has a version that the API server has not reached.
    #[error("its resourceVersion {version} is ahead of the API server's, {newest}")]
    Ahead {
        /// The version of the store.
        version: u64,
        /// That of the API server.
        newest: u64,
    },
}

impl Difference {
    /// What speaks against the source of these objects.
    pub(super) fn doubt(&self, stored: &RedBlackTreeMapSync<StoreKey, Arc<Object>>) -> Doubt {
        let of = |key: &StoreKey| stored.get(key).map_or(u64::MAX, |object| object.version);
        match self {
            Self::Ahead { .. } => Doubt::Stale,
            // It was withheld, or a deletion was made up, since the last list.
            Self::Missing(_) => Doubt::Different(u64::MAX),
            Self::Version { stored, served, .. } => Doubt::Different(*stored.max(served)),
            Self::Unknown(key) | Self::Content(key) | Self::Uid { key, .. } => Doubt::Different(of(key)),
        }
    }
}

impl Fingerprint {
    /// Reads the uid of an object whose key and version are known. An unreadable uid counts as none.
    #[must_use]
    pub(crate) fn of(format: &ObjectFormat, object: &Object) -> Self {
        let document = format.document(object.bytes.clone());
        Self { key: object.key.clone(), uid: uid(&document), version: object.version }
    }
}

/// How a store relates to the API server's history, judging by one list.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Continuation {
    /// It has all that the list has of the time up to its version.
    Same,
    /// It has something else: that is another history.
    Other(Difference),
    /// It has an object that the list has not. It was deleted since, or it was never in this history.
    Unsure,
}

/// Whether a store may go on from its version: whether what the API server has from before that version is what the store has.
/// What has changed since says nothing. `served` is a list at that version or a later one, sorted by key.
pub(super) fn continuation(stored: &Snapshot, served: &[Fingerprint]) -> Continuation {
    for print in served.iter().filter(|print| print.version <= stored.version) {
        let known = stored.objects.get(&print.key).map(|object| Fingerprint::of(&stored.format, object));
        if let Some(found) = difference(known, Some(print.clone())) {
            return Continuation::Other(found);
        }
    }
    let is_served = |key: &StoreKey| served.binary_search_by(|print| print.key.cmp(key)).is_ok();
    match stored.objects.keys().all(is_served) {
        true => Continuation::Same,
        false => Continuation::Unsure,
    }
}

/// Returns a difference that shows that a list at `version` is of another history than the store. If that is in question, only
/// the versions of listed objects up to the store's version count. Otherwise they may differ for another reason, which the
/// self-check finds.
pub(super) fn discontinuity(
    stored: &Snapshot,
    listed: &[Object],
    version: u64,
    is_in_question: bool,
) -> Option<Difference> {
    if version < stored.version {
        return Some(Difference::Ahead { version: stored.version, newest: version });
    }
    let mut earlier = listed.iter().filter(|object| is_in_question && object.version <= stored.version);
    earlier.find_map(|object| match stored.objects.get(&object.key) {
        None => Some(Difference::Missing(object.key.clone())),
        Some(known) if known.version != object.version => {
            let (stored, served) = (known.version, object.version);
            Some(Difference::Version { key: object.key.clone(), stored, served })
        }
        Some(_) => None,
    })
}

/// The uid of an object; empty if it has none.
pub(super) fn uid(document: &Document) -> Box<str> {
    let uid = document.text(&UID).ok().flatten();
    uid.unwrap_or_default().into()
}

/// The objects that a store had at a version: those of an earlier snapshot, and the events after it. `None` if the events do
/// not reach the version, or a list has led over it.
#[must_use]
pub(super) fn state_at(
    before: &Snapshot,
    events: &[Arc<StoreEvent>],
    reached: u64,
    version: u64,
) -> Option<RedBlackTreeMapSync<StoreKey, Arc<Object>>> {
    if before.version > version || reached < version {
        return None;
    }
    let is_of_event = before.version == version || events.iter().any(|event| event.version == version);
    let next = events.iter().find(|event| event.version > version);
    if !is_of_event && next.is_some_and(|event| event.is_list) {
        return None;
    }
    let mut objects = before.objects.clone();
    // INVARIANT: the versions of a history never go back.
    for event in events.iter().take_while(|event| event.version <= version) {
        match (&event.old, &event.new) {
            (_, Some(new)) => objects.insert_mut(new.key.clone(), new.clone()),
            (Some(old), None) => drop(objects.remove_mut(&old.key)),
            (None, None) => {}
        }
    }
    Some(objects)
}

/// The first difference, by key. Both sides are sorted by key, and name each key once.
pub(super) fn difference(
    stored: impl IntoIterator<Item = Fingerprint>,
    served: impl IntoIterator<Item = Fingerprint>,
) -> Option<Difference> {
    let (mut stored, mut served) = (stored.into_iter().peekable(), served.into_iter().peekable());
    loop {
        let order = match (stored.peek(), served.peek()) {
            (Some(stored), Some(served)) => stored.key.cmp(&served.key),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (None, None) => return None,
        };
        match order {
            Ordering::Less => return stored.next().map(|stored| Difference::Unknown(stored.key)),
            Ordering::Greater => return served.next().map(|served| Difference::Missing(served.key)),
            Ordering::Equal => {
                let (stored, served) = (stored.next()?, served.next()?);
                if stored.uid != served.uid {
                    return Some(Difference::Uid { key: stored.key, stored: stored.uid, served: served.uid });
                }
                if stored.version != served.version {
                    let (stored_version, served) = (stored.version, served.version);
                    return Some(Difference::Version { key: stored.key, stored: stored_version, served });
                }
            }
        }
    }
}

/// Namespace and name, for people.
fn shown(key: &StoreKey) -> String {
    match key.namespace() {
        "" => format!("{:?}", key.name()),
        namespace => format!("{:?}", format!("{namespace}/{}", key.name())),
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use weir_document::TypeMeta;
    use weir_kube::Encoding;

    use super::*;

    fn print(name: &str, uid: &str, version: u64) -> Fingerprint {
        Fingerprint { key: StoreKey::new("ns", name), uid: uid.into(), version }
    }

    #[test]
    fn the_first_difference_of_names_uids_and_versions_is_found() {
        let served = [print("a", "1", 5), print("b", "2", 6), print("c", "3", 7)];
        let of = |stored: &[Fingerprint]| difference(stored.to_vec(), served.clone()).map(|found| found.to_string());
        assert_eq!(of(&served), None);
        assert_eq!(difference([], []), None);
        let [a, b, c] = served.clone();
        for (stored, found) in [
            (vec![a.clone(), c.clone()], r#""ns/b" is missing"#),
            (vec![a.clone(), b.clone()], r#""ns/c" is missing"#),
            (vec![], r#""ns/a" is missing"#),
            (vec![a.clone(), print("aa", "9", 1), b.clone(), c.clone()], r#""ns/aa" does not exist in the API server"#),
            (vec![a.clone(), b.clone(), c.clone(), print("d", "9", 1)], r#""ns/d" does not exist in the API server"#),
            (vec![a.clone(), print("b", "8", 6), c.clone()], r#""ns/b" has the uid "8", and "2" in the API server"#),
            (vec![a, b, print("c", "3", 8)], r#""ns/c" has the resourceVersion 8, and 7 in the API server"#),
        ] {
            assert_eq!(of(&stored).as_deref(), Some(found));
        }
    }

    fn object(name: &str, version: u64) -> Arc<Object> {
        let text = format!(r#"{{"metadata":{{"name":"{name}","uid":"u-{name}","resourceVersion":"{version}"}}}}"#);
        Arc::new(Object { key: StoreKey::new("", name), version, bytes: Bytes::from(text) })
    }

    fn event(version: u64, old: Option<&Arc<Object>>, new: Option<&Arc<Object>>) -> Arc<StoreEvent> {
        Arc::new(StoreEvent { version, old: old.cloned(), new: new.cloned(), is_list: false })
    }

    #[test]
    fn a_state_between_two_versions_is_that_of_the_events_up_to_it() {
        let type_meta = Arc::new(TypeMeta { api_version: "v1".into(), kind: "Node".into() });
        let format = ObjectFormat { encoding: Encoding::Json, type_meta };
        let (a, b, later) = (object("a", 3), object("b", 6), object("a", 8));
        let objects = [(a.key.clone(), a.clone())].into_iter().collect();
        let before = Snapshot { version: 5, format: format.clone(), objects, changed: 5 };
        let events = [
            event(6, None, Some(&b)),
            event(8, Some(&a), Some(&later)),
            event(9, Some(&b), None),
            event(11, None, None),
        ];
        let at = |version| {
            let objects = state_at(&before, &events, 11, version)?;
            Some(objects.values().map(|object| (object.key.name().to_owned(), object.version)).collect::<Vec<_>>())
        };
        let named =
            |list: &[(&str, u64)]| Some(list.iter().map(|(name, version)| ((*name).to_owned(), *version)).collect());
        assert_eq!(at(4), None, "the store was further already");
        assert_eq!(at(5), named(&[("a", 3)]));
        assert_eq!(at(7), named(&[("a", 3), ("b", 6)]));
        assert_eq!(at(8), named(&[("a", 8), ("b", 6)]));
        assert_eq!(at(10), named(&[("a", 8)]));
        assert_eq!(at(12), None, "the store is not there yet");
        assert_eq!(&*Fingerprint::of(&format, &a).uid, "u-a");
    }
}
