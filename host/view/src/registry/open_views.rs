//! The views that are open.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use weir_store::cache::Collection;
use weir_store::{ReflectorError, StoreHandle, StoreReader};

use crate::state::View;
use weir_process::ledger::{Charge, Ledger, OverShare, Owner, Use};
use weir_process::sync::{Mutex, MutexGuard, PoisonError};
use weir_runtime::{ChainPeriod, FilterSet};

/// How long a view that no client reads is kept.
const IDLE: Duration = Duration::from_secs(600);
/// The same of a view that only one client and request can read.
const PRIVATE_IDLE: Duration = Duration::from_secs(60);
/// The most views that clients have opened, and the most that node components have.
///
/// A node with 110 pods has some hundred: one for each Secret and ConfigMap.
const MAX_VIEWS: usize = 1024;
/// The most of them that one owner has, but for the daemon and node components.
const MAX_OF_OWNER: usize = MAX_VIEWS / 4;
/// What a view costs beside its objects and its key: two tasks, the watch upstream with its buffers, and an empty history.
const VIEW: u64 = 64 << 10;
/// What each object costs in the index of a view, and in that of a store beside its bytes.
const OBJECT: u64 = 176;
/// How often the names in a key are in memory: in the keys of views and stores, the URL, the name on disk, and logs.
const KEY_COPIES: u64 = 16;
/// The assumed size of a store that has not been filled yet.
const UNFILLED: u64 = 192 << 10;

/// What distinguishes a view from others.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct ViewKey {
    /// The identity with which the objects are read upstream.
    pub(super) reader: StoreReader,
    pub(super) collection: Collection,
    /// The chain that all of its components read through.
    pub(super) period: ChainPeriod,
    /// 0 for the view that requests find. A fork whose place is taken has another number, and lasts as long as its watches: their
    /// clients continue with the one that has the place.
    pub(super) copy: u64,
}

/// The client for which a view is opened.
#[derive(Debug, Clone, Copy)]
pub struct Opener<'a> {
    /// Its component.
    pub component: &'a str,
    /// Whose share it counts in.
    pub owner: &'a Owner,
    /// Whether a view and its store may be opened. Else only an open one is returned.
    pub opens: bool,
}

/// The open views, behind the lock under which they are found, opened and closed.
#[derive(Default)]
pub(super) struct SharedViews(Mutex<OpenViews>);

/// The open views.
#[derive(Default)]
pub(super) struct OpenViews {
    pub(super) views: HashMap<ViewKey, OpenView>,
    /// The filter set whose outcomes they show, or begin to.
    pub(super) set: Option<Arc<FilterSet>>,
}

/// A view, and the lock under which it was found: its components are those that are known when the lock is released.
pub(super) type Found<'a> = (Arc<View>, MutexGuard<'a, OpenViews>);

/// One of them.
pub(super) struct OpenView {
    pub(super) view: Arc<View>,
    /// When a client has read it last.
    pub(super) used: Instant,
    /// What it costs.
    pub(super) charge: Charge,
    /// What its store costs, which all of its views share. `None`: it is the daemon's.
    pub(super) store: Option<Arc<Charge>>,
}

impl ViewKey {
    /// The bytes of all names that a client chooses.
    fn bytes(&self) -> u64 {
        let Collection { path, field_selector, label_selector, parameters, version, .. } = &self.collection;
        [path, field_selector, label_selector, parameters, version].into_iter().map(|name| name.len() as u64).sum()
    }

    /// Whether two views have one store.
    pub(super) fn has_store_of(&self, other: &Self) -> bool {
        self.reader == other.reader && self.collection == other.collection
    }

    /// Whether only the clients of one reader, or of one selector, need its store.
    fn is_private(&self) -> bool {
        self.reader != StoreReader::Daemon || !self.collection.is_whole()
    }
}

impl OpenView {
    /// Logs what a client's use of it has caused. Each request may name another selector.
    fn log_use(&self, key: &ViewKey, what: &str) {
        match key.is_private() {
            true => tracing::debug!(collection = %key.collection, components = ?self.view.component_names(), "{what}"),
            false => self.log(key, what),
        }
    }

    /// Logs what happens to the view. Each request of any client may open a private one.
    pub(super) fn log(&self, key: &ViewKey, what: &str) {
        let components = self.view.component_names();
        match key.reader.is_private() {
            true => tracing::debug!(collection = %key.collection, ?components, "{what}"),
            false => tracing::info!(collection = %key.collection, ?components, "{what}"),
        }
    }

