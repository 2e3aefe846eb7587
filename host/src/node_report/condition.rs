//! The condition `WeirFiltersReady` of the Node: True while the newest configuration is active, and no filter is off, open or
//! failing again and again.
//!
//! It is written after a change, at most every [`PAUSE`], once a filter's failures are noticed by a look every [`LOOK`], and every [`HEARTBEAT`], because each write of a Node goes to all
//! who watch Nodes. A restarted daemon that finds its condition on the Node writes nothing.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, NodeCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;
use tokio::time::{Instant, timeout};
use weir_runtime::Filter;
use weir_spec::Mode;
use weir_upstream::{BackOff, clock, error_report, jitter};

use super::event_log::note_of;
use super::events::TIMEOUT;
use crate::admin::status::{FilterStatus, ReloadError};
use crate::node_facts::SWITCH;

/// The type of the condition.
const TYPE: &str = "WeirFiltersReady";
/// One change may concern thousands of nodes: their daemons write within this time.
const SPREAD: Duration = Duration::from_secs(2);
/// The least time between two writes.
pub(super) const PAUSE: Duration = Duration::from_secs(10);
/// How often it looks for what reports no change: objects on which a filter fails.
pub(super) const LOOK: Duration = Duration::from_secs(30);
/// How often an unchanged condition is written.
const HEARTBEAT: Duration = Duration::from_secs(3600);
/// The pauses after failed writes.
const RETRY: Duration = Duration::from_secs(15);
const MAX_RETRY: Duration = Duration::from_secs(900);

/// Writes the condition of one Node.
pub(super) struct ConditionWriter {
    nodes: Api<Node>,
    node: String,
    /// What the Node has; `None` before the first read.
    written: Option<Written>,
    /// When it is written next; `None` before the first result of a reload.
    due: Option<Instant>,
    /// Not before this time.
    earliest: Option<Instant>,
    /// When it looks next for what reports no change.
    look: Instant,
    back_off: BackOff,
    /// Whether the log says that it cannot be written.
    is_logged: bool,
}

/// The condition of the Node, as far as it is known.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Written {
    condition: Option<FilterCondition>,
    transition: Option<Time>,
    heartbeat: Option<Time>,
}

/// The state that the condition shows.
#[derive(Debug, Clone, PartialEq, Eq)]
struct FilterCondition {
    status: String,
    reason: String,
    message: String,
}

impl FilterCondition {
    /// The present state; `None` before the first result of a reload. `is_off`: the Node turns all filters off.
    fn of(status: &FilterStatus, is_off: bool) -> Option<Self> {
        let last = status.last_result()?;
        let active = status.active();
        let (is_ready, reason, message) = if !last.errors().is_empty() {
            let errors: Vec<_> = last.errors().iter().map(ReloadError::to_string).collect();
            let effect = match &active {
                Some(_) => "the last valid filter set stays active",
                None => "requests that a filter may match get 503",
            };
            (false, "ConfigurationRefused", format!("{effect}: {}: {}", last.source(), errors.join("; ")))
        } else if is_off {
            (false, "FiltersOff", format!("all filters are off, by the annotation {SWITCH} of the Node"))
        } else {
            let active = active.unwrap_or_default();
            let names = |is_so: fn(&Filter) -> bool| {
                let found = active.iter().filter(|filter| filter.entry().mode == Mode::Enforce && is_so(filter));
                found.map(|filter| &**filter.name()).collect::<Vec<_>>().join(", ")
            };
            let (open, failing) = (names(Filter::is_suspended), names(|filter| !filter.set_aside().is_empty()));
            if !open.is_empty() {
                (false, "CircuitBreakerOpen", format!("filters failed too often: {open}"))
            } else if !failing.is_empty() {
                (false, "FiltersFailing", format!("filters fail again and again on some objects: {failing}"))
            } else {
                let filters = if active.len() == 1 { "filter" } else { "filters" };
                (true, "FiltersActive", format!("{} is active with {} {filters}", last.source(), active.len()))
            }
        };
        let status = if is_ready { "True" } else { "False" };
        Some(Self { status: status.to_owned(), reason: reason.to_owned(), message: note_of(&message) })
    }
}

