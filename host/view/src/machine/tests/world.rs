//! An API server, one view, and clients.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use crate::machine::{Begin, CatchUp, CatchUpError, Changed, Event, Frame, Object as _, Stamps, ViewCore, ViewWatch};
use rpds::RedBlackTreeMapSync;
use weir_store::StoreKey;

use super::act::{Act, Rule};
use super::client::{Client, Stream};
use super::objects::{Label, Obj, Out, is_selected, name, outcome};
use super::{CLIENTS, EVENTS};

/// A change at the API server.
#[derive(Debug, Clone, Copy)]
pub(super) struct Logged {
    version: u64,
    key: u64,
    /// `None`: it was deleted.
    content: Option<u64>,
}

pub(super) struct World {
    /// The rule that does not hold.
    without: Option<Rule>,
    revision: u64,
    log: Vec<Logged>,
    chain: u64,
    /// Counts the chains that were in force.
    number: u64,
    failing: Option<u64>,
    /// The objects of which it is not known which state clients hold: their filter has failed, a client listed them while the view
    /// was behind, or they were deleted and came back among the events of one catch-up.
    is_unknown: BTreeSet<u64>,
    /// The versions that a view has shown before a kill lost them. The next one may make them with another chain.
    lost: BTreeSet<u64>,
    view: ViewCore<Obj>,
    taken: u64,
    stamps: Stamps,
    clients: Vec<Client>,
}

impl World {
    pub(super) fn new(without: Option<Rule>) -> Self {
        let clients = (0..CLIENTS).map(|n| Client { selects: n == 1, ..Client::default() }).collect();
        let mut world = Self {
            without,
            revision: 1,
            log: Vec::new(),
            chain: 0,
            number: 0,
            failing: None,
            is_unknown: BTreeSet::new(),
            lost: BTreeSet::new(),
            view: ViewCore::new(EVENTS),
            taken: 0,
            stamps: Stamps::default(),
            clients,
        };
        world.start(1);
        world
    }

    fn holds(&self, rule: Rule) -> bool {
        self.without != Some(rule)
    }

    fn state_at(&self, version: u64) -> BTreeMap<u64, (u64, u64)> {
        let mut state = BTreeMap::new();
        for logged in self.log.iter().take_while(|logged| logged.version <= version) {
            match logged.content {
                Some(content) => drop(state.insert(logged.key, (logged.version, content))),
                None => drop(state.remove(&logged.key)),
            }
        }
        state
    }

    /// What the view makes of an object. The last good outcome stands in for a failure.
    fn object(&self, key: u64, version: u64, content: u64) -> Arc<Obj> {
        if self.failing == Some(key) {
            let old = self.view.objects().get(&name(key)).filter(|old| !old.has_failed());
            let (shown, out) = old.map_or((version, Out::Failed), |old| (old.shown, old.out));
            return Arc::new(Obj { version, content, out, shown });
        }
        Arc::new(Obj { version, content, out: outcome(self.chain, key, content), shown: version })
    }

    fn objects(&self, version: u64) -> RedBlackTreeMapSync<StoreKey, Arc<Obj>> {
        let state = self.state_at(version).into_iter();
        state.map(|(key, (version, content))| (name(key), self.object(key, version, content))).collect()
    }

    /// A process begins with what is on disk.
    fn start(&mut self, version: u64) {
        self.view = ViewCore::new(EVENTS);
        self.stamps = Stamps::default();
        self.failing = None;
        let objects = self.objects(version);
        self.view.reset(version, objects);
        self.taken = self.number;
        if !self.holds(Rule::Start) {
            self.stamps.answer(self.view.taken(), 0);
        }
    }

    /// A change is taken before the first outcome that was made with it.
    fn take_before(&mut self) {
        if self.taken != self.number && self.holds(Rule::MarkFirst) {
            self.view.take([]);
        }
    }

    fn follow(&mut self) {
        let reached = self.view.version();
        let next = self.log.iter().find(|logged| logged.version > reached).copied();
        self.take_before();
        let (version, key, new) = match next {
            Some(Logged { version, key, content }) => {
                let new = content.map(|content| self.object(key, version, content));
                (version, Some(name(key)), new)
            }
            None => (self.revision, None, None),
        };
        if version > reached {
            self.view.apply([Changed { version, key, new, is_list: false, memo: () }]);
        }
    }

