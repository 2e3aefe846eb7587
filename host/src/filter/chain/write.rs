//! What a chain has to say about writes: whether a client that is shown an object through it may write that object back,
//! and what the client is shown of what it wrote.

use std::sync::Arc;

use bytes::Bytes;
use weir_document::Document;

use super::Chain;
use crate::config::Writes;
use crate::filter::filter::Judged;
use crate::filter::outcome::Failure;

/// What is shown of an object that was written. It is never hidden: its writer knows it.
#[derive(Debug, Clone)]
pub struct Written {
    /// The object with the edits so far; none: as it came.
    pub edited: Option<Bytes>,
    /// The filter that failed; those after it were not asked.
    pub failure: Option<Failure>,
}

/// Why a client must not write an object back.
#[derive(Debug, Clone)]
pub enum Unwritable {
    /// It is shown less, or something else, than there is: written back, that would become the cluster's state.
    Altered {
        /// The first filter that alters it, by its configured name.
        filter: Arc<str>,
        /// Whether it hides the object.
        hidden: bool,
    },
    /// What it is shown can not be told.
    Unknown(Failure),
}

impl Chain {
    /// Whether the object may be written back by whom this chain shows it to.
    ///
    /// # Errors
    /// Why not.
    pub async fn may_write_back(&self, document: Document) -> Result<(), Unwritable> {
        #[cfg(test)]
        if let Some(script) = &self.script {
            return scripted::may_write_back(script, document);
        }
        let mut document = document;
        for filter in self.filters.iter() {
            let altered = |hidden| Unwritable::Altered { filter: filter.name().clone(), hidden };
            let refuses = filter.entry().writes == Writes::Refuse;
            match self.step(filter, document.clone()).await {
                Judged::Kept(next) if refuses && next.bytes() != document.bytes() => return Err(altered(false)),
                Judged::Kept(next) => document = next,
                Judged::Hidden if refuses => return Err(altered(true)),
                Judged::Hidden => return Ok(()),
                Judged::Failed(failure) if refuses => return Err(Unwritable::Unknown(failure)),
                Judged::Failed(_) => return Ok(()),
            }
        }
        Ok(())
    }

    /// What is shown of an object that was just written.
    pub async fn show_written(&self, document: Document) -> Written {
        #[cfg(test)]
        if let Some(script) = &self.script {
            return scripted::show_written(script, document);
        }
        let (mut document, mut failure) = (document, None);
        for filter in self.filters.iter() {
            match self.step(filter, document.clone()).await {
                Judged::Kept(next) => document = next,
                Judged::Hidden => {}
                Judged::Failed(failed) => {
                    failure = Some(failed);
                    break;
                }
            }
        }
        Written { edited: document.is_edited().then(|| document.bytes().clone()), failure }
    }

    async fn step(&self, filter: &crate::filter::Filter, document: Document) -> Judged {
        let mut batch = [Judged::Kept(document)];
        filter.judge(&mut batch, self.guarded).await;
        let [judged] = batch;
        judged
    }
}

#[cfg(test)]
mod scripted {
    use super::*;
    use crate::filter::outcome::Outcome;
    use crate::filter::script::Script;

    pub(super) fn may_write_back(script: &Script, document: Document) -> Result<(), Unwritable> {
        let altered = |hidden| Unwritable::Altered { filter: "script".into(), hidden };
        match script.run(&[document]).pop() {
            Some(Outcome::Edited(_)) => Err(altered(false)),
            Some(Outcome::Hidden) => Err(altered(true)),
            Some(Outcome::Failed(failure)) => Err(Unwritable::Unknown(failure)),
            Some(Outcome::Unchanged) | None => Ok(()),
        }
    }

    pub(super) fn show_written(script: &Script, document: Document) -> Written {
        match script.run(&[document]).pop() {
            Some(Outcome::Edited(bytes)) => Written { edited: Some(bytes), failure: None },
            Some(Outcome::Failed(failure)) => Written { edited: None, failure: Some(failure) },
            Some(Outcome::Unchanged | Outcome::Hidden) | None => Written { edited: None, failure: None },
        }
    }
}
