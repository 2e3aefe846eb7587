//! What may be on disk, by the rules that the documentation states: what fits is used, what does not is set aside, one copy a
//! reason, and used again when it fits.
//!
//! A kill comes at any moment, and so does the answer that identifies the cluster. So the model keeps the set of possible worlds;
//! the responses rule some of them out.

use std::collections::{BTreeMap, BTreeSet};

use super::history::{Collection, Histories, Shown};

/// A place of a database file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Slot {
    Main,
    Node,
    Cluster,
    Format,
    Spare,
}

/// The files that are there.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct World(pub(super) BTreeMap<Slot, Blob>);

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Blob {
    File(File),
    /// Nothing that can be read.
    Junk,
}

/// A database.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct File {
    pub(super) node: &'static str,
    pub(super) cluster: Option<usize>,
    pub(super) is_of_other_form: bool,
    /// Whether it has any data of an API server; `None`: perhaps.
    pub(super) has_any: Option<bool>,
    pub(super) contents: BTreeMap<Collection, Contents>,
}

/// What may be in a file of a collection, each with the version that it has at least.
pub(super) type Contents = BTreeMap<Kept, u64>;

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kept {
    Nothing,
    /// A state of a history, sealed with this key.
    State(usize, Option<usize>),
    /// A state to which events of another history were applied, before the API server has identified that history.
    Mixed(BTreeSet<usize>, Option<usize>),
}

impl Kept {
    pub(super) fn key(&self) -> Option<usize> {
        match self {
            Self::Nothing => None,
            Self::State(_, key) | Self::Mixed(_, key) => *key,
        }
    }

    fn is_shown(&self, histories: &Histories, collection: Collection, least: u64, shown: Option<&Shown>) -> bool {
        match (self, shown) {
            (Self::Nothing, None) => true,
            (Self::State(history, _), Some(shown)) => {
                shown.version >= least && histories.is_state(*history, collection, shown)
            }
            (Self::Mixed(mixed, _), Some(shown)) => histories.have_had(mixed, collection, shown),
            _ => false,
        }
    }
}

impl File {
    pub(super) fn new(node: &'static str, cluster: Option<usize>) -> Self {
        let contents = Collection::ALL.map(|collection| (collection, [(Kept::Nothing, 0)].into()));
        Self { node, cluster, is_of_other_form: false, has_any: Some(false), contents: contents.into() }
    }

    /// The reason for which it is set aside.
    fn misfit(&self, node: &str, cluster: Option<usize>) -> Option<Slot> {
        match self {
            Self { is_of_other_form: true, .. } => Some(Slot::Format),
            Self { node: other, .. } if *other != node => Some(Slot::Node),
            Self { cluster: Some(known), .. } if cluster.is_some_and(|cluster| cluster != *known) => {
                Some(Slot::Cluster)
            }
            _ => None,
        }
    }

    /// From now on it may have what this history has.
    pub(super) fn touch(&mut self, history: usize, key: Option<usize>) {
        self.has_any = self.has_any.filter(|any| *any);
        for (collection, contents) in &mut self.contents {
            let is_plain = *collection == Collection::Services;
            let key = if is_plain { None } else { key };
            if !is_plain && key.is_none() {
                continue;
            }
            for kept in contents.keys().cloned().collect::<Vec<_>>() {
                let mut mixed = match kept {
                    Kept::Nothing => BTreeSet::new(),
                    Kept::State(same, of) if (same, of) == (history, key) => continue,
                    Kept::State(other, _) => [other].into(),
                    Kept::Mixed(mixed, _) => mixed,
                };
                contents.entry(Kept::State(history, key)).or_insert(0);
                if !mixed.is_empty() {
                    mixed.insert(history);
                    contents.entry(Kept::Mixed(mixed, key)).or_insert(0);
                }
            }
        }
    }

    /// From now on it has this.
    pub(super) fn put(&mut self, collection: Collection, history: usize, version: u64, key: Option<usize>) {
        self.has_any = Some(true);
        self.contents.insert(collection, [(Kept::State(history, key), version)].into());
    }

    /// Parts of it may be damaged.
    pub(super) fn harm(&mut self) {
        self.has_any = None;
        for contents in self.contents.values_mut() {
            contents.insert(Kept::Nothing, 0);
        }
    }

    fn expected(&self, collection: Collection, key: Option<usize>) -> Vec<Kept> {
        let of = |kept: &Kept| if kept.key() == key || kept.key().is_none() { kept.clone() } else { Kept::Nothing };
        self.contents[&collection].keys().map(of).collect()
    }

    /// Leaves what agrees with what was shown. Returns whether anything is left.
    fn narrow(
        &mut self,
        histories: &Histories,
        collection: Collection,
        key: Option<usize>,
        shown: Option<&Shown>,
    ) -> bool {
        let contents = self.contents.get_mut(&collection).unwrap();
        contents.retain(|kept, least| {
            let is_locked = kept.key().is_some() && kept.key() != key;
            let fits = if is_locked { shown.is_none() } else { kept.is_shown(histories, collection, *least, shown) };
            if let Some(shown) = shown {
                *least = shown.version;
            }
            fits
        });
        self.has_any = if shown.is_some() { Some(true) } else { self.has_any };
        !contents.is_empty()
    }
}

