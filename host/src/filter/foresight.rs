//! What a filter will answer, told from what it answered before: the questions that it asked of earlier objects, as a
//! tree. An object that answers them as others did is not worth a call; nine Services in ten are left alone by every
//! filter for one missing annotation.
//!
//! This leans on the one rule of the contract: a filter is a pure function of what it reads. An outcome counts after
//! [`AGREED`] calls gave it; a module that answers or asks differently on the same replies is found out here, and nothing
//! is foreseen for it any more. Spot checks go on for foreseen outcomes as for others.
//!
//! Bounds: [`NODES`] of a few hundred bytes each per filter, [`REPLIES`] different ones per question.

use std::sync::{Arc, PoisonError, RwLock};

use weir_document::Document;

use crate::wasm::{Lesson, Question, Reply};

/// Calls that must agree on an outcome before it is foreseen.
const AGREED: u8 = 4;
/// Questions and outcomes in one tree.
const NODES: usize = 1024;
/// Replies to one question that are told apart; that there is nothing is always one more.
const REPLIES: usize = 16;

/// The tree of one filter, shared by all who judge with it.
#[derive(Debug, Default)]
pub(super) struct Foresight(RwLock<Arc<Tree>>);

/// What a filter asked and answered so far.
#[derive(Debug, Clone, Default)]
pub(super) struct Tree {
    root: Node,
    nodes: usize,
    /// The module was found to be no pure function.
    distrusted: bool,
}

#[derive(Debug, Clone, Default)]
enum Node {
    /// No call came here yet.
    #[default]
    Unknown,
    /// The filter asks on.
    Asks(Box<Asks>),
    /// The filter keeps or hides the object as it is, so many calls said.
    Outcome { keep: bool, calls: u8 },
    /// The filter does what can't be foreseen.
    Acts,
}

#[derive(Debug, Clone)]
struct Asks {
    question: Question,
    replies: Vec<(Reply<'static>, Node)>,
}

/// What is known of an object's outcome before a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Foreseen {
    /// It is kept, unedited.
    Keep,
    /// It is hidden.
    Hide,
    /// Nothing; a call would teach it.
    Unknown,
    /// Nothing; and a call would teach nothing either.
    Nothing,
}

/// The module asked or answered differently on the same replies: it keeps state between objects.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Contradiction;

impl Foresight {
    /// What is known now.
    pub(super) fn tree(&self) -> Arc<Tree> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Takes in what a call taught.
    pub(super) fn learn(&self, lesson: Lesson, keep: bool) -> Result<(), Contradiction> {
        let mut tree = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if !tree.distrusted {
            Arc::make_mut(&mut tree).learn(lesson, keep)?;
        }
        Ok(())
    }

    /// Forgets everything, for good: the module is no pure function of what it reads.
    pub(super) fn distrust(&self) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) =
            Arc::new(Tree { distrusted: true, ..Tree::default() });
    }
}

impl Tree {
    /// The outcome of an object, as far as it is known.
    pub(super) fn foresee(&self, object: &Document) -> Foreseen {
        let open = if self.distrusted || self.nodes >= NODES { Foreseen::Nothing } else { Foreseen::Unknown };
        let mut node = &self.root;
        loop {
            node = match node {
                Node::Unknown => return open,
                Node::Acts => return Foreseen::Nothing,
                Node::Outcome { calls, .. } if *calls < AGREED => return open,
                Node::Outcome { keep: true, .. } => return Foreseen::Keep,
                Node::Outcome { keep: false, .. } => return Foreseen::Hide,
                Node::Asks(asks) => {
                    // Bad bytes are for the call to fail on.
                    let Ok(reply) = asks.question.ask(object) else { return Foreseen::Nothing };
                    if reply.is_long() {
                        return Foreseen::Nothing;
                    }
                    match asks.replies.iter().find(|(known, _)| *known == reply) {
                        Some((_, next)) => next,
                        None if asks.is_full(&reply) => return Foreseen::Nothing,
                        None => return open,
                    }
                }
            }
        }
    }

    fn learn(&mut self, lesson: Lesson, keep: bool) -> Result<(), Contradiction> {
        if !lesson.is_wanted() {
            return Ok(());
        }
        let whole = lesson.is_whole();
        let mut node = &mut self.root;
        for (question, reply) in lesson.into_asked() {
            if matches!(node, Node::Unknown) {
                self.nodes += 1;
                *node = Node::Asks(Box::new(Asks { question: question.clone(), replies: Vec::new() }));
            }
            let asks = match node {
                Node::Asks(asks) if asks.question == question => asks,
                Node::Acts => return Ok(()),
                _ => return Err(Contradiction),
            };
            let known = asks.replies.iter().position(|(known, _)| *known == reply);
            if known.is_none() {
                if asks.is_full(&reply) {
                    return Ok(());
                }
                asks.replies.push((reply, Node::Unknown));
            }
            let last = asks.replies.len() - 1;
            let Some((_, next)) = asks.replies.get_mut(known.unwrap_or(last)) else { return Ok(()) };
            node = next;
        }
        match node {
            Node::Unknown => {
                self.nodes += 1;
                *node = if whole { Node::Outcome { keep, calls: 1 } } else { Node::Acts };
                Ok(())
            }
            Node::Outcome { keep: before, calls } if whole && *before == keep => {
                *calls = calls.saturating_add(1);
                Ok(())
            }
            Node::Acts if !whole => Ok(()),
            _ => Err(Contradiction),
        }
    }
}

impl Asks {
    /// Whether this reply, a new one, is one too many.
    fn is_full(&self, reply: &Reply<'_>) -> bool {
        *reply != Reply::Nothing && self.replies.len() >= REPLIES
    }
}

#[cfg(test)]
mod tests;
