//! What one instance has looked up before. Filters ask the same of every object (which pool is this node in?), and while
//! neither the world nor what was recorded of it has moved, the answer is the one before: it costs no search and no record.
//!
//! Bounds: [`OBJECTS`] and [`SELECTIONS`] answers, which an idle instance holds on to until its next call.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use foldhash::fast::RandomState;
use weir_document::Path;

use super::world::{LookedUp, Lookup, Read, Recorder, Selection, Snapshot};

const OBJECTS: usize = 64;
const SELECTIONS: usize = 16;

/// Answers that still hold.
#[derive(Debug, Default)]
pub(super) struct Recall {
    /// The world's version and the record's generation that they belong to.
    of: Option<(u64, u64)>,
    objects: HashMap<AskedObject, Option<Arc<Found>>, RandomState>,
    selections: HashMap<AskedSelection, Arc<FoundSelection>, RandomState>,
    /// Values that were recorded: which answer's, and where.
    noted: HashSet<(u32, Path), RandomState>,
    answers: u32,
}

/// A question for one object: resource, namespace, name.
pub(super) type AskedObject = (String, Option<String>, String);
/// A question for a selection: resource, namespace, label selector.
pub(super) type AskedSelection = (String, Option<String>, String);

/// An object that was looked up.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) object: Arc<LookedUp>,
    pub(super) lookup: Arc<Lookup>,
    pub(super) namespace: Option<Box<str>>,
    pub(super) name: Box<str>,
    /// Under which number it is remembered; none: it is not.
    number: Option<u32>,
}

/// A selection that was looked up.
#[derive(Debug)]
pub(super) struct FoundSelection {
    pub(super) selection: Arc<Selection>,
    pub(super) lookup: Arc<Lookup>,
    pub(super) namespace: Option<Box<str>>,
    pub(super) label_selector: Box<str>,
    number: u32,
}

impl Recall {
    /// A call sees this state: what belongs to another is forgotten.
    pub(super) fn see(&mut self, snapshot: &dyn Snapshot, recorder: &dyn Recorder) {
        let now = Some((snapshot.version(), recorder.generation()));
        if self.of != now {
            self.forget();
            self.of = now;
        }
    }

    /// The answer to a question that was asked before.
    pub(super) fn object(&self, asked: &AskedObject) -> Option<&Option<Arc<Found>>> {
        self.objects.get(asked)
    }

    /// Remembers the answer to a question.
    pub(super) fn keep_object(
        &mut self,
        asked: AskedObject,
        lookup: Arc<Lookup>,
        object: Option<Arc<LookedUp>>,
    ) -> Option<Arc<Found>> {
        if self.objects.len() >= OBJECTS {
            self.forget();
        }
        let number = Some(self.number());
        let (namespace, name) = (asked.1.as_deref().map(Into::into), asked.2.as_str().into());
        let found = object.map(|object| Arc::new(Found { object, lookup, namespace, name, number }));
        self.objects.insert(asked, found.clone());
        found
    }

    /// The answer to a question that was asked before.
    pub(super) fn selection(&self, asked: &AskedSelection) -> Option<&Arc<FoundSelection>> {
        self.selections.get(asked)
    }

    /// Remembers the answer to a question.
    pub(super) fn keep_selection(
        &mut self,
        asked: AskedSelection,
        lookup: Arc<Lookup>,
        selection: Arc<Selection>,
    ) -> Arc<FoundSelection> {
        if self.selections.len() >= SELECTIONS {
            self.forget();
        }
        let number = self.number();
        let (namespace, label_selector) = (asked.1.as_deref().map(Into::into), asked.2.as_str().into());
        let found = Arc::new(FoundSelection { selection, lookup, namespace, label_selector, number });
        self.selections.insert(asked, found.clone());
        found
    }

    /// Whether a value of an answer was not recorded yet; from here on it counts as recorded.
    pub(super) fn is_new(&mut self, number: Option<u32>, at: &Path) -> bool {
        number.is_none_or(|number| self.noted.insert((number, at.clone())))
    }

    fn number(&mut self) -> u32 {
        self.answers = self.answers.wrapping_add(1);
        self.answers
    }

    fn forget(&mut self) {
        self.objects.clear();
        self.selections.clear();
        self.noted.clear();
    }
}

