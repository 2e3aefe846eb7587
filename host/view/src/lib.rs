//! Views: a store seen through one chain.
//!
//! Client components whose chains are the same, since the same time, share a view; it is forked when they part.
//! A [`View`] keeps, per object, nothing but the chain's outcome. When an object changes upstream, the view filters that
//! object. When the chain's version moves, because the filter set or a looked-up value changed, the view filters all
//! objects again and compares the outcomes. Both yield events, so that watchers get exactly the difference and never have to list
//! again. Which events a watch gets, `machine` decides, without tasks, locks and a clock: around it are its tasks, its lock and its
//! bytes. The connection of a client takes them from a [`ComponentWatch`].
//!
//! ```text
//! ResourceStore ─► View (store × chain) ─► events ─► cached list and watch responses (the daemon's proxy)
//! ```
//!
//! Modules depend on each other in one direction: `component_watch`, `registry` ─► `component_view`, `refresh`, `metrics` ─► `status`
//! ─► `state` ─► `event`, `readers`, `watchers` ─► `object` ─► `memo` ─► `machine`.
//! `scope` and `api_services` decide for `registry` which views there may be.
//! `watch_memory` bounds the histories. [`ChainStamps`] has the stamps that all views and the streams from the API server share.

mod api_services;
mod bookmark;
mod cached_resources;
mod chain_stamps;
mod component_view;
mod component_watch;
mod event;
mod machine;
mod memo;
mod metrics;
mod object;
mod permit;
mod readers;
mod refresh;
mod registry;
mod request_selector;
mod scope;
mod state;
mod status;
mod watch_counters;
mod watch_memory;
mod watchers;

pub use self::cached_resources::CachedResources;
pub use self::chain_stamps::ChainStamps;
pub use self::component_view::ComponentView;
pub use self::component_watch::{ComponentWatch, WatchError, WatchOptions};
pub use self::event::{converted, list_item};
pub use self::machine::CatchUp;
pub use self::metrics::CacheMetrics;
pub use self::object::{ViewObject, ViewOutcome};
pub use self::permit::Permit;
pub use self::registry::{Opener, Views, ViewsConfig};
pub use self::request_selector::RequestSelector;
pub use self::state::{View, ViewSnapshot};
pub use self::status::{CacheStatus, ViewStatus};