    /// The difference to a list, as if its events were those of the API server.
    fn follow_list(&mut self, objects: &RedBlackTreeMapSync<StoreKey, Arc<Obj>>) {
        let before = self.view.objects().clone();
        let version = self.revision;
        let gone = before.keys().filter(|key| !objects.contains_key(*key));
        let gone = gone.map(|key| Changed { version, key: Some(key.clone()), new: None, is_list: false, memo: () });
        let changed = objects.iter().filter(|(key, new)| before.get(*key).is_none_or(|old| old.version != new.version));
        let changed = changed.map(|(key, new)| Changed {
            version: new.version,
            key: Some(key.clone()),
            new: Some(new.clone()),
            is_list: false,
            memo: (),
        });
        let mut changes: Vec<_> = changed.chain(gone).collect();
        changes.sort_by_key(|change| change.version);
        changes.push(Changed { version, key: None, new: None, is_list: false, memo: () });
        self.view.apply(changes);
    }

    fn refilter(&mut self) {
        let state = self.state_at(self.view.version());
        let objects =
            state.into_iter().map(|(key, (version, content))| (name(key), self.object(key, version, content), ()));
        let objects: Vec<_> = objects.collect();
        self.view.take(objects);
        self.taken = self.number;
    }

    fn last(&self) -> u64 {
        self.stamps.of(self.view.taken())
    }

    fn watch(&mut self, n: usize, version: u64) {
        let selects = self.clients[n].selects;
        self.clients[n].fell_back |= self.clients[n].version.is_some_and(|held| version < held);
        // One that goes back, to a view that has gone back, too: a kill lost what was not on disk yet.
        if self.clients[n].fell_back {
            let lost = self.clients[n].held.iter().filter(|(_, (held, _))| self.lost.contains(held));
            self.is_unknown.extend(lost.map(|(key, _)| *key));
        }
        // Later versions are no versions of what the client holds any more.
        self.clients[n].given.retain(|given| *given <= version);
        let is_known = self.taken == self.number || !self.holds(Rule::InStep);
        let last = if is_known { self.last() } else { u64::MAX };
        let (watch, waits) = match ViewWatch::after(&self.view, version, last, &Label(selects)) {
            Begin::Watch(watch) | Begin::Below(watch) => (watch, None),
            Begin::Ahead => (ViewWatch::now(&self.view), Some(version)),
            Begin::Uncertain => return self.gone(n),
        };
        // A request waits for the view to be in step, up to a bound. Beyond it nothing is known of what its client was shown.
        let is_in_step = self.taken == self.number && self.failing.is_none();
        let began = if is_in_step { self.number } else { u64::MAX };
        let frames = VecDeque::new();
        let stream = Stream { watch, frames, caught: version, highest: version, began, waits };
        self.clients[n].stream = Some(stream);
    }

    /// The client lists again. Until then it holds what it has.
    fn gone(&mut self, n: usize) {
        let client = &mut self.clients[n];
        let (held, rules) = (std::mem::take(&mut client.held), std::mem::take(&mut client.rules));
        *client = Client { selects: client.selects, lists: client.lists, held, rules, ..Client::default() };
    }

    /// A list of the API server, through the chain that is in force.
    fn list(&mut self, n: usize) {
        let state = self.state_at(self.revision);
        if self.failing.is_some_and(|key| state.contains_key(&key)) {
            return;
        }
        let chain = self.chain;
        let selects = self.clients[n].selects;
        // The view has not shown them yet, or hides them by the chain before.
        let (reached, is_behind) = (self.view.version(), self.taken != self.number);
        let unknown = state.iter().filter(|(_, (version, _))| is_behind || *version > reached);
        self.is_unknown.extend(unknown.map(|(key, _)| *key));
        let held = state.into_iter().filter(|(_, (_, content))| is_selected(selects, *content));
        let held = held.map(|(key, (version, content))| (key, (version, outcome(chain, key, content))));
        let held = held.filter(|(_, (_, out))| *out != Out::Hidden).collect();
        self.hold(n, held, self.revision);
    }

    fn list_view(&mut self, n: usize) {
        if self.taken != self.number || self.view.objects().values().any(|object| object.has_failed()) {
            return;
        }
        let selects = self.clients[n].selects;
        let held =
            self.view.objects().iter().filter(|(_, object)| object.is_shown() && is_selected(selects, object.content));
        let held = held.map(|(key, object)| (key.name().parse().unwrap(), (object.shown, object.out))).collect();
        self.hold(n, held, self.view.version());
    }