impl World {
    /// Whether the file in use fits.
    pub(super) fn fits(&self, node: &str, cluster: Option<usize>) -> bool {
        self.fits_at(Slot::Main, node, cluster)
    }

    /// The file in use.
    pub(super) fn main(&mut self) -> Option<&mut File> {
        match self.0.get_mut(&Slot::Main) {
            Some(Blob::File(file)) => Some(file),
            _ => None,
        }
    }

    fn fits_at(&self, slot: Slot, node: &str, cluster: Option<usize>) -> bool {
        matches!(self.0.get(&slot), Some(Blob::File(file)) if file.misfit(node, cluster).is_none())
    }

    fn fitting(&self, node: &str, cluster: Option<usize>) -> Option<Slot> {
        let slots = [Slot::Node, Slot::Cluster, Slot::Format, Slot::Spare].into_iter();
        slots.filter(|slot| cluster.is_some() || *slot != Slot::Cluster).find(|slot| self.fits_at(*slot, node, cluster))
    }

    /// The file that a start uses.
    pub(super) fn used(&self, node: &str, cluster: Option<usize>) -> Option<Slot> {
        if self.fits(node, cluster) { Some(Slot::Main) } else { self.fitting(node, cluster) }
    }

    /// What a start without an API server may show.
    pub(super) fn expected(&self, node: &str, collection: Collection, key: Option<usize>) -> Vec<Kept> {
        match self.used(node, None).and_then(|slot| self.0.get(&slot)) {
            Some(Blob::File(file)) => file.expected(collection, key),
            _ => vec![Kept::Nothing],
        }
    }

    /// What is left of the world after a start has shown this; `None` if it does not agree.
    pub(super) fn narrowed(
        &self,
        histories: &Histories,
        node: &str,
        (collection, key): (Collection, Option<usize>),
        shown: Option<&Shown>,
    ) -> Option<Self> {
        let mut world = self.clone();
        match self.used(node, None).and_then(|slot| world.0.get_mut(&slot)) {
            Some(Blob::File(file)) => file.narrow(histories, collection, key, shown).then_some(world),
            _ => shown.is_none().then_some(world),
        }
    }

    /// The worlds that there are while a daemon opens its file, the last one or two of them in the end.
    pub(super) fn opened(&self, node: &'static str, cluster: Option<usize>) -> Vec<Self> {
        let mut world = self.clone();
        let misfit = world.main().map(|file| (file.misfit(node, cluster), file.has_any));
        match misfit {
            Some((None, _)) => {
                world.label(cluster);
                vec![world]
            }
            Some((Some(reason), has_any)) => {
                let mut worlds = Vec::new();
                if has_any != Some(false) {
                    worlds.extend(self.exchanged(reason, node, cluster));
                }
                if has_any != Some(true) {
                    // What has nothing is not set aside.
                    world.0.remove(&Slot::Main);
                    worlds.extend(world.opened(node, cluster));
                }
                worlds
            }
            None => {
                let file = world.fitting(node, cluster).and_then(|slot| world.0.remove(&slot));
                world.0.insert(Slot::Main, file.unwrap_or(Blob::File(File::new(node, cluster))));
                world.label(cluster);
                vec![self.clone(), world]
            }
        }
    }

    fn label(&mut self, cluster: Option<usize>) {
        if let Some(Blob::File(file)) = self.0.get_mut(&Slot::Main) {
            file.cluster = file.cluster.or(cluster);
        }
    }

    fn exchanged(&self, reason: Slot, node: &'static str, cluster: Option<usize>) -> Vec<Self> {
        let back = self.fitting(node, cluster);
        let mut stages = vec![self.clone()];
        let mut world = self.clone();
        if world.0.contains_key(&Slot::Spare) && back != Some(Slot::Spare) {
            let free = [Slot::Node, Slot::Cluster, Slot::Format].into_iter().find(|slot| !world.0.contains_key(slot));
            if let Some(free) = free {
                let spare = world.0.remove(&Slot::Spare).unwrap();
                world.0.insert(free, spare);
                stages.push(world.clone());
            }
        }
        let first = if back == Some(reason) { Slot::Spare } else { reason };
        let main = world.0.remove(&Slot::Main).unwrap();
        world.0.insert(first, main);
        stages.push(world.clone());
        let file = back.and_then(|back| world.0.remove(&back));
        world.0.insert(Slot::Main, file.unwrap_or(Blob::File(File::new(node, cluster))));
        world.label(cluster);
        stages.push(world.clone());
        if first == Slot::Spare {
            let spare = world.0.remove(&Slot::Spare).unwrap();
            world.0.insert(reason, spare);
            stages.push(world);
        }
        stages
    }
}
