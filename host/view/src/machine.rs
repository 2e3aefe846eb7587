//! How filtered watches are served, as a state machine: events of a store, outcomes, changes and requests in, events out. No
//! tasks, no locks, no clock: what is around it has them.
//!
//! A [`ViewCore`] is what one chain shows of a store, and the history of it. A *change* is a moment from which outcomes may
//! differ without a version: another chain, another looked-up value, the start of the process. The view filters everything
//! again and takes the change. [`Stamps`] hold up to which version clients may have the former outcomes. A [`ViewWatch`] sends a
//! client that continues from a version the events after it, or, where the version is not above the stamp, the present state.
//! Nothing is remembered of a client.
//!
//! ```text
//! watch ─► present ─► version_order ─► event
//!   ├────────┼──► core ─────────────────┤     stamps
//!   └────────┴──► frame ────────────────┘
//! ```

mod core;
mod event;
mod frame;
mod present;
mod stamps;
#[cfg(test)]
mod tests;
mod version_order;
mod watch;

pub(crate) use self::core::{Changed, ViewCore};
#[cfg(test)]
pub(crate) use self::event::Cause;
pub(crate) use self::event::Selector;
pub(crate) use self::event::{Event, Object};
pub(crate) use self::frame::Frame;
pub(crate) use self::stamps::Stamps;
pub use self::watch::CatchUp;
pub(crate) use self::watch::{Begin, CatchUpError, ViewWatch};