    fn hold(&mut self, n: usize, objects: BTreeMap<u64, (u64, Out)>, version: u64) {
        // What a list does not have is deleted as it is held.
        for (key, (held, _)) in std::mem::take(&mut self.clients[n].held) {
            let content = self.content_of(held);
            self.clients[n].rules.remove(&(key, content));
        }
        for (key, object) in objects {
            self.hold_one(n, key, object);
        }
        let client = &mut self.clients[n];
        (client.version, client.given, client.stream) = (Some(version), vec![version], None);
        (client.lists, client.fell_back) = (client.lists + 1, false);
    }

    fn hold_one(&mut self, n: usize, key: u64, object: (u64, Out)) {
        let content = self.content_of(object.0);
        let before = self.clients[n].held.insert(key, object);
        if let Some((before, _)) = before {
            let content = self.content_of(before);
            self.clients[n].rules.remove(&(key, content));
        }
        self.clients[n].rules.insert((key, content));
    }

    /// Gives a client its next event. Returns whether there was one.
    fn deliver(&mut self, n: usize) -> Result<bool, String> {
        let (last, selects) = (self.last(), self.clients[n].selects);
        let label = Label(selects);
        let Some(mut stream) = self.clients[n].stream.take() else { return Ok(false) };
        if let Some(version) = stream.waits {
            if version > self.view.version() {
                self.clients[n].stream = Some(stream);
                return Ok(false);
            }
            let last = if stream.began == u64::MAX && self.holds(Rule::InStep) { u64::MAX } else { last };
            match ViewWatch::after(&self.view, version, last, &label) {
                Begin::Watch(watch) => (stream.watch, stream.waits) = (watch, None),
                // The history has moved on meanwhile.
                Begin::Below(_) | Begin::Ahead => return Ok(true),
                Begin::Uncertain => {
                    self.gone(n);
                    return Ok(true);
                }
            }
        }
        while stream.frames.is_empty() {
            if stream.watch.is_catching_up() {
                let CatchUp { to, is_repeated, .. } = stream.watch.catch_up().unwrap();
                let next =
                    self.log.iter().find(|logged| logged.version > stream.caught && logged.version <= to).copied();
                match next {
                    // Another chain than the view's: the watch ends.
                    _ if self.taken != self.number => return Ok(true),
                    Some(logged) => {
                        stream.caught = logged.version;
                        // It may be created and deleted again before the history begins, which nobody knows yet.
                        let again = |other: &Logged| other.key == logged.key && other.version > logged.version;
                        let is_deletion = logged.content.is_none_or(|content| !is_selected(selects, content));
                        if is_deletion && is_repeated && self.log.iter().any(again) {
                            self.is_unknown.insert(logged.key);
                        }
                        match self.caught(logged, selects, is_repeated) {
                            Some(frame) => stream.frames.extend(frame),
                            None => {
                                self.gone(n);
                                return Ok(true);
                            }
                        }
                    }
                    None => match stream.watch.caught_up(&self.view, last, &label) {
                        Ok(()) => {}
                        Err(CatchUpError::Evicted) => return Ok(true),
                        Err(CatchUpError::Uncertain) => {
                            self.gone(n);
                            return Ok(true);
                        }
                    },
                }
                continue;
            }
            let mut frames = Vec::new();
            match stream.watch.step(
                |from, limit| Ok((self.view.events_from(from, limit)?, last)),
                2,
                &label,
                &mut frames,
            ) {
                Ok(true) => stream.frames.extend(frames),
                Ok(false) => match stream.watch.bookmark(&self.view) {
                    Some(version) if self.clients[n].version != Some(version) => {
                        stream.frames.push_back(Frame::Bookmark(version));
                    }
                    _ => {
                        self.clients[n].stream = Some(stream);
                        return Ok(false);
                    }
                },
                Err(_) => return Ok(true),
            }
        }
        let frame = stream.frames.pop_front().unwrap();
        self.receive(n, stream, frame)
    }

    /// An event of the API server, without memory. `None`: the client lists again.
    fn caught(&self, logged: Logged, selects: bool, is_repeated: bool) -> Option<Option<Frame<Obj>>> {
        let Logged { version, key, content } = logged;
        let before = self.state_at(version - 1).get(&key).copied();
        let object = |content, out| Arc::new(Obj { version, content, out, shown: version });
        let shown = content.filter(|content| is_selected(selects, *content));
        let Some(content) = shown else {
            let was = before.filter(|(_, content)| is_selected(selects, *content));
            // It was created again, or came back to the selector, and the client may hold either.
            if was.is_some() && is_repeated && self.view.objects().contains_key(&name(key)) {
                return None;
            }
            return Some(was.map(|(_, content)| self.deleted(key, object(content, Out::Hidden), version)));
        };
        if self.failing == Some(key) {
            return None;
        }
        let out = outcome(self.chain, key, content);
        let is_modified = before.is_some_and(|(_, content)| is_selected(selects, content));
        Some(Some(match out {
            // What the client holds of it is not known, and a deletion carries that.
            Out::Hidden if is_modified => return None,
            // Above the stamp a client holds nothing that the chain hides.
            Out::Hidden if !is_repeated => return Some(None),
            // It has had no other state.
            Out::Hidden if self.view.objects().get(&name(key)).is_some_and(|now| now.version == version) => {
                self.deleted(key, object(content, out), version)
            }
            Out::Hidden => return None,
            _ => Frame::Modified { object: object(content, out), is_again: false, event: Some(self.event(key)) },
        }))
    }

