//! Why a client component sees an object as it does, as JSON and as text: the object as the API server has it, and then filter by
//! filter what each read, decided and edited.

mod endpoints;
mod text;

use std::collections::BTreeSet;

use diffy::DiffOptions;
use serde_json::{Value, json};
use weir_document::{Document, path};
use weir_kube::{ResourceRequest, VerbClass};
use weir_runtime::{Chain, Decision, FilterExplanation, FilterSet, Step};
use weir_spec::{FailurePolicy, MatchRule};

pub use self::text::write_text;

/// What is explained.
#[derive(Debug)]
pub struct Subject<'a> {
    /// The resource, the namespace and the name of the object.
    pub object: &'a ResourceRequest,
    /// The client component that sees it.
    pub component: &'a str,
    /// Where the object was read: `watch cache` or `API server`.
    pub read_from: &'static str,
    /// What clients of the component have been sent of it; `None` if that is not known.
    pub sent: Option<&'static str>,
    /// Since when no API server can be reached.
    pub offline_since: Option<jiff::Timestamp>,
    /// The filter set in force.
    pub set: Option<&'a FilterSet>,
    /// The components that have sent the daemon requests; `None` without a daemon.
    pub seen: Option<BTreeSet<String>>,
}

impl Subject<'_> {
    /// Explains what a chain makes of the object.
    ///
    /// # Errors
    /// Why the object cannot be read.
    pub async fn explain(&self, source: &Document, chain: Option<&Chain>) -> Result<Value, String> {
        let filters = match chain {
            Some(chain) => chain.explain(source.clone()).await,
            None => Vec::new(),
        };
        let mut json = explained(source, &filters)?;
        let about = json!({
            "resource": self.object.resource.to_string(),
            "namespace": self.object.namespace,
            "name": self.object.name,
            "component": self.component,
            "readFrom": self.read_from,
            "sentOutcome": self.sent,
            "offlineSince": self.offline_since.map(|since| since.to_string()),
            "otherFilters": self.others(),
            "knownComponents": self.known_components(),
            "asksClients": self.seen.is_some(),
        });
        if let (Some(json), Value::Object(about)) = (json.as_object_mut(), about) {
            json.extend(about);
        }
        Ok(json)
    }

    /// The components that were seen or that rules name, if this one is none of them: its name may be misspelt.
    fn known_components(&self) -> Option<BTreeSet<String>> {
        let rules = self.set.map(FilterSet::filters).unwrap_or_default().iter().flat_map(|filter| filter.rules());
        let named = rules.filter_map(|rule| rule.component().map(str::to_owned));
        let known: BTreeSet<_> = named.chain(self.seen.iter().flatten().cloned()).collect();
        (!known.iter().any(|known| known.eq_ignore_ascii_case(self.component))).then_some(known)
    }

    /// The filters in force that are not in the chain.
    fn others(&self) -> Vec<String> {
        let matches = |rule: &MatchRule| rule.matches(self.component, &self.object.resource, VerbClass::Read);
        let filters = self.set.map(FilterSet::filters).unwrap_or_default();
        let others = filters.iter().filter(|filter| !filter.rules().iter().any(matches));
        others.map(|filter| filter.name().to_string()).collect()
    }
}

/// Adds the node that an explanation is for. `filters_off`: its annotation turns all filters off, so no component is unknown.
#[must_use]
pub fn of_node(mut explained: Value, node: &str, filters_off: bool) -> Value {
    if let Some(explained) = explained.as_object_mut() {
        explained.insert("node".to_owned(), node.into());
        explained.insert("filtersOff".to_owned(), filters_off.into());
        if filters_off {
            explained.insert("knownComponents".to_owned(), Value::Null);
        }
    }
    explained
}

/// What the filters of a chain make of an object, and what clients see.
fn explained(source: &Document, filters: &[FilterExplanation]) -> Result<Value, String> {
    let object = to_json(source)?;
    let mut before = object.clone();
    let mut steps = Vec::with_capacity(filters.len());
    for filter in filters {
        let proposed = match &filter.decision {
            Decision::Edit(edited) => Some(to_json(edited)?),
            Decision::Keep | Decision::Hide | Decision::Fail(_) => None,
        };
        let failure = match &filter.decision {
            Decision::Fail(failure) => Some(format!("{}: {}", failure.class.label(), failure.message)),
            Decision::Keep | Decision::Edit(_) | Decision::Hide => None,
        };
        steps.push(json!({
            "filter": filter.filter.as_ref(),
            "digest": filter.digest.as_ref().map(ToString::to_string),
            "mode": filter.mode.as_str(),
            "decision": filter.decision.label(),
            "failure": failure,
            "failurePolicy": filter.failure_policy.map(|policy| policy.as_str()),
            "suspended": filter.is_suspended,
            "reasons": filter.steps.reasons,
            "reads": filter.steps.steps.iter().map(step).collect::<Vec<_>>(),
            "readsTruncated": filter.steps.is_truncated,
            "leftOut": proposed.as_ref().map(|proposed| endpoints::left_out(&before, proposed)),
            "diff": proposed.as_ref().map(|proposed| diff(&before, proposed)),
        }));
        if let Some(after) = &filter.after {
            before = to_json(after)?;
        }
    }
    let is_shown = filters.last().is_none_or(|last| last.after.is_some());
    let outcome = match filters.last() {
        Some(FilterExplanation { decision: Decision::Hide, after: None, is_suspended: false, .. }) => "hidden",
        Some(FilterExplanation { after: None, failure_policy, .. }) => match failure_policy {
            Some(FailurePolicy::Hide) => "hidden",
            _ => "failed",
        },
        _ if before == object => "unchanged",
        _ => "edited",
    };
    Ok(json!({
        "outcome": outcome,
        "object": object,
        "shown": is_shown.then_some(before),
        "filters": steps,
    }))
}

fn step(step: &Step) -> Value {
    json!({"on": step.on, "call": step.call, "result": step.result})
}

fn to_json(document: &Document) -> Result<Value, String> {
    document.deserialize_at(&path!("$")).map(Option::unwrap_or_default).map_err(|error| error.to_string())
}

/// The difference between two objects in the format of `diff -u`.
pub fn diff(before: &Value, after: &Value) -> String {
    let pretty = |value: &Value| serde_json::to_string_pretty(value).unwrap_or_default() + "\n";
    let mut options = DiffOptions::new();
    options.set_original_filename("before").set_modified_filename("after");
    options.create_patch(&pretty(before), &pretty(after)).to_string()
}
