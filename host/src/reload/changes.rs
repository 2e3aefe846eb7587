//! What may change while an attempt is being made: the configuration, the modules that it names, the Node.
//!
//! An attempt goes on to its end, whatever changes, and however often: changes during it lead to exactly one more. So a change is in
//! force after at most the attempt at hand and the next one. Two kinds of change wait for neither: one that leaves nothing of
//! use in what is being loaded ends the attempt, and what only turns filters off does so at once. An attempt that waits only for
//! objects that a filter looks up, which may never come, ends when the entry of that filter changes: its module stays loaded.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tokio::sync::{Notify, watch};
use weir_process::WatchedFiles;
use weir_runtime::{Filter, Serving};
use weir_spec::{FilterEntry, FilterName};

use super::last_good::SourcedConfiguration;
use super::selection::{LeftOut, Selected, select};
use super::source::{MAX_MANIFEST, SourceState, read};
use super::{Kept, Reloader};
use crate::config::{ConfigSource, Configuration};
use crate::node_facts::NodeState;

/// Follows what an attempt depends on.
pub(super) struct Changes {
    pub(super) source: ConfigSource,
    pub(super) files: WatchedFiles,
    pub(super) state: watch::Receiver<SourceState>,
    pub(super) node: watch::Receiver<NodeState>,
}

/// What the last attempt tried, and is trying, to decide whether it continues.
#[derive(Debug, Clone, Default)]
pub struct LastTried {
    tried: Arc<Mutex<Tried>>,
    /// Signalled when only what a filter looks up is missing.
    waits: Arc<Notify>,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Tried {
    /// The filters of the configuration that are for this node.
    pub(super) entries: Vec<FilterEntry>,
    /// All that it names, also what the Node leaves out.
    named: Vec<FilterName>,
    /// The entry that is being loaded.
    loading: Option<FilterEntry>,
    /// Whether only what it looks up is missing.
    waits: bool,
}

/// What a change makes of an attempt.
pub(super) enum Effect {
    /// It goes on.
    None,
    /// Nobody wants any more what it is loading.
    Obsolete,
    /// These filters of the active ones stay, and the others go at once.
    Off(TurnedOff),
}

/// What stays after filters were turned off.
pub(super) struct TurnedOff {
    pub(super) configuration: Configuration,
    pub(super) left_out: Vec<LeftOut>,
    pub(super) stays: Vec<Arc<Filter>>,
    /// The filters that nothing names any more.
    removed: Vec<FilterName>,
}

impl Tried {
    /// Notes what is loaded from now on, if what a change makes of it is a question for the newest configuration.
    pub(super) fn begins(&mut self, entry: Option<&FilterEntry>) {
        (self.loading, self.waits) = (entry.cloned(), false);
    }

    /// Whether nothing of what is being loaded is of use for these entries: neither the module nor, once that is loaded, the objects
    /// that it looks up with its settings.
    fn is_obsolete(&self, entries: &[FilterEntry]) -> bool {
        let is_of_use = |entry: &FilterEntry| match self.waits {
            true => entries.contains(entry),
            false => entries.iter().any(|other| other.module == entry.module),
        };
        self.loading.as_ref().is_some_and(|entry| !is_of_use(entry))
    }

    /// Whether these entries are all among those that were tried.
    fn has_all(&self, entries: &[FilterEntry]) -> bool {
        entries.iter().all(|entry| self.entries.contains(entry))
    }

    /// The filters that a configuration removes, if it does nothing else.
    fn removed(&self, entries: &[FilterEntry]) -> Vec<FilterName> {
        if !self.has_all(entries) {
            return Vec::new();
        }
        let names = self.entries.iter().map(|entry| &entry.name);
        names.filter(|name| entries.iter().all(|entry| entry.name != **name)).cloned().collect()
    }
}

fn is_named(configuration: &Configuration, name: &FilterName) -> bool {
    configuration.filters.iter().any(|entry| entry.name == *name)
}

/// The other filters.
pub(super) fn without(filters: &[Arc<Filter>], names: &[FilterName]) -> Vec<Arc<Filter>> {
    let is_other = |filter: &&Arc<Filter>| names.iter().all(|name| name.as_str() != &**filter.name());
    filters.iter().filter(is_other).cloned().collect()
}

impl LastTried {
    pub(super) fn lock(&self) -> MutexGuard<'_, Tried> {
        self.tried.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that only what the filter that is being loaded looks up is missing.
    pub(super) fn waits(&self) {
        self.lock().waits = true;
        self.waits.notify_one();
    }
}

impl Changes {
    /// Begins to follow: what is there now is what the next attempt sees.
    pub(super) fn begin(&mut self) {
        self.state.mark_unchanged();
        self.node.mark_unchanged();
    }