    fn deleted(&self, key: u64, object: Arc<Obj>, version: u64) -> Frame<Obj> {
        Frame::Deleted { object, event: Some(self.event(key)), version: Some(version) }
    }

    fn event(&self, key: u64) -> Arc<Event<Obj>> {
        let cause = crate::machine::Cause::Upstream;
        Arc::new(Event { version: 0, cause, key: Some(name(key)), old: None, new: None, memo: () })
    }

    /// The key of an object: versions are of one object each.
    fn key_of(&self, object: &Obj) -> u64 {
        self.log.iter().find(|logged| logged.version == object.version).map_or(u64::MAX, |logged| logged.key)
    }

    fn content_of(&self, version: u64) -> Option<u64> {
        self.log.iter().find(|logged| logged.version == version).and_then(|logged| logged.content)
    }

    fn receive(&mut self, n: usize, mut stream: Stream, frame: Frame<Obj>) -> Result<bool, String> {
        let key = |object: &Obj| self.key_of(object);
        let (number, chain) = (self.number, self.chain);
        let mut version = None;
        match frame {
            Frame::Added { object, event } | Frame::Modified { object, event, .. } => {
                let key = key(&object);
                if event.is_some_and(|event| event.cause == crate::machine::Cause::Upstream) {
                    stream.highest = stream.highest.max(object.shown);
                }
                if stream.began == number && outcome(chain, key, object.content) == Out::Hidden {
                    return Err(format!("client {n} is shown {key} at {}, which the chain hides", object.version));
                }
                self.hold_one(n, key, (object.shown, object.out));
                version = Some(object.shown);
            }
            Frame::Deleted { object, event, version: at } => {
                let key = match event.and_then(|event| event.key.clone()) {
                    Some(key) => key.name().parse().unwrap(),
                    None => key(&object),
                };
                let named = match self.is_unknown.contains(&key) {
                    true => self.clients[n].held.get(&key).and_then(|(held, _)| self.content_of(*held)),
                    false => Some(object.content),
                };
                let client = &mut self.clients[n];
                if client.held.remove(&key).is_some() {
                    client.rules.remove(&(key, named));
                }
                version = Some(at.unwrap_or(object.shown));
            }
            Frame::Bookmark(at) | Frame::InitialEnd(at) => {
                if at < stream.highest {
                    return Err(format!("client {n} gets BOOKMARK {at} after {}", stream.highest));
                }
                stream.highest = at;
                version = Some(at);
            }
            Frame::Uncertain => {
                self.gone(n);
                return Ok(true);
            }
            Frame::Failed(object) => {
                let now = self.view.objects().get(&name(key(&object)));
                if now.is_some_and(|now| now.has_failed()) {
                    self.gone(n);
                    return Ok(true);
                }
            }
        }
        let client = &mut self.clients[n];
        if let Some(version) = version {
            client.fell_back =
                client.version.is_some_and(|before| version < before || (client.fell_back && version == before));
            client.version = Some(version);
            client.given.push(version);
        }
        client.stream = Some(stream);
        Ok(true)
    }

