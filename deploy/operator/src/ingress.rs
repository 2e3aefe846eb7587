//! The controller of YurtIngresses: one acts, and each of its pools gets the objects of an ingress controller.
//!
//! [`objects`] knows what is in the cluster, [`desired`] what should be, [`apply`] closes the gap, [`rollout`] lets pools upgrade
//! one by one, [`revision`] keeps what the others were made from, [`status`] reports. [`reconcile`] and [`pool_work`] are one look at
//! a YurtIngress. [`controller`] runs all of it.

mod apply;
pub mod controller;
mod desired;
mod drift;
mod notices;
mod objects;
mod pool_state;
mod pool_work;
mod reconcile;
mod revision;
mod rollout;
mod status;
mod templates;

/// The field manager of everything that the operator applies.
pub(crate) const MANAGER: &str = "weir-operator";
/// Keeps a YurtIngress until its objects are deleted.
pub(crate) const FINALIZER: &str = "weir.openyurt.io/ingress-controllers";
/// Labels of all objects of ingress controllers.
const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
/// The pool of an object. Objects that pools share have none.
const POOL: &str = "weir.openyurt.io/ingress-pool";
/// The template's name and version, for people.
const TEMPLATE: &str = "weir.openyurt.io/ingress-controller";
/// The template's revision that an object was made from.
const REVISION: &str = "weir.openyurt.io/revision";
/// The hash of the applied objects: objects that are no longer in it must be removed.
const APPLIED: &str = "weir.openyurt.io/applied";
