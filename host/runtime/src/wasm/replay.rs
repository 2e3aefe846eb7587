//! The steps of a call taken without the module: what it would ask, look up and edit, on one object.

use std::borrow::Cow;

use wasmtime::Result;
use weir_document::Document;

use super::fault::Refusal;
use super::finder::Finder;
use super::found::Found;
use super::lesson::{Question, Reply, Step, Which};
use super::state::AT_HAND;

/// Steps taken without the module, on one object.
pub(crate) struct Replay<'a> {
    finder: &'a Finder,
    /// Borrowed until the first edit: what reads find out about it is kept with it.
    object: Cow<'a, Document>,
    found: Vec<Found>,
}

impl<'a> Replay<'a> {
    /// On this object.
    pub(crate) fn new(finder: &'a Finder, object: &'a Document) -> Self {
        Self { finder, object: Cow::Borrowed(object), found: Vec::new() }
    }

    /// Takes a step as the module would. What is read is recorded.
    ///
    /// # Errors
    /// When the module would be told of an error, or trap.
    pub(crate) fn take(&mut self, step: &Step) -> Result<Reply<'_>> {
        match step {
            Step::Ask(Which::AtHand, question) => Ok(question.ask(&self.object)?),
            Step::Ask(Which::Found(number), question) => {
                let found = self.found.get(*number).ok_or(Refusal::BadHandle(AT_HAND))?;
                let Some(at) = question.at() else { return Ok(question.ask(found.object.document())?) };
                let read = self.finder.read(found, at);
                match question {
                    // These are remembered with the object.
                    Question::Fingerprint(at) => Ok(Reply::Number(read.fingerprint(at)?)),
                    Question::Text(at) => Ok(Reply::text(read.text(at)?)),
                    _ => Ok(question.ask(read.document())?),
                }
            }
            Step::Get(of, namespace, name) => {
                let found = self.finder.get(of, namespace.as_deref(), name)?;
                Ok(self.hold(found))
            }
            Step::Referent(of, from, at) => {
                let from = match from {
                    Which::AtHand => &*self.object,
                    Which::Found(number) => {
                        let found = self.found.get(*number).ok_or(Refusal::BadHandle(AT_HAND))?;
                        self.finder.read(found, at).document()
                    }
                };
                let found = self.finder.referent(of, from, at)?;
                Ok(self.hold(found))
            }
            Step::Set(at, value) => {
                self.object.to_mut().set(at, value)?;
                Ok(Reply::Done)
            }
            Step::Remove(at) => Ok(Reply::Number(self.object.to_mut().remove(at)?.into())),
            Step::RetainIn(at, texts) => {
                self.object.to_mut().retain_in(at, texts)?;
                Ok(Reply::Done)
            }
        }
    }

    /// The object as the steps left it.
    pub(crate) fn into_object(self) -> Document {
        self.object.into_owned()
    }

    fn hold(&mut self, found: Option<Found>) -> Reply<'static> {
        let reply = if found.is_some() { Reply::Done } else { Reply::Nothing };
        self.found.extend(found);
        reply
    }
}
