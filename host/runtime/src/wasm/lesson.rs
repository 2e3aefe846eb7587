//! What one call did, step by step, and what came of each step: what it asked of the object at hand, which objects it
//! looked up and what it asked of those, and how it edited. A filter is a pure function of what it reads: where the
//! same steps bring the same replies, the next step is the same one, and in the end the outcome. So the steps can be
//! taken without the module (`replay.rs`, `filter/foresight.rs`).
//!
//! A call that does more than such steps (it reads whole columns, searches by labels, logs) teaches what it did until
//! then, and that the rest must be called for: with its edits, which are not made twice.

use std::borrow::Cow;
use std::sync::Arc;

use weir_document::{Document, Error, Path, StringSet, Value};

use super::finder::Declared;
use super::state::AT_HAND;

/// Steps of one call that are remembered.
const STEPS: usize = 32;
/// Longest reply that is remembered, in bytes; also the longest value that an edit sets.
const REPLY: usize = 256;
/// Longest reply to `lengths`, in rows.
const ROWS: usize = 16;

/// A step of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// A question to an object.
    Ask(Which, Question),
    /// `cluster.get`: of a kind, the object in a namespace, of a name.
    Get(Declared, Option<Box<str>>, Box<str>),
    /// `cluster.referent`: of a kind, the object that another one names at a path.
    Referent(Declared, Which, Path),
    /// `set`.
    Set(Path, Value),
    /// `remove`.
    Remove(Path),
    /// `retain-in`.
    RetainIn(Path, Arc<StringSet>),
}

/// An object that a step is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Which {
    /// The one that is judged.
    AtHand,
    /// The one that the n-th of those look-ups found that found one, from 0.
    Found(usize),
}

/// A read of an object; see `wit/objects.wit`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Question {
    /// `api-version`.
    ApiVersion,
    /// `kind`.
    Kind,
    /// `namespace`.
    Namespace,
    /// `name`.
    Name,
    /// `label`.
    Label(Box<str>),
    /// `annotation`.
    Annotation(Box<str>),
    /// `get`.
    Get(Path),
    /// `text`.
    Text(Path),
    /// `one-of`.
    OneOf(Path, Box<[String]>),
    /// `lengths`.
    Lengths(Path),
    /// `fingerprint`.
    Fingerprint(Path),
}

/// What comes of a step.
#[derive(Debug, Clone, PartialEq)]
pub enum Reply<'a> {
    /// There is nothing: no value, no object.
    Nothing,
    /// To most questions.
    Text(Cow<'a, str>),
    /// To `get`.
    Value(Value),
    /// To `one-of`.
    Position(u32),
    /// To `lengths`.
    Lengths(Vec<u32>),
    /// To `fingerprint`, and how many `remove` removed.
    Number(u64),
    /// The object is there; the edit is made.
    Done,
}

/// What a call taught.
#[derive(Debug, Default)]
pub struct Lesson {
    /// Whether anybody wants to know.
    wanted: bool,
    /// Whether the steps are all that the outcome hangs on.
    whole: bool,
    steps: Vec<(Step, Reply<'static>)>,
    /// The handles of the objects that were found, in order.
    found: Vec<u32>,
}

impl Step {
    /// Whether it edits the object.
    #[must_use]
    pub fn edits(&self) -> bool {
        matches!(self, Self::Set(..) | Self::Remove(_) | Self::RetainIn(..))
    }

    /// Whether other objects have a part in what comes of it.
    #[must_use]
    pub fn looks_up(&self) -> bool {
        matches!(self, Self::Get(..) | Self::Referent(..) | Self::Ask(Which::Found(_), _))
    }

    /// Whether the module may keep what it derives by the reply.
    #[must_use]
    pub fn remembers(&self) -> bool {
        matches!(self, Self::Ask(_, Question::Fingerprint(_)))
    }