impl ConditionWriter {
    pub(super) fn new(client: kube::Client, node: &str) -> Self {
        Self {
            nodes: Api::all(client),
            node: node.to_owned(),
            written: None,
            due: None,
            earliest: None,
            look: Instant::now() + LOOK,
            back_off: BackOff::new(RETRY, MAX_RETRY),
            is_logged: false,
        }
    }

    /// Plans a write soon.
    pub(super) fn mark_changed(&mut self) {
        let spread = Duration::from_millis(fastrand::u64(..SPREAD.as_millis() as u64));
        let soon = Instant::now() + spread;
        self.due = Some(self.earliest.map_or(soon, |earliest| earliest.max(soon)));
    }

    /// When [`ConditionWriter::write`] has something to do.
    pub(super) fn due(&self) -> Option<Instant> {
        Some(self.due.map_or(self.look, |due| due.min(self.look)))
    }

    /// Writes the condition if it is time to, and the Node has another one. A failed write is repeated later.
    pub(super) async fn write(&mut self, status: &FilterStatus, is_off: bool) {
        let now = Instant::now();
        if self.look <= now {
            self.look = now + LOOK;
            let shown = self.written.as_ref().and_then(|written| written.condition.as_ref());
            if shown.is_some() && shown != FilterCondition::of(status, is_off).as_ref() {
                self.mark_changed();
            }
        }
        if self.due.is_none_or(|due| due > now) {
            return;
        }
        let Some(condition) = FilterCondition::of(status, is_off) else {
            // The first result plans it again.
            self.due = None;
            return;
        };
        let written = timeout(TIMEOUT, self.update(&condition)).await;
        let reason = match written {
            Ok(Ok(())) => {
                self.is_logged = false;
                self.back_off.reset();
                self.earliest = Some(Instant::now() + jitter(PAUSE));
                self.due = Some(Instant::now() + jitter(HEARTBEAT));
                return;
            }
            Ok(Err(error)) => error_report(&error),
            Err(_) => format!("no answer within {TIMEOUT:?}"),
        };
        if !std::mem::replace(&mut self.is_logged, true) {
            tracing::warn!(node = self.node, reason, "cannot set the condition {TYPE} of the node, retrying");
        }
        let retry = Instant::now() + self.back_off.next_delay();
        (self.due, self.earliest) = (Some(retry), Some(retry));
    }

    async fn update(&mut self, condition: &FilterCondition) -> Result<(), kube::Error> {
        let written = match self.written.take() {
            Some(written) => written,
            None => Written::of(self.nodes.get(&self.node).await?),
        };
        let now = Time(clock::timestamp());
        let same = |of: fn(&FilterCondition) -> &str| written.condition.as_ref().map(of) == Some(of(condition));
        let is_recent = |time: &Time| now.0.duration_since(time.0).unsigned_abs() < HEARTBEAT / 2;
        if written.condition.as_ref() == Some(condition) && written.heartbeat.as_ref().is_some_and(is_recent) {
            self.written = Some(written);
            return Ok(());
        }
        let transition = match same(|condition| &condition.status) {
            true => written.transition.clone().unwrap_or_else(|| now.clone()),
            false => now.clone(),
        };
        let object = NodeCondition {
            type_: TYPE.to_owned(),
            status: condition.status.clone(),
            reason: Some(condition.reason.clone()),
            message: Some(condition.message.clone()),
            last_transition_time: Some(transition.clone()),
            last_heartbeat_time: Some(now.clone()),
        };
        // Conditions are merged by their type: those of kubelet stay.
        let patch = Patch::Strategic(json!({"status": {"conditions": [object]}}));
        self.nodes.patch_status(&self.node, &PatchParams::default(), &patch).await?;
        self.written =
            Some(Written { condition: Some(condition.clone()), transition: Some(transition), heartbeat: Some(now) });
        Ok(())
    }
}

impl Written {
    /// The condition that the Node has, possibly from an earlier daemon.
    fn of(node: Node) -> Self {
        let conditions = node.status.and_then(|status| status.conditions).unwrap_or_default();
        let Some(found) = conditions.into_iter().find(|condition| condition.type_ == TYPE) else {
            return Self::default();
        };
        let condition = FilterCondition {
            status: found.status,
            reason: found.reason.unwrap_or_default(),
            message: found.message.unwrap_or_default(),
        };
        Self {
            condition: Some(condition),
            transition: found.last_transition_time,
            heartbeat: found.last_heartbeat_time,
        }
    }
}