    /// Whether a watch is open. The registry and the view's task hold the view, too.
    fn is_watched(&self) -> bool {
        Arc::strong_count(&self.view) > 2
    }

    /// A fork of it, which costs its owner as much once that is counted.
    pub(super) fn of_fork(&self, view: Arc<View>) -> Self {
        Self { view, used: self.used, charge: self.charge.another(), store: self.store.clone() }
    }

    fn is_of(&self, owner: &Owner) -> bool {
        self.charge.owner() == owner
    }

    /// What it and its store cost.
    fn cost(&self) -> u64 {
        self.charge.bytes() + self.store.as_ref().map_or(0, |store| store.bytes())
    }

    /// Whether its store was refused the room for its list: it would fetch as much again and again.
    fn has_no_room(&self) -> bool {
        let state = self.view.reflector_state();
        let is_refused = matches!(state.borrow().error, Some(ReflectorError::NoRoom { .. }));
        is_refused && self.store.is_some()
    }

    /// Counts what it and its store cost now.
    fn recount(&self, key: &ViewKey) {
        let objects = self.view.snapshot().objects.size() as u64;
        let selectors = self.view.selector_bytes() as u64;
        self.charge.set(VIEW + KEY_COPIES * key.bytes() + OBJECT * objects + selectors);
        if let Some(store) = &self.store {
            let status = self.view.store.status();
            let filled = (status.bytes as u64 + OBJECT * status.objects as u64).max(status.arriving as u64);
            store.set(if status.synced { filled } else { filled.max(UNFILLED) });
        }
    }
}

impl SharedViews {
    pub(super) fn lock(&self) -> MutexGuard<'_, OpenViews> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the view of a component's read, and opens it if it is not; `None` if there are too many, or if it may not be opened.
    /// `key` says which one it is, and `open` returns the new view.
    ///
    /// # Errors
    /// The view would exceed the share of the owner.
    pub(super) fn find_or_open(
        &self,
        ledger: &Ledger,
        opener: Opener<'_>,
        key: impl FnOnce(&mut OpenViews) -> Option<ViewKey>,
        open: impl FnOnce(&OpenViews, &ViewKey) -> Option<Arc<View>>,
    ) -> Result<Option<Found<'_>>, OverShare> {
        // Clients that come at the same time get the same view.
        let mut views = self.lock();
        let Some(key) = key(&mut views) else { return Ok(None) };
        // All clients share what is in it, and no name of a client makes it another one.
        let opener = if key.is_private() { opener } else { Opener { owner: &Owner::Daemon, ..opener } };
        views.take_over(ledger, opener.owner, &key);
        if let Some(found) = views.views.get_mut(&key) {
            found.used = Instant::now();
            let view = found.view.clone();
            return Ok(Some((view, views)));
        }
        if !opener.opens {
            return Ok(None);
        }
        if key.reader.is_private() {
            views.close_replaced(opener.owner, &key);
        }
        let (charge, store) = views.charge(ledger, opener.owner, &key)?;
        if !views.make_room(opener.owner) {
            if ledger.should_log(opener.owner) {
                tracing::warn!(collection = %key.collection, component = opener.component, limit = MAX_VIEWS, "too many views, the request is not served from one");
            }
            return Ok(None);
        }
        let Some(view) = open(&views, &key) else { return Ok(None) };
        store.iter().for_each(|charge| OpenViews::limit_store(&view.store, ledger, charge));
        let found = OpenView { view: view.clone(), used: Instant::now(), charge, store };
        found.log_use(&key, "view opened");
        views.views.insert(key, found);
        Ok(Some((view, views)))
    }
}

impl OpenViews {
    /// Finds a place for a view: its own, or another one if that is taken.
    pub(super) fn place(&mut self, mut key: ViewKey, found: OpenView) {
        while self.views.contains_key(&key) {
            key.copy += 1;
        }
        self.views.insert(key, found);
    }

    /// Whether requests may find a view: none of those before it is for each component.
    fn is_found(&self, key: &ViewKey) -> bool {
        let before = |copy: u64| self.views.get(&ViewKey { copy, ..key.clone() });
        (0..key.copy).all(|copy| before(copy).is_some_and(|found| !found.view.admits_all()))
    }

    fn component_names(&self, key: &ViewKey) -> Vec<String> {
        self.views.get(key).map(|found| found.view.component_names()).unwrap_or_default()
    }

    fn close(&mut self, key: &ViewKey, reason: &str) {
        if let Some(found) = self.end(key) {
            found.log(key, &format!("view closed: {reason}"));
        }
    }

