//! Views: a store seen through one chain.
//!
//! A [`View`] keeps, per object, nothing but the chain's outcome. When an object changes upstream, the view filters that
//! object. When the chain's version moves, because the filter set or a looked-up value changed, the view filters all
//! objects again and compares the outcomes. Both yield [events](weir_view::Event), so that watchers get exactly the
//! difference and never have to list again. Which events a watch gets, [`weir_view`] decides: here are its tasks, its lock
//! and its bytes.
//!
//! ```text
//! ResourceStore ─► View (store × chain) ─► events ─► cached list and watch responses (proxy)
//! ```
//!
//! Modules depend on each other in one direction: `registry` ─► `refresh`, `watchers` ─► `state` ─► `event` ─► `object`.
//! `scope` and `api_services` decide for `registry` which views there may be.
//! `watch_memory` bounds the histories. [`ChainStamps`] has the stamps that all views and the streams from the API server share.

mod api_services;
mod chain_stamps;
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
mod watchers;

pub(crate) use self::api_services::is_built_in;
pub(crate) use self::chain_stamps::ChainStamps;
pub(crate) use self::event::{EncodedAs, WatchSelector, converted, encode, frame, list_item};
pub use self::metrics::CacheMetrics;
pub(crate) use self::object::{ViewObject, ViewOutcome};
pub(crate) use self::permit::Permit;
pub(crate) use self::registry::{Opener, Shown};
pub use self::registry::{Views, ViewsConfig};
pub(crate) use self::request_selector::RequestSelector;
pub use self::scope::shared_resources;
pub(crate) use self::state::{View, ViewSnapshot};
pub(crate) use self::status::CacheStatus;
pub(crate) use self::watchers::OpenWatch;
