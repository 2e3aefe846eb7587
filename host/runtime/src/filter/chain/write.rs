//! What a chain has to say about writes: whether a client that is shown an object through it may write that object back,
//! and what the client is shown of what it wrote.

use std::sync::Arc;

use bytes::Bytes;
use weir_document::Document;

use super::{Chain, DocumentFilter, Judged};
use crate::{Failure, Writes};

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
    pub async fn may_write_back(&self, mut document: Document) -> Result<(), Unwritable> {
        for filter in self.filters.iter() {
            let altered = |hidden| Unwritable::Altered { filter: filter.name().clone(), hidden };
            let refuses = filter.writes() == Writes::Refuse;
            match self.step(&**filter, document.clone()).await {
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
        let (mut document, mut failure) = (document, None);
        for filter in self.filters.iter() {
            match self.step(&**filter, document.clone()).await {
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

    async fn step(&self, filter: &dyn DocumentFilter, document: Document) -> Judged {
        let mut batch = [Judged::Kept(document)];
        filter.judge(&mut batch, self.guarded).await;
        let [judged] = batch;
        judged
    }
}
