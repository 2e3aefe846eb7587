//! Runs a filter natively: configured once, then over any number of documents.

use std::rc::Rc;

use weir_document::Document;

use super::store::Store;
use super::{Node, World, call};
use crate::{Filter, Object, Plan, Verdict, settings};

/// Why a native run failed. None is retryable: a filter is a pure function.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// The filter will not take its settings.
    #[error("{0}")]
    Settings(String),
    /// The filter handed back an error.
    #[error("{0}")]
    Filter(String),
    /// The filter did what the host ends a call for: an undeclared lookup, one while being configured, a bad path.
    #[error("{0}")]
    Misuse(String),
    /// The object, or one that was looked up, cannot be read.
    #[error("an object cannot be read")]
    Document(#[source] weir_document::Error),
}

/// A configured filter in its world. Where it makes no difference to the outcome, one runner for many objects is the
/// faster way: it is what one instance in the host is.
pub struct Runner<F> {
    filter: F,
    plan: Plan,
    node: Rc<Node>,
    store: Rc<Store>,
}

impl<F: Filter> Runner<F> {
    /// Configures the filter with these settings, JSON text as the host would hand it over.
    pub fn new(settings: &str, world: &World) -> Result<Self, Fault> {
        let node = Rc::new(world.node.clone());
        let (filter, fault) = call::run(&node, None, || {
            let filter = settings::parse(settings).and_then(F::configure)?;
            let plan = filter.plan();
            Ok::<_, crate::Error>((filter, plan))
        });
        if let Some(fault) = fault {
            return Err(fault);
        }
        let (filter, plan) = filter.map_err(|error| Fault::Settings(error.to_string()))?;
        let store = Rc::new(Store::new(&plan, world).map_err(Fault::Misuse)?);
        Ok(Self { filter, plan, node, store })
    }

    /// What the filter is for and looks up.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Whether it was configured on this node: its name and endpoint never change under a filter.
    pub(crate) fn is_of(&self, node: &Node) -> bool {
        self.node.name == node.name && self.node.endpoint == node.endpoint
    }

    /// The same filter, with all it keeps, in a world that has changed around it.
    pub fn set_world(&mut self, world: &World) -> Result<(), Fault> {
        self.node = Rc::new(world.node.clone());
        self.store = Rc::new(Store::new(&self.plan, world).map_err(Fault::Misuse)?);
        Ok(())
    }

    /// Judges one object and edits it. If that fails, the object is as it was.
    pub fn filter(&self, document: &mut Document) -> Result<Verdict, Fault> {
        let before = document.checkpoint();
        let (verdict, fault) = call::run(&self.node, Some(&self.store), || {
            self.filter.filter(&mut Object::new(super::backend::Handle::Shown(document)))
        });
        let outcome = match (verdict, fault) {
            (_, Some(fault)) => Err(fault),
            (verdict, None) => verdict.map_err(|error| Fault::Filter(error.to_string())),
        };
        if outcome.is_err() {
            document.restore(before);
        }
        outcome
    }
}
