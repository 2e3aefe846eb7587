//! Writes the condition `WeirFiltersReady` of the Node: [`FilterCondition`] says what it is, [`ConditionSchedule`] when.
//!
//! It looks at the health about every [`LOOK`], and reads nothing but memory for that. It reads the Node once, and again after a
//! write that failed. A restarted daemon that finds its condition on the Node writes nothing. Reads and writes that fail have a
//! back-off and a line of the log each: a Node that can be read may still not be written.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, NodeCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;
use tokio::time::{Instant, timeout};
use weir_upstream::{BackOff, clock, error_report, jitter};

use super::condition::FilterCondition;
use super::events::TIMEOUT;
use super::schedule::{ConditionSchedule, HEARTBEAT};
use crate::admin::{HealthReport, HealthSources};

/// The type of the condition.
const TYPE: &str = "WeirFiltersReady";
/// It looks at the health after a random time from half of this to all of it: one change may concern thousands of nodes, whose
/// daemons must not write at once.
const LOOK: Duration = Duration::from_secs(10);
/// The pauses after failed reads or writes.
const RETRY: Duration = Duration::from_secs(15);
const MAX_RETRY: Duration = Duration::from_secs(900);

/// Writes the condition of one Node.
pub(super) struct ConditionWriter {
    nodes: Api<Node>,
    node: String,
    /// `None` before the Node is read.
    schedule: Option<ConditionSchedule>,
    /// The last transition of the condition that the Node has.
    transition: Option<Time>,
    /// When it looks next.
    look: Instant,
    reads: Attempts,
    writes: Attempts,
}

/// Requests of one kind that fail in a row.
struct Attempts {
    back_off: BackOff,
    /// Whether the log says that they fail.
    is_logged: bool,
}

impl Attempts {
    fn new() -> Self {
        Self { back_off: BackOff::new(RETRY, MAX_RETRY), is_logged: false }
    }

    fn succeeded(&mut self) {
        *self = Self::new();
    }

    /// Logs the first failure. Returns the pause before the next attempt.
    fn failed(&mut self, node: &str, reason: &str) -> Duration {
        if !std::mem::replace(&mut self.is_logged, true) {
            tracing::warn!(node, reason, "cannot set the condition {TYPE} of the node, retrying");
        }
        self.back_off.next_delay()
    }
}

impl ConditionWriter {
    pub(super) fn new(client: kube::Client, node: &str) -> Self {
        Self {
            nodes: Api::all(client),
            node: node.to_owned(),
            schedule: None,
            transition: None,
            look: Instant::now(),
            reads: Attempts::new(),
            writes: Attempts::new(),
        }
    }

    /// When [`ConditionWriter::look`] has something to do.
    pub(super) fn due(&self) -> Instant {
        self.look
    }

    /// No API server answers.
    pub(super) fn pause(&mut self) {
        if let Some(schedule) = &mut self.schedule {
            schedule.pause();
        }
    }

    /// Looks at the health if it is time to, and writes the condition if that is due. A failed write is repeated later.
    pub(super) async fn look(&mut self, sources: &HealthSources) {
        if self.look > Instant::now() {
            return;
        }
        self.look = Instant::now() + jitter(LOOK);
        let Some(present) = FilterCondition::of(&HealthReport::of(sources)) else { return self.pause() };
        if self.schedule.is_none() {
            self.read().await;
        }
        if self.schedule.as_mut().is_some_and(|schedule| schedule.is_due(&present)) {
            self.write(present).await;
        }
    }

    /// Reads the condition that the Node has.
    async fn read(&mut self) {
        match answer(self.nodes.get(&self.node)).await {
            Ok(node) => {
                let (schedule, transition) = found(node);
                self.schedule = Some(schedule);
                self.transition = transition;
                self.reads.succeeded();
            }
            Err(reason) => self.look = Instant::now() + self.reads.failed(&self.node, &reason),
        }
    }

    async fn write(&mut self, present: FilterCondition) {
        let Some(schedule) = &mut self.schedule else { return };
        let now = Time(clock::timestamp());
        let is_same = schedule.shown().is_some_and(|shown| shown.status == present.status);
        let transition = self.transition.clone().filter(|_| is_same).unwrap_or_else(|| now.clone());
        let object = NodeCondition {
            type_: TYPE.to_owned(),
            status: present.status.clone(),
            reason: Some(present.reason.clone()),
            message: Some(present.message.clone()),
            last_transition_time: Some(transition.clone()),
            last_heartbeat_time: Some(now),
        };
        // Conditions are merged by their type: those of kubelet stay.
        let patch = Patch::Strategic(json!({"status": {"conditions": [object]}}));
        match answer(self.nodes.patch_status(&self.node, &PatchParams::default(), &patch)).await {
            Ok(_) => {
                schedule.written(present);
                self.transition = Some(transition);
                self.writes.succeeded();
            }
            Err(reason) => {
                // The Node may have been written all the same, or be another one.
                self.schedule = None;
                self.look = Instant::now() + self.writes.failed(&self.node, &reason);
            }
        }
    }
}

/// The answer to a request, or why there is none.
async fn answer<T>(request: impl Future<Output = Result<T, kube::Error>>) -> Result<T, String> {
    match timeout(TIMEOUT, request).await {
        Ok(answer) => answer.map_err(|error| error_report(&error)),
        Err(_) => Err(format!("no answer within {TIMEOUT:?}")),
    }
}

/// The schedule of the condition that the Node has, possibly from an earlier daemon, and its last transition.
pub(super) fn found(node: Node) -> (ConditionSchedule, Option<Time>) {
    let conditions = node.status.and_then(|status| status.conditions).unwrap_or_default();
    let Some(found) = conditions.into_iter().find(|condition| condition.type_ == TYPE) else {
        return (ConditionSchedule::new(None, false), None);
    };
    let now = clock::timestamp();
    let is_recent = |time: Time| now.duration_since(time.0).unsigned_abs() < HEARTBEAT / 2;
    let shown = FilterCondition {
        status: found.status,
        reason: found.reason.unwrap_or_default(),
        message: found.message.unwrap_or_default(),
    };
    (ConditionSchedule::new(Some(shown), found.last_heartbeat_time.is_some_and(is_recent)), found.last_transition_time)
}
