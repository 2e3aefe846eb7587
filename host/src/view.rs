//! Views: a store seen through one chain.
//!
//! A [`View`] keeps, per object, nothing but the chain's outcome. When an object changes upstream, the view filters that
//! object. When the chain's version moves, because the filter set or a looked-up value changed, the view filters all
//! objects again and compares the outcomes. Both yield [`ViewEvent`]s, so that watchers get exactly the difference and
//! never have to list again.
//!
//! ```text
//! ResourceStore ─► View (store × chain) ─► ViewEvent ─► cached list and watch responses (proxy)
//! ```
//!
//! Modules depend on each other in one direction: `registry` ─► `refresh`, `watchers`, `watch_start` ─► `whole_state` ─►
//! `state` ─► `event` ─► `object`.
//! `scope` and `api_services` tell `registry` which views there may be.
//! `watch_memory` bounds the histories.

mod api_services;
mod event;
mod metrics;
mod object;
mod permit;
mod refresh;
mod registry;
mod request_selector;
mod scope;
mod state;
mod status;
mod watch_memory;
mod watch_start;
mod watchers;
mod whole_state;

pub(crate) use self::api_services::is_built_in;
pub(crate) use self::event::{Cause, ViewEvent, converted, frame, list_item};
pub use self::metrics::CacheMetrics;
pub(crate) use self::object::{ViewObject, ViewOutcome};
pub(crate) use self::permit::Permit;
pub(crate) use self::registry::{Opener, Shown};
pub use self::registry::{Views, ViewsConfig};
pub(crate) use self::request_selector::RequestSelector;
pub use self::scope::shared_resources;
pub(crate) use self::state::{View, ViewSnapshot};
pub(crate) use self::status::CacheStatus;
pub(crate) use self::watch_start::{HeldState, LackingObject, WatchStart};
pub(crate) use self::watchers::OpenWatch;
pub(crate) use self::whole_state::{EarlierEvent, StateItem, WholeState};
