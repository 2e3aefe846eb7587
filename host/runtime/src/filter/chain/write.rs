//! Chains and writes: whether a client that sees an object through a chain may write that object back, and what it sees of
//! an object that it wrote.

use std::sync::Arc;

use bytes::Bytes;
use weir_document::Document;

use super::{Chain, DocumentFilter};
use crate::Writes;
use crate::filter::outcome::{Failure, Filtered};

/// An object that was written, as its writer sees it. It is never hidden: its writer knows it.
#[derive(Debug, Clone)]
pub struct Written {
    /// The object with the edits so far; none: as it came.
    pub edited: Option<Bytes>,
    /// The filter that failed; those after it did not run.
    pub failure: Option<Failure>,
}

/// Why a client must not write an object back.
#[derive(Debug, Clone)]
pub enum Unwritable {
    /// The client sees less than the object, or another state of it: written back, that would become the cluster's state.
    Altered {
        /// The first filter that alters it, by its configured name.
        filter: Arc<str>,
        /// Whether it hides the object.
        hidden: bool,
    },
    /// A filter failed, so that what the client sees is not known.
    Unknown(Failure),
}

impl Chain {
    /// Whether a client that sees the object through this chain may write it back.
    ///
    /// # Errors
    /// Why not.
    pub async fn may_write_back(&self, document: Document) -> Result<(), Unwritable> {
        let mut document = document;
        for filter in self.filters.iter() {
            let altered = |hidden| Unwritable::Altered { filter: filter.name().clone(), hidden };
            let refuses = filter.writes() == Writes::Refuse;
            match self.step(&**filter, document.clone()).await {
                Filtered::Kept(next) if refuses && next.bytes() != document.bytes() => return Err(altered(false)),
                Filtered::Kept(next) => document = next,
                Filtered::Hidden if refuses => return Err(altered(true)),
                Filtered::Hidden => return Ok(()),
                Filtered::Failed(failure) if refuses => return Err(Unwritable::Unknown(failure)),
                Filtered::Failed(_) => return Ok(()),
            }
        }
        Ok(())
    }

    /// An object that was just written, as its writer sees it.
    pub async fn show_written(&self, document: Document) -> Written {
        let (mut document, mut failure) = (document, None);
        for filter in self.filters.iter() {
            match self.step(&**filter, document.clone()).await {
                Filtered::Kept(next) => document = next,
                Filtered::Hidden => {}
                Filtered::Failed(failed) => {
                    failure = Some(failed);
                    break;
                }
            }
        }
        Written { edited: document.is_edited().then(|| document.bytes().clone()), failure }
    }

    async fn step(&self, filter: &dyn DocumentFilter, document: Document) -> Filtered {
        let mut batch = [Filtered::Kept(document)];
        filter.filter(&mut batch, self.guarded).await;
        let [filtered] = batch;
        filtered
    }
}
