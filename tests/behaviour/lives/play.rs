//! Plays a life: applies its moves to the daemon and its environment, and keeps the model of the disk.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use weir_tests::client::PATIENCE;

use super::files::{self, Donor};
use super::history::Collection;
use super::model::World;
use super::moves::{Disk, Move, Name};
use super::run::Run;
use super::site::Site;

/// What lives have shown.
#[derive(Debug, Default)]
pub(super) struct Report {
    pub(super) starts: usize,
    /// From the start of the process to the first list, by the kind of case.
    pub(super) served: BTreeMap<String, Vec<Duration>>,
    /// Starts without an API server that had nothing to serve.
    pub(super) unserved: usize,
    /// Those of which either is right.
    pub(super) unsure: usize,
}

pub(super) struct Life {
    pub(super) site: Site,
    pub(super) worlds: BTreeSet<World>,
    pub(super) run: Option<Run>,
    pub(super) ended: &'static str,
    /// The end of the log of the last run.
    log: String,
    report: Arc<Mutex<Report>>,
}

impl Life {
    pub(super) async fn new(donor: &'static Donor, report: Arc<Mutex<Report>>) -> Self {
        let worlds = [World::default()].into();
        Self { site: Site::new(donor).await, worlds, run: None, ended: "first", log: String::new(), report }
    }

    pub(super) async fn play(&mut self, moves: &[Move]) {
        for found in moves {
            self.step(*found).await;
        }
        self.kill().await;
    }

    async fn step(&mut self, found: Move) {
        match found {
            Move::Start(name) => self.start(name, false).await,
            Move::StartAsOther => self.start(Name::Right, true).await,
            Move::StartKilled(name, milliseconds) => self.start_killed(name, milliseconds).await,
            Move::Stop => self.stop().await,
            Move::Kill => self.kill().await,
            Move::Sync => drop(self.sync().await),
            Move::Commit => self.commit().await,
            Move::Change(number) => drop(self.site.change(Collection::Services, &format!("service-{number}"))),
            Move::Delete(number) => self.site.delete(&format!("service-{number}")),
            Move::ChangeSecret => drop(self.site.change(Collection::Secrets, "token")),
            Move::Link(is_up) => self.link(is_up).await,
            Move::Cluster(number) => {
                if number != self.site.present {
                    // Whose watches are open loses their connections, however short it takes.
                    let is_watching = self.run.as_ref().is_some_and(|run| run.fresh.is_some());
                    self.behind_link(!is_watching, |site| site.put_cluster(number)).await;
                }
            }
            Move::Backup => self.site.back_up(),
            Move::Restore(writes) => {
                if self.site.has_backup() {
                    // Without a server for longer than a client takes to connect again, no backup is put back.
                    self.behind_link(true, |site| site.restore(writes)).await;
                }
            }
            Move::Clock(hours) => self.site.put_clock_ahead(hours),
            Move::Disk(disk) => {
                self.evolve();
                self.site.put_disk(disk);
                self.note_trouble();
            }
            Move::ReadOnly(is_read_only) => {
                self.evolve();
                self.site.put_read_only(is_read_only);
                self.note_trouble();
            }
            Move::Key(_) | Move::OtherRelease | Move::Replace(..) => self.change_files(found),
        }
    }

    /// Somebody changes files while no daemon runs.
    fn change_files(&mut self, found: Move) {
        if self.run.is_some() || self.site.is_read_only {
            return;
        }
        let (folder, donor) = (self.site.folder().to_owned(), self.site.donor);
        match found {
            Move::Key(key) => self.site.put_key(key),
            Move::OtherRelease => {
                files::run_other_release(&folder);
                self.worlds = self.worlds.iter().map(files::other_release).collect();
            }
            Move::Replace(file, by) => {
                self.site.key();
                files::replace(&folder, donor, file, by);
                self.worlds = self.worlds.iter().flat_map(|world| files::replaced(world, file, by)).collect();
            }
            _ => {}
        }
    }

    fn note_trouble(&mut self) {
        if let Some(run) = &mut self.run {
            run.is_troubled |= self.site.disk != Disk::Fine || self.site.is_read_only;
        }
    }

    pub(super) fn report(&self) -> std::sync::MutexGuard<'_, Report> {
        self.report.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    async fn start(&mut self, name: Name, is_other: bool) {
        if self.run.is_some() {
            return;
        }
        let Some(setup) = (if is_other { self.site.setup_of_other() } else { Some(self.site.setup(name)) }) else {
            return;
        };
        self.site.server().clear_requests();
        let (key, begun) = (self.site.key(), Instant::now());
        let weir = setup.start().await;
        let before = std::mem::take(&mut self.log);
        self.run = Some(Run { weir, name, is_other, confirmed: None, fresh: None, is_troubled: false, key, before });
        self.note_trouble();
        self.report().starts += 1;
        if self.site.is_up {
            self.connected().await;
        } else {
            self.compare(begun).await;
        }
        self.evolve();
    }

    async fn start_killed(&mut self, name: Name, milliseconds: u16) {
        if self.run.is_some() {
            return;
        }
        let key = self.site.key();
        let started = tokio::time::timeout(Duration::from_millis(milliseconds.into()), self.site.setup(name).start());
        // What has not come so far is killed when it is dropped.
        let weir = started.await.ok();
        if let Some(weir) = weir {
            weir.kill().await;
        }
        let confirmed = self.site.is_up.then_some(self.site.present);
        self.end(name, (false, None, key));
        self.end(name, (false, confirmed, key));
        self.ended = "killed in its start";
    }

