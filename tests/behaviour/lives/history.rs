//! What the clusters have had: the objects at each version of each history. A cluster that is put back begins another history.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

/// The uids and versions of objects by name.
pub(super) type Objects = BTreeMap<String, (String, u64)>;

/// What clients read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Collection {
    Services,
    /// One Secret, which is encrypted on disk.
    Secrets,
}

/// A list that a client was served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Shown {
    pub(super) version: u64,
    pub(super) objects: Objects,
}

/// All histories. They are numbered.
#[derive(Debug, Default)]
pub(super) struct Histories(Vec<BTreeMap<Collection, BTreeMap<u64, Objects>>>);

impl Collection {
    pub(super) const ALL: [Self; 2] = [Self::Services, Self::Secrets];

    pub(super) fn path(self) -> &'static str {
        match self {
            Self::Services => "/api/v1/services?resourceVersion=0",
            Self::Secrets => {
                "/api/v1/namespaces/default/secrets?fieldSelector=metadata.name%3Dtoken&limit=500&resourceVersion=0"
            }
        }
    }

    pub(super) fn resource(self) -> &'static str {
        match self {
            Self::Services => "services",
            Self::Secrets => "secrets",
        }
    }

    pub(super) fn kind(self) -> &'static str {
        match self {
            Self::Services => "Service",
            Self::Secrets => "Secret",
        }
    }
}

pub(super) fn objects<'a>(items: impl IntoIterator<Item = &'a Value>) -> Objects {
    let object = |item: &Value| {
        let text = |field: &str| item["metadata"][field].as_str().unwrap().to_owned();
        (text("name"), (text("uid"), text("resourceVersion").parse().unwrap()))
    };
    items.into_iter().map(object).collect()
}

impl Shown {
    pub(super) fn of(list: &Value) -> Self {
        let version = list["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();
        Self { version, objects: objects(list["items"].as_array().unwrap()) }
    }
}

impl Histories {
    pub(super) fn begin(&mut self) -> usize {
        self.0.push(BTreeMap::new());
        self.0.len() - 1
    }

    /// Another history, which is the same up to a version.
    pub(super) fn fork(&mut self, from: usize, version: u64) -> usize {
        let mut copy = self.0[from].clone();
        for states in copy.values_mut() {
            states.retain(|at, _| *at <= version);
        }
        self.0.push(copy);
        self.0.len() - 1
    }

    pub(super) fn record(&mut self, history: usize, collection: Collection, version: u64, objects: Objects) {
        let states = self.0[history].entry(collection).or_default();
        if states.values().next_back() != Some(&objects) {
            states.insert(version, objects);
        }
    }

    /// The version of the last change.
    pub(super) fn changed(&self, history: usize, collection: Collection) -> u64 {
        self.0[history][&collection].keys().next_back().copied().unwrap_or_default()
    }

    /// Whether a list is the state of a history at the version of the list.
    pub(super) fn is_state(&self, history: usize, collection: Collection, shown: &Shown) -> bool {
        let mut states = self.0[history][&collection].range(..=shown.version);
        states.next_back().is_some_and(|(_, objects)| *objects == shown.objects)
    }

    /// Whether each object of a list is one that these histories have had.
    pub(super) fn have_had(&self, histories: &BTreeSet<usize>, collection: Collection, shown: &Shown) -> bool {
        let mut states = histories.iter().flat_map(|history| self.0[*history][&collection].values());
        let mut had = BTreeSet::new();
        states.by_ref().for_each(|objects| had.extend(objects.iter()));
        shown.objects.iter().all(|object| had.contains(&object))
    }
}
