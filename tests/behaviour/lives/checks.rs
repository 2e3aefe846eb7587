//! The checks of a life: objects served from disk, objects served as fresh, and writes to the disk.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use serde_json::Value;
use weir_tests::client::PATIENCE;

use super::history::{Collection, Shown};
use super::model::{Kept, World};
use super::moves::Name;
use super::play::Life;
use super::run::Run;

/// By then the API server has answered what a lost connection makes a store ask.
const ANSWERED: Duration = Duration::from_secs(5);

impl Life {
    /// Compares the responses of a start without an API server with the model.
    pub(super) async fn compare(&mut self, begun: Instant) {
        let run = self.run.as_ref().unwrap();
        for collection in run.collections() {
            let key = if collection == Collection::Services { None } else { run.key };
            let node = run.name.text();
            let mut expected = BTreeSet::new();
            match (run.is_other, collection, key) {
                (true, ..) | (_, Collection::Secrets, None) => drop(expected.insert(Kept::Nothing)),
                _ => self.worlds.iter().for_each(|world| expected.extend(world.expected(node, collection, key))),
            }
            let (must, may) = (!expected.contains(&Kept::Nothing), expected.iter().any(|kept| *kept != Kept::Nothing));
            let shown = self.awaited(collection, must, may).await;
            let worlds = &self.worlds;
            let case =
                || format!("{collection:?} with key {key:?}: {shown:?}\nexpected: {expected:?}\nof: {worlds:#?}");
            if must && shown.is_none() {
                run.fail(&format!("what was committed is not served: {}", case()));
            }
            if !may && shown.is_some() {
                run.fail(&format!("what does not fit is served: {}", case()));
            }
            if collection == Collection::Services {
                self.note(begun.elapsed(), must, may);
            }
            if run.is_other || (collection == Collection::Secrets && key.is_none()) {
                continue;
            }
            let narrowed =
                |world: &World| world.narrowed(&self.site.histories, node, (collection, key), shown.as_ref());
            let left: BTreeSet<_> = self.worlds.iter().filter_map(narrowed).collect();
            if left.is_empty() {
                run.fail(&format!("what is served is not what was committed: {}", case()));
            }
            self.worlds = left;
        }
    }

    async fn awaited(&self, collection: Collection, must: bool, may: bool) -> Option<Shown> {
        let run = self.run.as_ref().unwrap();
        let (begun, mut tries) = (Instant::now(), 0);
        loop {
            let shown = run.shown(collection).await;
            tries += 1;
            let is_last = if must { begun.elapsed() > PATIENCE } else { !may || tries > 2 };
            if shown.is_some() || is_last {
                return shown;
            }
        }
    }

    fn note(&self, took: Duration, must: bool, may: bool) {
        let (run, mut report) = (self.run.as_ref().unwrap(), self.report());
        if must {
            let used = self.worlds.first().and_then(|world| world.used(run.name.text(), None));
            let disk = if self.site.is_read_only { "read-only".to_owned() } else { format!("{:?}", self.site.disk) };
            let case = format!("{}, disk {disk}, file {used:?}", self.ended);
            report.served.entry(case.to_lowercase()).or_default().push(took);
        } else if may {
            report.unsure += 1;
        } else {
            report.unserved += 1;
        }
    }

    /// What was fresh is served on.
    pub(super) async fn compare_with_memory(&self) {
        let Some(run) = &self.run else { return };
        let Some((history, versions)) = &run.fresh else { return };
        let shown = self.awaited(Collection::Services, true, true).await;
        let is_right = shown.as_ref().is_some_and(|shown| {
            shown.version >= versions[&Collection::Services]
                && self.site.histories.is_state(*history, Collection::Services, shown)
        });
        if !is_right {
            run.fail(&format!("what was fresh is not served without the link: {shown:?}"));
        }
    }

    /// Waits until what is served is that of the present history, and has all that there is. `None`: there is no link.
    pub(super) async fn sync(&mut self) -> Option<BTreeMap<Collection, u64>> {
        let run = self.run.as_ref().filter(|_| self.site.is_up)?;
        let history = self.site.history();
        let mut versions = BTreeMap::new();
        for collection in run.collections() {
            let wanted = self.site.histories.changed(history, collection);
            let fresh = self.fresh(run, history, collection, wanted);
            if tokio::time::timeout(2 * PATIENCE, fresh).await.is_err() {
                let (store, shown) = (run.store(collection).await, run.shown(collection).await);
                run.fail(&format!("{collection:?} are never fresh at {wanted}: {shown:?}, {store}"));
            }
            versions.insert(collection, wanted);
        }
        self.run.as_mut()?.fresh = Some((history, versions.clone()));
        Some(versions)
    }

    async fn fresh(&self, run: &Run, history: usize, collection: Collection, wanted: u64) {
        let mut wrong_since = None;
        loop {
            let before = run.store(collection).await;
            let shown = run.shown(collection).await;
            let after = run.store(collection).await;
            let is_fresh = |store: &Value| store["state"] == "synced";
            if let Some(shown) = shown.filter(|_| is_fresh(&before) && is_fresh(&after)) {
                let is_right = self.site.histories.is_state(history, collection, &shown);
                if is_right && shown.version >= wanted {
                    return;
                }
                // A view follows its store in a moment.
                let version = shown.version.to_string();
                let is_settled = [&before, &after].iter().all(|store| store["resourceVersion"] == version);
                if !is_settled || is_right {
                    wrong_since = None;
                } else if wrong_since.get_or_insert_with(Instant::now).elapsed() > ANSWERED {
                    run.fail(&format!("{collection:?} of another history are served as fresh: {shown:?}, {after}"));
                }
            } else {
                wrong_since = None;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Waits until all that is served is on disk. What is there after a second commit has all that was known before.
    pub(super) async fn commit(&mut self) {
        let is_possible = self.site.is_writable() && self.run.as_ref().is_some_and(|run| !run.is_other);
        if !is_possible || self.sync().await.is_none() {
            return;
        }
        for _ in 0..2 {
            let mut wanted = vec![(Collection::Services, self.site.change(Collection::Services, "marker"))];
            let is_right = self.run.as_ref().is_some_and(|run| run.name == Name::Right);
            if is_right && self.site.key().is_some() {
                wanted.push((Collection::Secrets, self.site.change(Collection::Secrets, "token")));
            }
            for (collection, version) in wanted {
                self.committed(collection, version).await;
            }
            // Permissions are learnt by reading, and of another cluster only once the first commit has its file.
            self.sync().await;
        }
        self.put();
    }

    async fn committed(&self, collection: Collection, version: u64) {
        let run = self.run.as_ref().unwrap();
        let committed = async {
            loop {
                let store = run.store(collection).await;
                let on_disk = store["disk"]["resourceVersion"].as_str().and_then(|version| version.parse::<u64>().ok());
                if on_disk.is_some_and(|on_disk| on_disk >= version) {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        if tokio::time::timeout(3 * PATIENCE, committed).await.is_err() {
            run.fail(&format!("{collection:?} at {version} never get to the disk: {}", run.store(collection).await));
        }
    }
}
