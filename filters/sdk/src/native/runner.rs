//! Runs a filter natively: configures it once, then filters any number of documents.

use std::rc::Rc;

use weir_document::Document;
use weir_kube::FILTER_EDITS;

use super::store::LookupStore;
use super::{Environment, Node, call};
use crate::{Filter, Object, Plan, Verdict, settings};

/// The reason why a native run failed. No failure is retryable, because a filter is a pure function.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NativeError {
    /// The filter rejected its settings.
    #[error("{0}")]
    Settings(String),
    /// The filter returned an error.
    #[error("{0}")]
    Filter(String),
    /// The host would end the call: an undeclared lookup, a lookup in `configure`, an invalid path.
    #[error("{0}")]
    Misuse(String),
    /// The object, or a looked-up one, cannot be read.
    #[error("an object cannot be read")]
    Document(#[source] weir_document::Error),
}

/// A configured filter in its environment. It corresponds to one instance in the host. One runner for many objects is
/// faster than one for each, and a pure filter returns the same outcomes.
pub struct Runner<F> {
    filter: F,
    plan: Plan,
    node: Rc<Node>,
    store: Rc<LookupStore>,
}

impl<F: Filter> Runner<F> {
    /// Configures the filter with these settings. They are JSON text, as in the host.
    pub fn new(settings: &str, environment: &Environment) -> Result<Self, NativeError> {
        let node = Rc::new(environment.node.clone());
        let (filter, fault) = call::run(&node, None, || {
            let filter = settings::parse(settings).and_then(F::configure)?;
            let plan = filter.plan();
            Ok::<_, crate::Error>((filter, plan))
        });
        if let Some(fault) = fault {
            return Err(fault);
        }
        let (filter, plan) = filter.map_err(|error| NativeError::Settings(error.to_string()))?;
        let store = Rc::new(LookupStore::new(&plan, environment).map_err(NativeError::Misuse)?);
        Ok(Self { filter, plan, node, store })
    }

    /// Returns the filter's plan.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Returns whether the node has the name and endpoint that the filter was configured with. These are constant for a
    /// filter.
    pub(crate) fn is_of(&self, node: &Node) -> bool {
        self.node.name == node.name && self.node.endpoint == node.endpoint
    }

    /// Replaces the environment of the filter. The filter keeps its state.
    pub fn set_environment(&mut self, environment: &Environment) -> Result<(), NativeError> {
        self.node = Rc::new(environment.node.clone());
        self.store = Rc::new(LookupStore::new(&self.plan, environment).map_err(NativeError::Misuse)?);
        Ok(())
    }

    /// Filters one object and edits it in place. If the filter fails, the object stays unedited. The rules of the host for edits of
    /// filters are those of the document from then on.
    pub fn filter(&self, document: &mut Document) -> Result<Verdict, NativeError> {
        *document = document.clone().with_rules(&FILTER_EDITS);
        let before = document.checkpoint();
        let (verdict, fault) = call::run(&self.node, Some(&self.store), || {
            self.filter.filter(&mut Object::new(super::backend::Handle::Filtered(document)))
        });
        let outcome = match (verdict, fault) {
            (_, Some(fault)) => Err(fault),
            (verdict, None) => verdict.map_err(|error| NativeError::Filter(error.to_string())),
        };
        if outcome.is_err() {
            document.restore(before);
        }
        outcome
    }
}
