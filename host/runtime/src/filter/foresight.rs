//! What a filter will do, told from what it did before: the steps that it took on earlier objects, as a tree. An object
//! on which each step brings what it brought before is not worth a call: nine Services in ten are left alone by every
//! filter for one missing annotation, and of the slices of a Service that asks for it, all are cut by the same pool.
//!
//! This leans on the one rule of the contract: a filter is a pure function of what it reads. An outcome counts after
//! [`AGREED`] calls gave it; a module that acts or answers differently on the same replies is found out here, and nothing
//! is foreseen for it any more. Spot checks go on for foreseen outcomes as for others. What is looked up on the way is
//! recorded, as in a call.
//!
//! Bounds: [`NODES`] of a few hundred bytes each per filter, [`REPLIES`] different ones per step, [`WEIGHT`] bytes of
//! texts.

use std::sync::{Arc, Mutex, PoisonError, RwLock};

use weir_document::Document;

use crate::{Finder, Lesson, Reply, Step};

use crate::wasm::Replay;

/// Calls that must agree on an outcome before it is foreseen.
const AGREED: u8 = 4;
/// Steps and outcomes in one tree.
const NODES: usize = 1024;
/// Replies to one step that are told apart; that there is nothing is always one more.
const REPLIES: usize = 16;
/// What the texts of all steps may take in memory, in bytes.
const WEIGHT: usize = 4 << 20;
/// How often what was learnt may change; past it, what would change again is called for.
const CHANGES: usize = 64;
/// Finders that are kept for the next batches.
const FINDERS: usize = 4;

/// The tree of one filter, shared by all who judge with it.
#[derive(Debug, Default)]
pub(super) struct Foresight {
    tree: RwLock<Arc<Tree>>,
    finders: Mutex<Vec<Finder>>,
}

/// What a filter did so far.
#[derive(Debug, Clone, Default)]
pub(super) struct Tree {
    root: Node,
    nodes: usize,
    weight: usize,
    /// How often something else was learnt than before.
    changes: usize,
    /// The generation of the filter's reads at which it began to grow.
    began: u64,
    /// The module was found to be no pure function.
    distrusted: bool,
}

#[derive(Debug, Clone, Default)]
enum Node {
    /// No call came here yet.
    #[default]
    Unknown,
    /// The filter takes a step.
    Steps(Box<Steps>),
    /// The filter keeps or hides the object as it is now, so many calls said.
    Outcome { keep: bool, calls: u8 },
    /// The filter does what can't be foreseen, in so many calls.
    Acts { calls: u8 },
}

#[derive(Debug, Clone)]
struct Steps {
    step: Step,
    replies: Vec<(Reply<'static>, Node)>,
}

/// What is known of an object's outcome before a call.
#[derive(Debug)]
pub(super) enum Foreseen {
    /// It is kept, or hidden, as the filter would have left it.
    Outcome(bool, Document),
    /// Nothing; a call would teach it.
    Unknown,
    /// Nothing; and a call would teach nothing either.
    Nothing,
}

/// The module acted or answered differently on the same replies: it keeps state between objects.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Contradiction;

impl Foresight {
    /// What is known now.
    pub(super) fn tree(&self) -> Arc<Tree> {
        self.tree.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Who looks up for a batch.
    pub(super) fn finder(&self, new: impl FnOnce() -> Finder) -> Finder {
        let kept = self.finders.lock().unwrap_or_else(PoisonError::into_inner).pop();
        kept.unwrap_or_else(new)
    }

    /// The batch is over.
    pub(super) fn give_back(&self, finder: Finder) {
        let mut finders = self.finders.lock().unwrap_or_else(PoisonError::into_inner);
        if finders.len() < FINDERS {
            finders.push(finder);
        }
    }

    /// Takes in what a call taught, at this generation of the filter's reads.
    pub(super) fn learn(&self, lesson: Lesson, keep: bool, generation: u64) -> Result<(), Contradiction> {
        let mut tree = self.tree.write().unwrap_or_else(PoisonError::into_inner);
        if !tree.distrusted {
            Arc::make_mut(&mut tree).learn(lesson, keep, generation)?;
        }
        Ok(())
    }

    /// Forgets everything, for good: the module is no pure function of what it reads.
    pub(super) fn distrust(&self) {
        *self.tree.write().unwrap_or_else(PoisonError::into_inner) =
            Arc::new(Tree { distrusted: true, ..Tree::default() });
    }
}

impl Tree {
    /// The outcome of an object, as far as it is known.
    pub(super) fn foresee(&self, object: &Document, finder: &mut Finder) -> Foreseen {
        let foreseen = self.follow(object, finder);
        finder.end();
        foreseen
    }

