//! Match rules: `component/resource[.group]#verbs`.

use crate::resource::GroupResource;

/// What filters tell apart of a request: get, list and watch are one class, so that a list and its watch never disagree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Class {
    /// get, list, watch (HEAD counts as get).
    Read,
    /// create.
    Create,
    /// update.
    Update,
    /// patch.
    Patch,
    /// delete and deletecollection.
    Delete,
}

/// One validated rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MatchRule {
    component: Option<String>,
    resource: Option<GroupResource>,
}

impl MatchRule {
    /// Whether the rule names this request. `component` is compared without regard to case.
    #[must_use]
    pub fn matches(&self, component: &str, resource: &GroupResource, class: Class) -> bool {
        let _ = class;
        self.component.as_ref().is_none_or(|wanted| wanted.eq_ignore_ascii_case(component))
            && self.resource.as_ref().is_none_or(|wanted| wanted == resource)
    }
}