    /// Resolves after a change. Cancel-safe.
    pub(super) async fn next(&mut self) {
        tokio::select! {
            () = self.files.changed() => {}
            Ok(()) = self.state.changed() => {}
            Ok(()) = self.node.changed() => {}
            else => std::future::pending().await,
        }
    }

    /// Makes an attempt. Returns how it ended, unless a change has ended it, and whether anything has changed meanwhile.
    pub(super) async fn during<T>(
        &mut self,
        attempt: impl Future<Output = T>,
        tried: &LastTried,
        serving: &watch::Receiver<Serving>,
    ) -> (Option<T>, bool) {
        tokio::pin!(attempt);
        let mut has_changed = false;
        loop {
            tokio::select! {
                result = &mut attempt => return (Some(result), has_changed),
                () = self.next() => has_changed = true,
                // Earlier changes may matter from now on.
                () = tried.waits.notified(), if has_changed => {}
            }
            let effect = tokio::select! {
                result = &mut attempt => return (Some(result), true),
                effect = self.effect(tried, serving) => effect,
            };
            // Filters are turned off at the beginning of the next attempt.
            if !matches!(effect, Effect::None) {
                return (None, true);
            }
        }
    }

    /// Returns what the present state makes of an attempt that has tried this.
    pub(super) async fn effect(&self, tried: &LastTried, serving: &watch::Receiver<Serving>) -> Effect {
        let active = serving.borrow().live().map(|set| set.filters().to_vec()).unwrap_or_default();
        let tried = tried.lock().clone();
        if active.is_empty() && tried.loading.is_none() {
            return Effect::None;
        }
        let newest = self.newest().await;
        let node = self.node.borrow().clone();
        let Some(configuration) = newest else {
            // It is unknown which filters should be on, but none is: the next attempt begins with them.
            return if node.is_off() { Effect::Obsolete } else { Effect::None };
        };
        let (here, left_out, is_off) = match select(&configuration, &node) {
            Ok(Selected::Filters(here, left_out)) => (here.into_owned(), left_out, false),
            Ok(Selected::Off(none, left_out)) => (none, left_out, true),
            Ok(Selected::Unknown) | Err(_) => return Effect::None,
        };
        let mut removed = if is_off { Vec::new() } else { tried.removed(&here.filters) };
        let stays = if is_off { Vec::new() } else { without(&active, &removed) };
        if stays.len() < active.len() {
            removed.retain(|name| !is_named(&configuration, name));
            return Effect::Off(TurnedOff { configuration: here, left_out, stays, removed });
        }
        if tried.is_obsolete(&here.filters) { Effect::Obsolete } else { Effect::None }
    }

    /// The configuration now, if it is valid and names a set.
    async fn newest(&self) -> Option<Arc<SourcedConfiguration>> {
        let state = match &self.source {
            ConfigSource::File(path) => read(path, &self.files).await?,
            ConfigSource::ConfigMap { .. } => self.state.borrow().clone(),
        };
        match state {
            SourceState::Valid(configuration) if configuration.absent.is_none() => Some(configuration),
            _ => None,
        }
    }
}

impl Reloader {
    /// Turns filters off that the configuration does not name any more, before the rest of it is loaded.
    pub(super) fn turn_off(&self, turned_off: TurnedOff, kept: &mut Kept) {
        let TurnedOff { configuration, left_out, stays, removed } = turned_off;
        kept.held.forget(&removed);
        self.status.left_out(left_out);
        let (source, before) = (self.source.to_string(), self.active());
        self.apply(&source, &configuration, before.as_deref(), Arc::default(), stays, Instant::now());
    }

    /// Notes what an attempt tries of a configuration. One that only removes filters has what it removes forgotten.
    pub(super) fn tries(&self, tried: &Configuration, configuration: &Configuration, kept: &mut Kept) {
        let former = {
            let mut last = self.tried.lock();
            let named = configuration.filters.iter().map(|entry| entry.name.clone()).collect();
            let present = Tried { entries: tried.filters.clone(), named, ..last.clone() };
            std::mem::replace(&mut *last, present)
        };
        if former.has_all(&tried.filters) {
            let mut removed = former.named;
            removed.retain(|name| !is_named(configuration, name));
            kept.held.forget(&removed);
        }
    }