    fn follow(&self, object: &Document, finder: &mut Finder) -> Foreseen {
        let open = if self.distrusted || self.nodes >= NODES { Foreseen::Nothing } else { Foreseen::Unknown };
        let generation = finder.generation();
        let mut replay = Replay::new(finder, object);
        let mut node = &self.root;
        loop {
            node = match node {
                Node::Unknown => return open,
                Node::Acts { calls } | Node::Outcome { calls, .. } if *calls < AGREED => return open,
                Node::Acts { .. } => return Foreseen::Nothing,
                Node::Outcome { keep, .. } => return Foreseen::Outcome(*keep, replay.into_object()),
                Node::Steps(steps) => {
                    // Bad bytes are for the call to fail on.
                    let Ok(reply) = replay.take(&steps.step) else { return Foreseen::Nothing };
                    if reply.is_long() {
                        return Foreseen::Nothing;
                    }
                    match steps.replies.iter().find(|(known, _)| *known == reply) {
                        Some((_, next)) => next,
                        None if !steps.is_full(&reply) || steps.is_worn(self.began, generation) => return open,
                        None => return Foreseen::Nothing,
                    }
                }
            }
        }
    }

    fn learn(&mut self, lesson: Lesson, keep: bool, generation: u64) -> Result<(), Contradiction> {
        if !lesson.is_wanted() {
            return Ok(());
        }
        let (whole, began) = (lesson.is_whole(), self.began);
        // What follows a fingerprint may hang on what the module keeps by it, which it may: it did more the first time.
        let mut remembers = false;
        let mut node = &mut self.root;
        for (step, reply) in lesson.into_steps() {
            if !matches!(node, Node::Steps(steps) if steps.step == step) {
                match node {
                    Node::Acts { calls } if *calls >= AGREED => return Ok(()),
                    Node::Unknown | Node::Acts { .. } => {}
                    _ if remembers => self.changes += 1,
                    _ => return Err(Contradiction),
                }
                let weight = step.weight();
                if self.changes > CHANGES || (weight > 0 && self.weight + weight > WEIGHT) {
                    *node = Node::Acts { calls: AGREED };
                    return Ok(());
                }
                self.nodes += 1;
                self.weight += weight;
                *node = Node::Steps(Box::new(Steps { step: step.clone(), replies: Vec::new() }));
            }
            let Node::Steps(steps) = node else { return Ok(()) };
            remembers |= step.remembers();
            let known = steps.replies.iter().position(|(known, _)| *known == reply);
            if known.is_none() {
                if steps.is_full(&reply) {
                    if steps.is_worn(began, generation) {
                        *self = Self { began: generation, ..Self::default() };
                    }
                    return Ok(());
                }
                steps.replies.push((reply, Node::Unknown));
            }
            let last = steps.replies.len() - 1;
            let Some((_, next)) = steps.replies.get_mut(known.unwrap_or(last)) else { return Ok(()) };
            node = next;
        }
        match node {
            Node::Unknown => {
                self.nodes += 1;
                *node = if whole { Node::Outcome { keep, calls: 1 } } else { Node::Acts { calls: 1 } };
            }
            Node::Outcome { keep: before, calls } if whole && *before == keep => *calls = calls.saturating_add(1),
            Node::Acts { calls } if !whole => *calls = calls.saturating_add(1),
            Node::Steps(steps) if !whole && steps.step.edits() => {
                // It edits, and then does for some objects what can't be foreseen.
                *node = changed(&mut self.changes, Node::Acts { calls: 1 });
            }
            // This instance had nothing to go by yet.
            _ if remembers && !whole => {}
            Node::Acts { calls } if remembers && *calls >= AGREED => {}
            Node::Acts { .. } | Node::Steps(_) if remembers => {
                *node = changed(&mut self.changes, Node::Outcome { keep, calls: 1 });
            }
            _ => return Err(Contradiction),
        }
        Ok(())
    }
}

/// What is there now, after something else was learnt than before; too often, and it is called for.
fn changed(changes: &mut usize, now: Node) -> Node {
    *changes += 1;
    if *changes > CHANGES { Node::Acts { calls: AGREED } } else { now }
}

impl Steps {
    /// Whether its replies may be of a world that was, in a tree that began at a generation: it is time to begin anew.
    fn is_worn(&self, began: u64, generation: u64) -> bool {
        self.step.looks_up() && began != generation
    }

    /// Whether this reply, a new one, is one too many.
    fn is_full(&self, reply: &Reply<'_>) -> bool {
        *reply != Reply::Nothing && self.replies.len() >= REPLIES
    }
}

#[cfg(test)]
mod tests;