impl Found {
    /// An object that is not remembered: one of a selection.
    pub(super) fn member(
        object: Arc<LookedUp>,
        lookup: Arc<Lookup>,
        namespace: Option<Box<str>>,
        name: Box<str>,
    ) -> Arc<Self> {
        Arc::new(Self { object, lookup, namespace, name, number: None })
    }

    /// Under which number it is remembered.
    pub(super) fn number(&self) -> Option<u32> {
        self.number
    }

    /// The read of a value in it.
    pub(super) fn read(&self, at: &Path) -> Read {
        Read::Object {
            lookup: self.lookup.clone(),
            namespace: self.namespace.clone(),
            name: self.name.clone(),
            at: Some(at.clone()),
        }
    }
}

impl FoundSelection {
    /// Under which number it is remembered.
    pub(super) fn number(&self) -> Option<u32> {
        Some(self.number)
    }

    /// The read of a value in all its objects, or of which they are.
    pub(super) fn read(&self, at: Option<&Path>) -> Read {
        Read::Selection {
            lookup: self.lookup.clone(),
            namespace: self.namespace.clone(),
            label_selector: self.label_selector.clone(),
            at: at.cloned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use weir_document::Document;

    use super::*;
    use crate::wasm::Address;

    #[derive(Debug, Default)]
    struct Both(AtomicU64, AtomicU64);

    impl Snapshot for Both {
        fn version(&self) -> u64 {
            self.0.load(Ordering::Relaxed)
        }

        fn get(&self, _: &Lookup, _: Option<&str>, _: &str) -> Option<Arc<LookedUp>> {
            None
        }

        fn find(&self, _: &Lookup, _: Option<&str>, _: &str) -> Result<Arc<Selection>, String> {
            Err(String::new())
        }

        fn addresses(&self) -> Arc<[Address]> {
            Arc::default()
        }
    }

    impl Recorder for Both {
        fn generation(&self) -> u64 {
            self.1.load(Ordering::Relaxed)
        }

        fn note(&self, _: &Read, _: u64) {}
    }

    fn lookup() -> Arc<Lookup> {
        Arc::new(Lookup {
            resource: crate::resource::GroupResource::new("nodes", ""),
            versions: Vec::new(),
            name: None,
            label_selector: None,
            metadata_only: false,
            optional: false,
        })
    }

    fn asked(name: &str) -> AskedObject {
        ("nodes".to_owned(), None, name.to_owned())
    }

    fn kept(recall: &mut Recall, name: &str) -> Arc<Found> {
        let object = Arc::new(LookedUp::new(Document::json("{}".into())));
        recall.keep_object(asked(name), lookup(), Some(object)).unwrap()
    }

    #[test]
    fn an_answer_holds_until_the_world_or_the_record_moves() {
        let both = Both::default();
        let mut recall = Recall::default();
        for moved in [&both.0, &both.1] {
            recall.see(&both, &both);
            kept(&mut recall, "a");
            recall.see(&both, &both);
            assert!(recall.object(&asked("a")).is_some());
            moved.store(1, Ordering::Relaxed);
            recall.see(&both, &both);
            assert!(recall.object(&asked("a")).is_none());
        }
    }

    #[test]
    fn a_value_is_recorded_once_for_each_answer_and_place() {
        let mut recall = Recall::default();
        let (one, two) = (Path::parse("a").unwrap(), Path::parse("b").unwrap());
        let (a, b) = (kept(&mut recall, "a"), kept(&mut recall, "b"));
        assert!(recall.is_new(a.number(), &one));
        assert!(!recall.is_new(a.number(), &one));
        assert!(recall.is_new(a.number(), &two) && recall.is_new(b.number(), &one));
        assert!(recall.is_new(None, &one) && recall.is_new(None, &one), "what is not remembered is recorded each time");
    }

    #[test]
    fn what_is_remembered_is_bounded_and_a_number_is_not_given_twice() {
        let mut recall = Recall::default();
        let at = Path::parse("a").unwrap();
        let first = kept(&mut recall, "0");
        assert!(recall.is_new(first.number(), &at));
        for n in 1..=OBJECTS {
            kept(&mut recall, &n.to_string());
        }
        assert!(recall.objects.len() <= OBJECTS && recall.object(&asked("0")).is_none());
        let again = kept(&mut recall, "0");
        assert_ne!(first.number(), again.number());
        assert!(recall.is_new(again.number(), &at));
    }
}