    /// Ends the task of a view, and its watches.
    fn end(&mut self, key: &ViewKey) -> Option<OpenView> {
        let found = self.views.remove(key)?;
        found.view.closed().cancel();
        Some(found)
    }

    /// Closes the views that no client has read for a while.
    pub(super) fn close_idle(&mut self) {
        let watched = self.views.iter_mut();
        let watched = watched.filter(|(key, found)| key.reader.is_private() && found.view.open_watches() > 0);
        watched.for_each(|(_, found)| found.used = Instant::now());
        let limit = |key: &ViewKey| match key {
            _ if !self.is_found(key) => Duration::ZERO,
            _ if key.reader.is_private() => PRIVATE_IDLE,
            _ => IDLE,
        };
        let idle = |key: &ViewKey, found: &OpenView| found.used.elapsed() > limit(key) && !found.is_watched();
        let idle = self.views.iter().filter(|(key, found)| idle(key, found));
        let idle: Vec<_> = idle.map(|(key, _)| key.clone()).collect();
        for key in idle {
            self.end(&key).iter().for_each(|found| found.log_use(&key, "view closed: no client reads it"));
        }
    }

    /// Makes room for one more view: closes the one that clients have not read for the longest time, so that lists of one client
    /// do not take the place of another's watches. Views of node components and those of others do not take each other's
    /// place. Returns false if all are watched.
    fn make_room(&mut self, owner: &Owner) -> bool {
        let is_reserved = owner.is_reserved();
        let same = |found: &OpenView| found.charge.owner().is_reserved() == is_reserved;
        let own = self.views.values().filter(|found| found.is_of(owner)).count();
        if !is_reserved && own >= MAX_OF_OWNER {
            return self.close_unread(|found| found.is_of(owner), "its user has too many views");
        }
        if self.views.values().filter(|found| same(found)).count() < MAX_VIEWS {
            return true;
        }
        self.close_unread(same, "there are too many views")
    }

    /// Closes what an owner watched in the same words with another credential, such as the token before: it would count until it
    /// is idle for long enough.
    fn close_replaced(&mut self, owner: &Owner, key: &ViewKey) {
        let is_replaced = |of: &ViewKey| {
            of.reader.is_private()
                && of.reader != key.reader
                && of.collection == key.collection
                && of.period == key.period
        };
        let replaced = self.views.iter();
        let replaced = replaced.filter(|(of, found)| is_replaced(of) && found.is_of(owner) && !found.is_watched());
        let replaced: Vec<_> = replaced.map(|(key, _)| key.clone()).collect();
        replaced.iter().for_each(|key| self.close(key, "its user has another credential"));
    }

    /// Closes the view that clients have not read for the longest time, of those that a condition holds for and that nobody
    /// watches. Returns false if there is none.
    fn close_unread(&mut self, of: impl Fn(&OpenView) -> bool, reason: &str) -> bool {
        let unread = self.views.iter().filter(|(_, found)| of(found) && !found.is_watched());
        let longest = unread.min_by_key(|(_, found)| found.used).map(|(key, _)| key.clone());
        longest.inspect(|key| self.close(key, reason)).is_some()
    }

    /// Charges an owner for a view and its store. Views that the owner does not read any more are closed first.
    fn charge(
        &mut self,
        ledger: &Ledger,
        owner: &Owner,
        key: &ViewKey,
    ) -> Result<(Charge, Option<Arc<Charge>>), OverShare> {
        loop {
            let charged = self.try_charge(ledger, owner, key);
            // Nothing that is closed ends a penalty.
            let is_final = matches!(charged, Ok(_) | Err(OverShare::Penalty { .. }));
            if is_final || !self.close_unread(|found| found.is_of(owner), "its user's share is used up") {
                return charged;
            }
        }
    }

    fn try_charge(
        &mut self,
        ledger: &Ledger,
        owner: &Owner,
        key: &ViewKey,
    ) -> Result<(Charge, Option<Arc<Charge>>), OverShare> {
        let view = ledger.charge(owner, Use::Views, VIEW + KEY_COPIES * key.bytes())?;
        if !key.is_private() {
            return Ok((view, None));
        }
        let known = self.views.iter().find(|(of, _)| of.has_store_of(key)).and_then(|(_, found)| found.store.clone());
        let store = match known {
            Some(known) if known.owner().is_reserved() || !owner.is_reserved() => known,
            // What a user's share has no room for would be a node component's, too.
            Some(known) => {
                let own = Arc::new(ledger.charge(owner, Use::Views, known.bytes())?);
                self.set_store_charge(key, &own);
                own
            }
            None => Arc::new(ledger.charge(owner, Use::Views, UNFILLED)?),
        };
        Ok((view, Some(store)))
    }

