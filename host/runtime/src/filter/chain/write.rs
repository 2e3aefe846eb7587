//! Chains and writes: whether a client may write back an object that it reads through a chain, and how the response
//! shows a written object.

use std::sync::Arc;

use bytes::Bytes;
use weir_document::Document;

use super::{Chain, DocumentFilter};
use crate::filter::outcome::{Failure, Filtered, Slot};
use weir_spec::Writes;

/// A written object as its writer sees it. It is never hidden, because the writer knows it.
#[derive(Debug, Clone)]
pub struct Written {
    /// The edited object. None: no filter edited it.
    pub edited: Option<Bytes>,
    /// The filter that failed. Later filters did not run.
    pub failure: Option<Failure>,
}

/// The reason why a client must not write an object back.
#[derive(Debug, Clone)]
pub enum Unwritable {
    /// A filter alters the object for the client. A write would make the alteration permanent in the cluster.
    Altered {
        /// The name of the first filter that alters the object.
        filter: Arc<str>,
        /// Whether it hides the object.
        hidden: bool,
    },
    /// A filter failed. It is unknown what the client sees.
    Unknown(Failure),
}

impl Chain {
    /// Checks whether a client that reads the object through this chain may write it back.
    ///
    /// # Errors
    /// The reason why not.
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

    /// Filters a written object for its writer.
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
        let mut batch = [Slot::from(document)];
        filter.filter(&mut batch, self.guarded).await;
        let [slot] = batch;
        slot.filtered
    }
}
