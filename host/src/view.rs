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
//! Modules depend on each other in one direction: `registry` ─► `refresh` ─► `state` ─► `event` ─► `object`.

mod event;
mod object;
mod refresh;
mod registry;
mod request_selector;
mod state;
mod watch_start;

pub(crate) use self::event::{Cause, ViewEvent, converted, frame, list_item};
pub(crate) use self::object::ViewObject;
pub use self::registry::{Views, ViewsConfig, shared_resources};
pub(crate) use self::request_selector::RequestSelector;
pub(crate) use self::state::{View, ViewSnapshot};
pub(crate) use self::watch_start::{CatchUp, WatchStart};