    /// All views of a store share what it is charged to.
    fn set_store_charge(&mut self, key: &ViewKey, charge: &Arc<Charge>) {
        let views = self.views.iter_mut().filter(|(of, _)| of.has_store_of(key));
        views.for_each(|(_, found)| found.store = Some(charge.clone()));
    }

    /// A node component reads a view that another owner has opened: from now on it is the node's, and nothing that the other
    /// one does closes it.
    fn take_over(&mut self, ledger: &Ledger, owner: &Owner, key: &ViewKey) {
        let Some(found) = self.views.get_mut(key) else { return };
        if !owner.is_reserved() || found.charge.owner().is_reserved() {
            return;
        }
        let Ok(taken) = ledger.charge(owner, Use::Views, found.charge.bytes()) else { return };
        found.charge = taken;
        let store = found.store.as_ref().filter(|store| !store.owner().is_reserved());
        if let Some(Ok(charge)) = store.map(|store| ledger.charge(owner, Use::Views, store.bytes())) {
            let charge = Arc::new(charge);
            Self::limit_store(&found.view.store, ledger, &charge);
            self.set_store_charge(key, &charge);
        }
    }

    /// Bounds the lists of a store by the share of its owner, as long as it is this owner's.
    fn limit_store(store: &StoreHandle, ledger: &Ledger, charge: &Arc<Charge>) {
        let (ledger, charge) = (ledger.clone(), Arc::downgrade(charge));
        store.room().limit(move |bytes| {
            // Its views are closed: nobody's share counts what follows.
            let Some(charge) = charge.upgrade() else { return false };
            if charge.bytes() >= bytes {
                return true;
            }
            let grown = charge.grow_to(bytes);
            if matches!(grown, Err(OverShare::OfOwner { .. })) {
                ledger.penalize(charge.owner());
            }
            grown.is_ok()
        });
    }

    /// Counts what all views cost now. Views of an owner that has outgrown its share are closed: first those that nobody
    /// watches, then the largest ones. So are those whose lists do not fit. The same for the
    /// share of all owners but the daemon and node components.
    pub(super) fn recount(&mut self, ledger: &Ledger) {
        self.views.iter().for_each(|(key, found)| found.recount(key));
        let refused: Vec<_> =
            self.views.iter().filter(|(_, found)| found.has_no_room()).map(|(key, _)| key.clone()).collect();
        refused.iter().for_each(|key| self.close(key, "its list exceeds what is left of its user's share"));
        let owners: HashSet<_> = self.views.values().map(|found| found.charge.owner().clone()).collect();
        for owner in owners.iter().filter(|owner| ledger.excess(owner) > 0) {
            let own = self.views.iter().filter(|(_, found)| found.is_of(owner));
            let mut own: Vec<_> = own.map(|(key, found)| (!found.is_watched(), found.cost(), key.clone())).collect();
            let mut is_logged = false;
            own.sort_by_key(|(is_idle, cost, _)| (*is_idle, *cost));
            while ledger.excess(owner) > 0
                && let Some((_, bytes, key)) = own.pop()
            {
                // Once in a penalty, whatever else is logged of the owner.
                if !std::mem::replace(&mut is_logged, true) {
                    tracing::warn!(collection = %key.collection, components = ?self.component_names(&key), bytes, share = ledger.share(), "view closed: its user's share of memory is used up");
                }
                self.close(&key, "its user's share is used up");
                ledger.penalize(owner);
            }
        }
        self.close_for_others(ledger);
    }

    /// Closes views until the share of all owners but the daemon and node components is kept: first those that nobody watches,
    /// then the largest ones of the owner with most.
    fn close_for_others(&mut self, ledger: &Ledger) {
        let mut is_logged = false;
        while ledger.excess_of_others() > 0 {
            let others = self.views.iter().filter(|(_, found)| !found.charge.owner().is_reserved());
            let rank = |found: &OpenView| (!found.is_watched(), ledger.used(found.charge.owner()), found.cost());
            let Some((key, found)) = others.max_by_key(|(_, found)| rank(found)) else { return };
            let (key, bytes) = (key.clone(), found.cost());
            if !std::mem::replace(&mut is_logged, true) {
                tracing::warn!(collection = %key.collection, components = ?self.component_names(&key), bytes, "view closed: the share of all users in Weir's memory is used up");
            }
            self.close(&key, "the share of all users is used up");
        }
    }
}