    pub(super) fn act(&mut self, act: Act) -> Result<(), String> {
        match act {
            Act::Write(key, content) => {
                self.revision += 1;
                self.log.push(Logged { version: self.revision, key, content: Some(content) });
            }
            Act::Delete(key) if self.state_at(self.revision).contains_key(&key) => {
                self.revision += 1;
                self.log.push(Logged { version: self.revision, key, content: None });
            }
            Act::Delete(_) => {}
            Act::Tick => self.revision += 1,
            Act::Follow => self.follow(),
            Act::Jump => {
                self.take_before();
                let objects = self.objects(self.revision);
                let same = |(key, new): (&StoreKey, &Arc<Obj>)| {
                    self.view.objects().get(key).is_some_and(|old| old.version == new.version)
                };
                if objects.size() == self.view.objects().size()
                    && objects.iter().all(same)
                    && self.revision > self.view.version()
                    && self.holds(Rule::NewHistory)
                {
                    let version = self.revision;
                    self.view.apply([Changed { version, key: None, new: None, is_list: true, memo: () }]);
                } else if self.holds(Rule::NewHistory) {
                    self.view.jump(self.revision, objects, || ());
                } else {
                    self.follow_list(&objects);
                }
                // Of what came and went meanwhile nobody knows. A client that holds more than the version says from which it
                // continues may keep it: one that was cut off amid part 1, or that goes back on its own.
                for n in (0..CLIENTS).filter(|n| self.clients[*n].fell_back).collect::<Vec<_>>() {
                    self.gone(n);
                }
            }
            Act::Flip => {
                self.chain += 1;
                self.number += 1;
            }
            Act::Refilter => self.refilter(),
            Act::Stamp if self.taken == self.number => self.stamps.answer(self.view.taken(), self.revision),
            Act::Stamp if !self.holds(Rule::StampAfter) => self.stamps.answer(self.view.taken() + 1, self.revision),
            Act::Stamp => {}
            Act::Evict => {
                self.view.limit(0);
                self.view.limit(usize::MAX);
            }
            Act::Crash(back) => {
                self.clients.iter_mut().for_each(|client| client.stream = None);
                let (shown, kept) = (self.view.version(), self.view.version().saturating_sub(back).max(1));
                self.lost.extend(kept + 1..=shown);
                self.start(kept);
            }
            Act::Fail(key) => {
                // The last good outcome stands in: another chain may have made it.
                self.failing = Some(key);
                self.is_unknown.insert(key);
                self.clients
                    .iter_mut()
                    .filter_map(|client| client.stream.as_mut())
                    .for_each(|stream| stream.began = u64::MAX);
            }
            Act::Recover if self.failing.is_some() => {
                self.failing = None;
                self.refilter();
            }
            Act::Recover => {}
            Act::List(n) => self.list(n),
            Act::ListView(n) => self.list_view(n),
            Act::Watch(n) => {
                if let Some(version) = self.clients[n].version {
                    self.watch(n, version);
                }
            }
            Act::WatchOld(n, at) => {
                let given = &self.clients[n].given;
                let at = usize::try_from(at).unwrap() % given.len().max(1);
                if let Some(version) = given.get(at).copied() {
                    self.watch(n, version);
                }
            }
            Act::Deliver(n) => drop(self.deliver(n)?),
            Act::Cut(n) => self.clients[n].stream = None,
        }
        Ok(())
    }

    /// Lets the world come to rest, and compares what clients hold.
    pub(super) fn rest(&mut self, is_stamped: bool, reconnects: bool) -> Result<(), String> {
        if self.failing.take().is_some() || self.taken != self.number {
            self.refilter();
        }
        while self.view.version() < self.revision {
            self.follow();
        }
        if is_stamped {
            self.stamps.answer(self.view.taken(), self.revision);
        }
        for n in 0..CLIENTS {
            if reconnects {
                self.clients[n].stream = None;
            }
            for events in 0.. {
                if self.clients[n].version.is_none() {
                    self.list(n);
                }
                if self.clients[n].stream.is_none() {
                    let version = self.clients[n].version.unwrap_or_default();
                    self.watch(n, version);
                }
                if !self.deliver(n)? && self.clients[n].stream.is_some() {
                    break;
                }
                if events > 500 {
                    return Err(format!("client {n} does not come to rest"));
                }
            }
            self.compare(n)?;
        }
        Ok(())
    }

    fn compare(&self, n: usize) -> Result<(), String> {
        let client = &self.clients[n];
        let state = self.state_at(self.revision).into_iter();
        let shown = state.filter(|(_, (_, content))| is_selected(client.selects, *content));
        let shown = shown.map(|(key, (version, content))| (key, (version, outcome(self.chain, key, content))));
        let shown: BTreeMap<_, _> = shown.filter(|(_, (_, out))| *out != Out::Hidden).collect();
        if client.held != shown {
            return Err(format!("client {n} holds {:?}, and is to hold {shown:?}", client.held));
        }
        let rules: BTreeSet<_> = shown.iter().map(|(key, (version, _))| (*key, self.content_of(*version))).collect();
        if client.rules != rules {
            return Err(format!("client {n} has the rules {:?} of what it holds, {rules:?}", client.rules));
        }
        Ok(())
    }
}
