//! Selects the filters of a configuration that are active on this node.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use crate::admin::status::ReloadError;
use crate::config::Configuration;
use crate::node_facts::{NodeFacts, NodeState, OFF, SWITCH};
use weir_runtime::Filter;
use weir_spec::FilterEntry;

/// A filter that is not active on this node, and why.
pub(super) type LeftOut = (String, &'static str);

/// What of a configuration is active on this node.
#[derive(Debug)]
pub(super) enum Selected<'a> {
    /// These filters. The others are left out, each for a reason.
    Filters(Cow<'a, Configuration>, Vec<LeftOut>),
    /// None: the Node turns all off.
    Off(Configuration, Vec<LeftOut>),
    /// It is not known yet: the Node has not been read.
    Unknown,
}

/// Why a filter is not active here.
const ELSEWHERE: &str = "not on this node: its `nodes` do not select it";
const SWITCHED_OFF: &str = "off: the Node has the annotation weir.dev/filters: off";

/// The warning while the Node turns all filters off.
pub(super) fn all_off() -> String {
    format!("all filters are off: the Node has the annotation {SWITCH}: {OFF}")
}

/// Selects the filters of this node.
///
/// # Errors
/// The Node cannot be read, and filters depend on it.
pub(super) fn select<'a>(configuration: &'a Configuration, node: &NodeState) -> Result<Selected<'a>, Vec<ReloadError>> {
    let depends: Vec<_> = configuration.filters.iter().filter(|entry| entry.nodes.is_some()).collect();
    let facts = match node {
        NodeState::Known(facts) => facts,
        NodeState::Pending | NodeState::Away if !depends.is_empty() => return Ok(Selected::Unknown),
        NodeState::Unreadable(reason) if !depends.is_empty() => {
            let error = |entry: &FilterEntry| ReloadError {
                filter: Some(entry.name.clone()),
                reason: format!("`nodes` cannot be evaluated: the Node cannot be read: {reason}"),
            };
            return Err(depends.into_iter().map(error).collect());
        }
        NodeState::Pending | NodeState::Away | NodeState::Unreadable(_) => &NodeFacts::default(),
    };
    if facts.is_off && !configuration.filters.is_empty() {
        let left_out = configuration.filters.iter().map(|entry| (entry.name.to_string(), SWITCHED_OFF)).collect();
        let mut off = Configuration { filters: Vec::new(), ..configuration.clone() };
        off.warnings.push(all_off());
        return Ok(Selected::Off(off, left_out));
    }
    let is_here = |entry: &FilterEntry| is_selected(entry, &facts.labels);
    let left_out: Vec<_> = configuration
        .filters
        .iter()
        .filter(|entry| !is_here(entry))
        .map(|entry| (entry.name.to_string(), ELSEWHERE))
        .collect();
    if left_out.is_empty() {
        return Ok(Selected::Filters(Cow::Borrowed(configuration), left_out));
    }
    let mut here = configuration.clone();
    here.filters.retain(is_here);
    Ok(Selected::Filters(Cow::Owned(here), left_out))
}

/// Those of the filters of an earlier set that are active on this node now, and why others are not.
pub(super) fn still_selected(filters: &[Arc<Filter>], node: &NodeState) -> (Vec<Arc<Filter>>, Vec<LeftOut>) {
    let NodeState::Known(facts) = node else { return (filters.to_vec(), Vec::new()) };
    let is_here = |filter: &&Arc<Filter>| !facts.is_off && is_selected(filter.entry(), &facts.labels);
    let reason = if facts.is_off { SWITCHED_OFF } else { ELSEWHERE };
    let (here, left_out): (Vec<_>, Vec<_>) = filters.iter().partition(is_here);
    let left_out = left_out.into_iter().map(|filter| (filter.name().to_string(), reason)).collect();
    (here.into_iter().cloned().collect(), left_out)
}

fn is_selected(entry: &FilterEntry, labels: &BTreeMap<String, String>) -> bool {
    entry.nodes.as_ref().is_none_or(|nodes| nodes.selects(labels))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn configuration() -> Configuration {
        let text = "filters: [{name: a}, {name: b, nodes: {pools: [x]}}]";
        Configuration::from_file("f", text).unwrap()
    }

    fn facts(pool: &str, is_off: bool) -> NodeState {
        let labels = [("apps.openyurt.io/nodepool".to_owned(), pool.to_owned())].into();
        NodeState::Known(NodeFacts { labels, is_off, ..NodeFacts::default() })
    }

    fn names(selected: Result<Selected<'_>, Vec<ReloadError>>) -> (Vec<String>, Vec<String>) {
        let (filters, left_out) = match selected.unwrap() {
            Selected::Filters(configuration, left_out) => (configuration.into_owned().filters, left_out),
            Selected::Off(configuration, left_out) => (configuration.filters, left_out),
            Selected::Unknown => panic!("it is known"),
        };
        (
            filters.iter().map(|entry| entry.name.to_string()).collect(),
            left_out.into_iter().map(|(name, _)| name).collect(),
        )
    }

    #[test]
    fn a_node_has_the_filters_that_select_it() {
        let all = configuration();
        let of = |of: &[&str]| of.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(names(select(&all, &facts("x", false))), (of(&["a", "b"]), of(&[])));
        assert_eq!(names(select(&all, &facts("y", false))), (of(&["a"]), of(&["b"])));
        assert_eq!(names(select(&all, &facts("x", true))), (of(&[]), of(&["a", "b"])));
    }

    #[test]
    fn filters_that_depend_on_the_node_wait_for_it_and_are_refused_if_it_cannot_be_read() {
        let all = configuration();
        assert!(matches!(select(&all, &NodeState::Pending), Ok(Selected::Unknown)));
        let errors = select(&all, &NodeState::Unreadable("forbidden".into())).unwrap_err();
        assert_eq!(errors.len(), 1);
        assert_eq!(errors[0].to_string(), "filter b: `nodes` cannot be evaluated: the Node cannot be read: forbidden");
        let anywhere = Configuration::from_file("f", "filters: [{name: a}]").unwrap();
        for state in [NodeState::Pending, NodeState::Away, NodeState::Unreadable("forbidden".into())] {
            assert_eq!(names(select(&anywhere, &state)).0, ["a"]);
        }
    }
}
