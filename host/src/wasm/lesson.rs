//! What one call asked of the object at hand and was answered, in order. A filter is a pure function of what it reads:
//! an object that answers the same questions alike gets the same outcome, and needs no call (`filter/foresight.rs`).
//!
//! A call that does more than ask such questions (it edits, looks up other objects, logs, reads whole columns) teaches
//! what it asked until then, and that the rest must be called for.

use std::borrow::Cow;

use weir_document::{Document, Error, Path, Value};

/// Questions of one call that are remembered.
const QUESTIONS: usize = 32;
/// Longest reply that is remembered, in bytes.
const REPLY: usize = 256;

/// A read of the object at hand; see `wit/objects.wit`.
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
}

/// What an object answers.
#[derive(Debug, Clone, PartialEq)]
pub enum Reply<'a> {
    /// It has nothing there.
    Nothing,
    /// To most questions.
    Text(Cow<'a, str>),
    /// To `get`.
    Value(Value),
    /// To `one-of`.
    Position(u32),
}

/// What a call taught.
#[derive(Debug, Default)]
pub struct Lesson {
    /// Whether anybody wants to know.
    wanted: bool,
    /// Whether the questions are all that the outcome hangs on.
    whole: bool,
    asked: Vec<(Question, Reply<'static>)>,
}

impl Question {
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
        })
    }
}

/// Which of `texts` the text is.
pub(super) fn position(text: Option<&str>, texts: &[String]) -> Option<u32> {
    let text = text?;
    texts.iter().position(|other| other == text).and_then(|position| u32::try_from(position).ok())
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
            Self::Value(Value::Number(text) | Value::Text(text) | Value::Json(text)) => text.len() > REPLY,
            Self::Nothing | Self::Value(_) | Self::Position(_) => false,
        }
    }

    fn into_owned(self) -> Reply<'static> {
        match self {
            Self::Nothing => Reply::Nothing,
            Self::Text(text) => Reply::Text(Cow::Owned(text.into_owned())),
            Self::Value(value) => Reply::Value(value),
            Self::Position(position) => Reply::Position(position),
        }
    }
}

impl Lesson {
    /// For a call that is to be learnt from, or not.
    pub(super) fn begin(&mut self, wanted: bool) {
        *self = Self { wanted, whole: true, asked: Vec::new() };
    }

    /// Whether what is asked now still counts.
    pub(super) fn listens(&self) -> bool {
        self.wanted && self.whole
    }

    /// A question was asked and answered.
    pub(super) fn note(&mut self, question: Question, reply: Reply<'_>) {
        if reply.is_long() {
            // Told from no other: the call teaches nothing.
            self.wanted = false;
        } else if self.asked.len() >= QUESTIONS {
            self.whole = false;
        } else {
            self.asked.push((question, reply.into_owned()));
        }
    }

    /// The call does something that is not a question: what comes after it must be called for.
    pub(super) fn interrupt(&mut self) {
        self.whole = false;
    }

    /// Whether it is to be learnt from.
    #[must_use]
    pub fn is_wanted(&self) -> bool {
        self.wanted
    }

    /// Whether the outcome hangs on the questions alone.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.whole
    }

    /// What was asked, in order.
    #[must_use]
    pub fn into_asked(self) -> Vec<(Question, Reply<'static>)> {
        self.asked
    }
}

#[cfg(test)]
impl Lesson {
    /// As a call would have taught it.
    pub(crate) fn test(whole: bool, asked: Vec<(Question, Reply<'static>)>) -> Self {
        Self { wanted: true, whole, asked }
    }
}