    /// Follows the files of a configuration.
    pub(super) fn follow(&self, configuration: Option<&Configuration>) {
        let source = self.source.file().map(|path| (path.clone(), MAX_MANIFEST));
        self.modules.follow(source, configuration);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use k8s_openapi::api::core::v1::ConfigMap;
    use tokio::time::{Instant, sleep};

    use super::*;
    use crate::node_facts::NodeFacts;

    /// The time of an attempt.
    const ATTEMPT: Duration = Duration::from_secs(6);
    /// The time between two changes.
    const BUSY: Duration = Duration::from_secs(2);

    struct Situation {
        changes: Changes,
        tried: LastTried,
        state: watch::Sender<SourceState>,
        node: watch::Sender<NodeState>,
        serving: watch::Receiver<Serving>,
    }

    fn state(filters: &str) -> SourceState {
        let data = [("filters.yaml".to_owned(), format!("filters: [{filters}]"))].into();
        let map = ConfigMap { data: Some(data), ..ConfigMap::default() };
        SourcedConfiguration::of_api_server("ConfigMap", Some(map)).into()
    }

    /// An attempt that loads the module of the filter `slow`, which is not active yet.
    fn situation() -> Situation {
        let (state, states) = watch::channel(state("{name: a}, {name: slow}"));
        let (node, nodes) = watch::channel(NodeState::Known(NodeFacts::default()));
        let SourceState::Valid(configuration) = &*state.borrow() else { panic!("it is valid") };
        let tried = LastTried::default();
        let entries = configuration.filters.clone();
        *tried.lock() = Tried { loading: Some(entries[1].clone()), entries, ..Tried::default() };
        let source = ConfigSource::ConfigMap { namespace: "n".to_owned(), name: "n".to_owned() };
        let changes = Changes { source, files: WatchedFiles::default(), state: states, node: nodes };
        Situation { changes, tried, state: state.clone(), node, serving: watch::channel(Serving::Unknown).1 }
    }

    #[tokio::test(start_paused = true)]
    async fn an_attempt_goes_on_to_its_end_however_often_something_changes_and_one_more_follows() {
        let Situation { mut changes, tried, state: sender, serving, node: _node } = situation();
        let busy = async {
            for limit in 1..20 {
                sleep(BUSY).await;
                sender.send_replace(state(&format!("{{name: a, limits: {{time: {limit}ms}}}}, {{name: slow}}")));
            }
            Instant::now()
        };
        let attempts = async {
            let mut ends = Vec::new();
            loop {
                changes.begin();
                let (ended, has_changed) = changes.during(sleep(ATTEMPT), &tried, &serving).await;
                assert!(ended.is_some(), "none is given up");
                ends.push(Instant::now());
                if !has_changed {
                    return ends;
                }
            }
        };
        let (last_change, ends) = tokio::join!(busy, attempts);
        let in_force = ends.iter().find(|end| **end - ATTEMPT >= last_change).expect("one attempt has seen it");
        assert!(*in_force - last_change <= 2 * ATTEMPT, "{:?}", *in_force - last_change);
        assert_eq!(in_force, ends.last().unwrap(), "exactly one more");
    }

    #[tokio::test(start_paused = true)]
    async fn an_attempt_that_waits_for_lookups_ends_when_the_entry_of_the_filter_changes() {
        let (changed, other) = ("{name: slow, settings: {x: 1}}", "{name: slow}, {name: a, settings: {x: 1}}");
        // When the filter begins to wait: before the change, after it, or never.
        for (filters, waits, ends) in [
            (changed, Some(Duration::ZERO), true),
            (changed, Some(2 * BUSY), true),
            (changed, None, false),
            (other, Some(Duration::ZERO), false),
        ] {
            let Situation { mut changes, tried, state: sender, serving, node: _node } = situation();
            let waiting = tried.clone();
            let change = async {
                let wait = async {
                    if let Some(waits) = waits {
                        sleep(waits).await;
                        waiting.waits();
                    }
                };
                let change = async {
                    sleep(BUSY).await;
                    sender.send_replace(state(filters));
                };
                tokio::join!(wait, change);
            };
            let ((ended, _), ()) = tokio::join!(changes.during(sleep(ATTEMPT), &tried, &serving), change);
            assert_eq!(ended.is_none(), ends, "{filters} {waits:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_attempt_ends_when_nobody_wants_what_it_loads() {
        let off = NodeState::Known(NodeFacts { is_off: true, ..NodeFacts::default() });
        for (filters, switch, ends) in [
            (Some("{name: a}"), None, true),
            (Some("{name: a}, {name: other}"), None, true),
            (None, Some(off.clone()), true),
            (Some("{name: a, nonsense: 1}"), Some(off), true),
            (Some("{name: slow}"), None, false),
            (Some("{name: a, nonsense: 1}"), None, false),
        ] {
            let Situation { mut changes, tried, state: sender, serving, node } = situation();
            let began = Instant::now();
            let change = async {
                sleep(BUSY).await;
                if let Some(filters) = filters {
                    sender.send_replace(state(filters));
                }
                if let Some(switch) = switch {
                    node.send_replace(switch);
                }
            };
            let ((ended, has_changed), ()) = tokio::join!(changes.during(sleep(ATTEMPT), &tried, &serving), change);
            assert_eq!((ended.is_none(), has_changed), (ends, true), "{filters:?}");
            assert_eq!(began.elapsed(), if ends { BUSY } else { ATTEMPT }, "{filters:?}");
        }
    }
}