    /// What it holds in memory beyond some hundred bytes.
    #[must_use]
    pub fn weight(&self) -> usize {
        match self {
            Self::RetainIn(_, texts) => texts.weight(),
            _ => 0,
        }
    }
}

impl Question {
    /// The path that is read; none: what an object is known by.
    pub(super) fn at(&self) -> Option<&Path> {
        match self {
            Self::Get(at) | Self::Text(at) | Self::OneOf(at, _) | Self::Lengths(at) | Self::Fingerprint(at) => Some(at),
            _ => None,
        }
    }

    /// Puts the question to an object.
    ///
    /// # Errors
    /// When the object's bytes are bad on the way.
    pub fn ask<'a>(&self, object: &'a Document) -> Result<Reply<'a>, Error> {
        Ok(match self {
            Self::ApiVersion => Reply::Text(object.api_version()?),
            Self::Kind => Reply::Text(object.kind()?),
            Self::Namespace => Reply::text(object.namespace()?),
            Self::Name => Reply::Text(object.name()?),
            Self::Label(key) => Reply::text(object.label(key)?),
            Self::Annotation(key) => Reply::text(object.annotation(key)?),
            Self::Get(at) => object.get(at)?.map_or(Reply::Nothing, Reply::Value),
            Self::Text(at) => Reply::text(object.text(at)?),
            Self::OneOf(at, texts) => {
                position(object.text(at)?.as_deref(), texts).map_or(Reply::Nothing, Reply::Position)
            }
            Self::Lengths(at) => Reply::Lengths(object.lengths(at)?),
            Self::Fingerprint(at) => Reply::Number(object.fingerprint(at)?),
        })
    }
}

/// Which of `texts` the text is.
pub(super) fn position(text: Option<&str>, texts: &[String]) -> Option<u32> {
    let text = text?;
    texts.iter().position(|other| other == text).and_then(|position| u32::try_from(position).ok())
}

/// Whether a value is too long to be remembered.
pub(super) fn is_long(value: &Value) -> bool {
    match value {
        Value::Number(text) | Value::Text(text) | Value::Json(text) => text.len() > REPLY,
        Value::Null | Value::Boolean(_) => false,
    }
}

impl<'a> Reply<'a> {
    /// A text that may be missing.
    pub(super) fn text(text: Option<Cow<'a, str>>) -> Self {
        text.map_or(Self::Nothing, Self::Text)
    }

    /// Whether it is too long to be remembered.
    #[must_use]
    pub fn is_long(&self) -> bool {
        match self {
            Self::Text(text) => text.len() > REPLY,
            Self::Value(value) => is_long(value),
            Self::Lengths(rows) => rows.len() > ROWS,
            Self::Nothing | Self::Position(_) | Self::Number(_) | Self::Done => false,
        }
    }

    fn into_owned(self) -> Reply<'static> {
        match self {
            Self::Nothing => Reply::Nothing,
            Self::Text(text) => Reply::Text(Cow::Owned(text.into_owned())),
            Self::Value(value) => Reply::Value(value),
            Self::Position(position) => Reply::Position(position),
            Self::Lengths(rows) => Reply::Lengths(rows),
            Self::Number(number) => Reply::Number(number),
            Self::Done => Reply::Done,
        }
    }
}

impl Lesson {
    /// For a call that is to be learnt from, or not.
    pub(super) fn begin(&mut self, wanted: bool) {
        *self = Self { wanted, whole: true, ..Self::default() };
    }

    /// Whether what is done now still counts.
    pub(super) fn listens(&self) -> bool {
        self.wanted && self.whole
    }

    /// Which object a handle stands for, if its steps can be told.
    pub(super) fn which(&self, handle: u32) -> Option<Which> {
        if handle == AT_HAND {
            return Some(Which::AtHand);
        }
        // Handles are used again: the last one counts.
        self.found.iter().rposition(|found| *found == handle).map(Which::Found)
    }

