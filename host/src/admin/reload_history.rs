//! The last reloads, for the status page: what each one changed, or why it was refused.
//!
//! Bounded to [`MAX_RELOADS`]. A refusal that repeats counts as one reload, because the reloader retries for as long as the
//! cause lasts.

use std::collections::VecDeque;
use std::sync::Arc;

use serde_json::{Value, json};
use weir_runtime::Filter;

use super::filter_change::FilterChange;
use super::overview::insert;
use super::status::{ReloadError, ReloadResult};

/// The most reloads that are kept.
const MAX_RELOADS: usize = 20;
/// The most changed filters that are kept of one reload.
const MAX_CHANGES: usize = 20;

/// The last reloads, the newest first.
#[derive(Debug, Default)]
pub(super) struct ReloadHistory {
    reloads: VecDeque<Reload>,
    /// Whether the last one has changed nothing, and is there only because it ended a refusal.
    only_ends_refusal: bool,
}

#[derive(Debug)]
struct Reload {
    result: ReloadResult,
    /// When it was tried first.
    first: jiff::Timestamp,
    attempts: u64,
    changes: Vec<FilterChange>,
}

impl ReloadHistory {
    /// Notes that the last reload holds the last set, because no configuration is there. It is refused next, at each retry.
    pub(super) fn held(&mut self) {
        if std::mem::take(&mut self.only_ends_refusal) {
            self.reloads.pop_front();
        }
    }

    /// Adds a refused reload.
    pub(super) fn refused(&mut self, result: &ReloadResult) {
        self.only_ends_refusal = false;
        match self.reloads.front_mut().filter(|last| last.result.errors == result.errors) {
            Some(last) => {
                last.attempts += 1;
                last.result = result.clone();
            }
            None => self.push(result, Vec::new()),
        }
    }

    /// Adds an applied reload. One that changes nothing is left out, unless it ends a refusal; its warnings are those of the last.
    pub(super) fn applied<'a>(
        &mut self,
        result: &ReloadResult,
        before: impl Iterator<Item = &'a Arc<Filter>> + Clone,
        after: &[Arc<Filter>],
    ) {
        let mut changes = Vec::new();
        for filter in after {
            match before.clone().find(|old| old.name() == filter.name()) {
                None => changes.push(FilterChange::added(filter)),
                Some(old) if !Arc::ptr_eq(old, filter) => changes.push(FilterChange::changed(old, filter)),
                Some(_) => {}
            }
        }
        let is_removed = |old: &&Arc<Filter>| after.iter().all(|filter| filter.name() != old.name());
        let removed = before.filter(is_removed);
        changes.extend(removed.map(|old| FilterChange::removed(old)));
        let is_first = self.reloads.front().is_none_or(|last| !last.result.errors.is_empty());
        self.only_ends_refusal = is_first && changes.is_empty() && !self.reloads.is_empty();
        if is_first || !changes.is_empty() {
            changes.truncate(MAX_CHANGES);
            self.push(result, changes);
        } else if let Some(last) = self.reloads.front_mut() {
            last.result.warnings.clone_from(&result.warnings);
        }
    }

    fn push(&mut self, result: &ReloadResult, changes: Vec<FilterChange>) {
        self.reloads.truncate(MAX_RELOADS - 1);
        self.reloads.push_front(Reload { result: result.clone(), first: result.at, attempts: 1, changes });
    }

    pub(super) fn to_json(&self) -> Vec<Value> {
        self.reloads.iter().map(Reload::to_json).collect()
    }
}

impl Reload {
    fn to_json(&self) -> Value {
        let mut json = self.result.to_json();
        insert(&mut json, "first", self.first.to_string());
        insert(&mut json, "attempts", self.attempts);
        insert(&mut json, "changes", self.changes.iter().map(FilterChange::to_json).collect::<Value>());
        json
    }
}

impl ReloadResult {
    /// The result in the responses of the admin port.
    pub(super) fn to_json(&self) -> Value {
        json!({
            "result": if self.errors.is_empty() { "applied" } else { "refused" },
            "at": self.at.to_string(),
            "source": self.source,
            "errors": self.errors.iter().map(ReloadError::to_string).collect::<Vec<_>>(),
            "warnings": self.warnings,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(reason: &str) -> ReloadResult {
        let error = ReloadError { filter: Some("a".parse().unwrap()), reason: reason.to_owned() };
        ReloadResult::refused("f.yaml", vec![error], &[])
    }

    #[test]
    fn a_repeated_refusal_is_one_reload_and_the_history_is_bounded() {
        let mut history = ReloadHistory::default();
        history.applied(&ReloadResult::applied("f.yaml", &[]), std::iter::empty(), &[]);
        for reason in ["x", "x", "y", "x"] {
            history.refused(&refused(reason));
        }
        // What holds the last set, and changes nothing of it, is no reload of its own.
        history.applied(&ReloadResult::applied("f.yaml", &[]), std::iter::empty(), &[]);
        history.held();
        history.refused(&refused("x"));
        let json = Value::from(history.to_json());
        let attempts: Vec<_> = json.as_array().unwrap().iter().map(|reload| reload["attempts"].as_u64()).collect();
        assert_eq!(attempts, [Some(2), Some(1), Some(2), Some(1)]);
        assert_eq!(json[2]["errors"][0], "filter a: x");
        assert_eq!(json[3]["result"], "applied");
        for n in 0..100 {
            history.refused(&refused(&n.to_string()));
        }
        let json = history.to_json();
        assert_eq!((json.len(), json[0]["errors"][0].as_str()), (MAX_RELOADS, Some("filter a: 99")));
    }

    #[test]
    fn a_reload_that_changes_nothing_is_left_out_unless_it_ends_a_refusal() {
        let mut history = ReloadHistory::default();
        let applied = ReloadResult::applied("f.yaml", &[]);
        for _ in 0..3 {
            history.applied(&applied, std::iter::empty(), &[]);
        }
        assert_eq!(history.to_json().len(), 1);
        history.refused(&refused("x"));
        history.applied(&applied, std::iter::empty(), &[]);
        assert_eq!(history.to_json().len(), 3);
    }

    #[test]
    fn the_warnings_of_a_reload_that_changes_nothing_are_those_of_the_last() {
        let mut history = ReloadHistory::default();
        for warnings in [&["filter_b turns off no filter".to_owned()][..], &[]] {
            history.applied(&ReloadResult::applied("f.yaml", &[]), std::iter::empty(), &[]);
            history.applied(&ReloadResult::applied("f.yaml", warnings), std::iter::empty(), &[]);
            let json = history.to_json();
            assert_eq!((json.len(), &json[0]["warnings"]), (1, &json!(warnings)));
        }
    }
}