    /// Waits until the daemon knows which cluster it is.
    async fn connected(&mut self) {
        let Some(run) = self.run.as_mut().filter(|run| !run.is_other && run.confirmed.is_none()) else { return };
        let mut requests = self.site.server().request_count();
        let is_asked = || {
            let requests = self.site.server().requests();
            requests.iter().any(|request| request.path == "/api/v1/namespaces/kube-system")
        };
        let asked = async {
            while !is_asked() {
                requests.changed().await.unwrap();
            }
        };
        if tokio::time::timeout(2 * PATIENCE, asked).await.is_err() {
            run.fail("the daemon does not ask which cluster it is");
        }
        run.confirmed = Some(self.site.present);
    }

    /// Notes what may have happened on disk since the last change of the circumstances.
    fn evolve(&mut self) {
        let Some(run) = self.run.as_ref().filter(|run| !run.is_other) else { return };
        let (name, confirmed) = (run.name.text(), run.confirmed);
        self.evolve_as(name, confirmed);
    }

    fn evolve_as(&mut self, node: &'static str, confirmed: Option<usize>) {
        let mut worlds = self.worlds.clone();
        for known in [None, confirmed] {
            let opened: Vec<_> = worlds.iter().flat_map(|world| world.opened(node, known)).collect();
            worlds.extend(opened);
        }
        if self.site.is_up {
            let (history, key) = (self.site.history(), self.site.key());
            // Its events may be there before the answer that says which cluster it is.
            for known in [None, confirmed] {
                let fitting = worlds.iter().filter(|world| world.fits(node, known)).cloned();
                let touched: Vec<_> = fitting
                    .map(|mut world| {
                        world.main().unwrap().touch(history, key);
                        world
                    })
                    .collect();
                let opened: Vec<_> = touched.iter().flat_map(|world| world.opened(node, confirmed)).collect();
                worlds.extend(touched.into_iter().chain(opened));
            }
        }
        self.worlds = worlds;
    }

    /// From now on exactly this is on disk, in the file of this run.
    pub(super) fn put(&mut self) {
        self.evolve();
        let key = self.site.key();
        let Some(run) = &self.run else { return };
        let Some((history, versions)) = run.fresh.as_ref().filter(|_| !run.is_other) else { return };
        let (node, confirmed) = (run.name.text(), run.confirmed);
        let fitting = self.worlds.iter().filter(|world| world.fits(node, confirmed));
        let put = fitting.filter_map(|world| {
            let mut world = world.clone();
            let file = world.main().filter(|file| file.cluster == confirmed)?;
            for (collection, version) in versions {
                match (collection, key) {
                    (Collection::Services, _) => file.put(*collection, *history, *version, None),
                    (Collection::Secrets, Some(_)) => file.put(*collection, *history, *version, key),
                    (Collection::Secrets, None) => {}
                }
            }
            Some(world)
        });
        self.worlds = put.collect();
        assert!(!self.worlds.is_empty(), "the model has a file that fits");
    }

    async fn link(&mut self, is_up: bool) {
        if is_up == self.site.is_up {
            return;
        }
        self.evolve();
        if is_up {
            self.site.server().clear_requests();
        }
        self.site.put_link(is_up).await;
        if is_up {
            self.connected().await;
        } else {
            self.compare_with_memory().await;
        }
    }

    /// Changes what is at the other end of the link. `is_noticed`: the daemon has tried to connect meanwhile.
    async fn behind_link(&mut self, is_noticed: bool, change: impl FnOnce(&mut Site)) {
        self.evolve();
        let (is_up, before) = (self.site.is_up, self.site.present);
        self.site.put_link(false).await;
        if let Some(run) = self.run.as_ref().filter(|run| is_noticed && is_up && !run.is_other) {
            run.without_server().await;
        }
        change(&mut self.site);
        let is_exchanged = self.site.present != before;
        if let Some(run) = &mut self.run {
            run.fresh = None;
            // It asks again.
            run.confirmed = run.confirmed.filter(|_| !(is_exchanged && is_up));
        }
        self.site.server().clear_requests();
        self.site.put_link(is_up).await;
        if is_up {
            self.connected().await;
        }
        self.evolve();
    }

    async fn kill(&mut self) {
        self.evolve();
        let Some(run) = self.run.take() else { return };
        self.log = run.end_of_log();
        run.weir.kill().await;
        self.end(run.name, (run.is_other, run.confirmed, run.key));
        self.ended = "killed";
    }

    async fn stop(&mut self) {
        self.evolve();
        let is_kept = self.site.is_writable()
            && self.run.as_ref().is_some_and(|run| !run.is_troubled && run.confirmed.is_some() && run.fresh.is_some());
        if is_kept {
            self.put();
        }
        let Some(run) = self.run.take() else { return };
        self.log = run.end_of_log();
        assert_eq!(run.weir.stop().await, Some(0), "the exit code of a stop");
        self.end(run.name, (run.is_other, run.confirmed, run.key));
        self.ended = "stopped";
    }

    /// What a run may have done in its last moments, a new key among it. A key that it has found stays as it is.
    fn end(&mut self, name: Name, (is_other, confirmed, before): (bool, Option<usize>, Option<usize>)) {
        if !is_other {
            self.evolve_as(name.text(), confirmed);
        }
        let now = self.site.key();
        assert!(before.is_none() || before == now, "the daemon has replaced the key {before:?} by {now:?}");
    }
}
