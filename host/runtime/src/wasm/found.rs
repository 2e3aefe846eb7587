//! What a call's lookups found, and the recording of what it read there: once for each recorder, object and path.

use std::sync::Arc;

use weir_document::{LookedUp, Path, Selection};
use weir_kube::Lookup;

use super::world::{Read, Recorder};

/// An object, as a question found it.
#[derive(Debug, Clone)]
pub(super) struct Found {
    pub(super) object: Arc<LookedUp>,
    pub(super) lookup: Arc<Lookup>,
}

/// A selection, as a question found it.
#[derive(Debug)]
pub(super) struct FoundSelection {
    pub(super) selection: Arc<Selection>,
    pub(super) lookup: Arc<Lookup>,
    pub(super) namespace: Option<Box<str>>,
    pub(super) label_selector: Box<str>,
}

impl Found {
    /// Records a read of it: of the value at a path, or that it is there.
    pub(super) fn record(&self, at: Option<&Path>, recorder: &dyn Recorder) {
        let now = (recorder.identity(), recorder.generation());
        if self.object.is_marked(at, now) {
            return;
        }
        let document = self.object.document();
        let read = Read::Object {
            lookup: self.lookup.clone(),
            namespace: document.namespace().ok().flatten().map(|namespace| (*namespace).into()),
            name: document.name().map(|name| (*name).into()).unwrap_or_default(),
            at: at.cloned(),
        };
        recorder.note(&read, at.map_or(1, |at| self.object.value(at)));
        // Not before: whoever finds it recorded goes on without.
        self.object.mark(at, now);
    }
}

impl FoundSelection {
    /// Records a read of it: of the values at a path, or of which objects they are.
    pub(super) fn record(&self, at: Option<&Path>, recorder: &dyn Recorder) {
        let now = (recorder.identity(), recorder.generation());
        if self.selection.is_marked(at, now) {
            return;
        }
        let read = Read::Selection {
            lookup: self.lookup.clone(),
            namespace: self.namespace.clone(),
            label_selector: self.label_selector.clone(),
            at: at.cloned(),
        };
        recorder.note(&read, at.map_or_else(|| self.selection.identity(), |at| self.selection.value(at)));
        // Not before: whoever finds it recorded goes on without.
        self.selection.mark(at, now);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use weir_document::Document;

    use super::*;

    #[derive(Debug, Default)]
    struct Counting {
        identity: u64,
        generation: AtomicU64,
        noted: AtomicU64,
    }

    impl Recorder for Counting {
        fn identity(&self) -> u64 {
            self.identity
        }

        fn generation(&self) -> u64 {
            self.generation.load(Ordering::Relaxed)
        }

        fn note(&self, _: &Read, _: u64) {
            self.noted.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn found(json: &'static str) -> Found {
        let lookup = Lookup::all("nodes".parse().unwrap());
        Found { object: Arc::new(LookedUp::new(Document::json(json.into()))), lookup: Arc::new(lookup) }
    }

    fn path(text: &str) -> Path {
        Path::parse(text).unwrap()
    }

    #[test]
    fn a_read_is_recorded_once_by_each_recorder_in_each_generation() {
        let found = found(r#"{"metadata":{"name":"a"},"x":"y"}"#);
        let (one, other) = (Counting::default(), Counting { identity: 1, ..Counting::default() });
        let record = |recorder: &Counting| {
            for _ in 0..2 {
                found.record(None, recorder);
                found.record(Some(&path("x")), recorder);
            }
            recorder.noted.swap(0, Ordering::Relaxed)
        };
        assert_eq!((record(&one), record(&one)), (2, 0));
        assert_eq!(record(&other), 2, "it has none of what another recorded");
        one.generation.store(1, Ordering::Relaxed);
        assert_eq!((record(&one), record(&one)), (2, 0), "what was recorded before no longer counts");
    }
}