    /// A step was taken.
    pub(super) fn note(&mut self, step: Step, reply: Reply<'_>) {
        if reply.is_long() {
            // Told from no other: the call teaches nothing.
            self.wanted = false;
        } else if self.steps.len() >= STEPS {
            self.interrupt();
        } else {
            self.steps.push((step, reply.into_owned()));
        }
    }

    /// A look-up found the object of this handle, or none. Without a step it is not one that can be told.
    pub(super) fn look_up(&mut self, step: impl FnOnce() -> Option<Step>, handle: Option<u32>) {
        if !self.listens() {
            return;
        }
        match step() {
            Some(step) => self.note(step, handle.map_or(Reply::Nothing, |_| Reply::Done)),
            None => self.interrupt(),
        }
        self.found.extend(handle);
    }

    /// The call does something that is no such step: what comes after it must be called for, and so must its edits.
    pub(super) fn interrupt(&mut self) {
        if self.listens()
            && let Some(first) = self.steps.iter().position(|(step, _)| step.edits())
        {
            self.steps.truncate(first);
        }
        self.whole = false;
    }

    /// Whether it is to be learnt from.
    #[must_use]
    pub fn is_wanted(&self) -> bool {
        self.wanted
    }

    /// Whether the outcome hangs on the steps alone.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.whole
    }

    /// The steps in order.
    #[must_use]
    pub fn into_steps(self) -> Vec<(Step, Reply<'static>)> {
        self.steps
    }
}

#[cfg(test)]
impl Lesson {
    /// As a call would have taught it.
    pub(crate) fn test(whole: bool, steps: Vec<(Step, Reply<'static>)>) -> Self {
        Self { wanted: true, whole, steps, found: Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(which: Which) -> Step {
        Step::Ask(which, Question::Name)
    }

    fn remove() -> Step {
        Step::Remove(Path::parse("x").unwrap())
    }

    fn lesson() -> Lesson {
        let mut lesson = Lesson::default();
        lesson.begin(true);
        lesson
    }

    #[test]
    fn what_is_done_after_something_untold_teaches_nothing_nor_do_the_edits_before_it() {
        let mut lesson = lesson();
        lesson.note(ask(Which::AtHand), Reply::Nothing);
        lesson.note(remove(), Reply::Number(1));
        lesson.note(ask(Which::AtHand), Reply::Nothing);
        lesson.interrupt();
        assert!(!lesson.listens() && !lesson.is_whole() && lesson.is_wanted());
        assert_eq!(lesson.into_steps(), [(ask(Which::AtHand), Reply::Nothing)]);
    }

    #[test]
    fn handles_are_told_by_the_look_up_that_gave_them_last() {
        let mut lesson = lesson();
        lesson.look_up(|| Some(ask(Which::AtHand)), Some(3));
        lesson.look_up(|| Some(ask(Which::AtHand)), None);
        lesson.look_up(|| Some(ask(Which::AtHand)), Some(4));
        assert_eq!((lesson.which(3), lesson.which(4)), (Some(Which::Found(0)), Some(Which::Found(1))));
        lesson.look_up(|| Some(ask(Which::AtHand)), Some(3));
        assert_eq!(lesson.which(3), Some(Which::Found(2)), "the handle was used again");
        assert_eq!((lesson.which(AT_HAND), lesson.which(5)), (Some(Which::AtHand), None));
    }

    #[test]
    fn a_reply_that_is_too_long_makes_the_whole_call_untold_and_so_many_steps_are_enough() {
        let mut long = lesson();
        long.note(ask(Which::AtHand), Reply::Text("x".repeat(REPLY + 1).into()));
        assert!(!long.is_wanted());
        let mut many = lesson();
        for _ in 0..=STEPS {
            many.note(ask(Which::AtHand), Reply::Lengths(vec![1; ROWS]));
        }
        assert!(many.is_wanted() && !many.is_whole());
        assert_eq!(many.into_steps().len(), STEPS);
    }
}
