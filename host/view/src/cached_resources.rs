//! `--cache-resources`: which resources are served from shared watch caches.

use weir_kube::GroupResource;

use super::scope::ScopePolicy;

/// What the clients of a node read: kubelet, kube-proxy, CoreDNS and an ingress controller, and what the bundled filters look
/// up. The API server itself serves all of them, with the watch verb.
const DEFAULT: [(&str, &str); 15] = [
    ("services", ""),
    ("endpoints", ""),
    ("namespaces", ""),
    ("nodes", ""),
    ("pods", ""),
    ("configmaps", ""),
    ("secrets", ""),
    ("endpointslices", "discovery.k8s.io"),
    ("servicecidrs", "networking.k8s.io"),
    ("ingresses", "networking.k8s.io"),
    ("ingressclasses", "networking.k8s.io"),
    ("csidrivers", "storage.k8s.io"),
    ("runtimeclasses", "node.k8s.io"),
    ("nodepools", "apps.openyurt.io"),
    ("nodebuckets", "apps.openyurt.io"),
];

/// The cached resources.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum CachedResources {
    /// What node components read, and what a filter matches.
    #[default]
    Default,
    /// These only; none if it is empty.
    Only(Vec<GroupResource>),
}

impl CachedResources {
    /// Parses the flag. Without it, the default applies; an empty value turns caching off.
    #[must_use]
    pub fn from_flag(flag: Option<&str>, errors: &mut Vec<String>) -> Self {
        let Some(text) = flag else { return Self::Default };
        let mut resources = Vec::new();
        for name in text.split(',').map(str::trim).filter(|name| !name.is_empty()) {
            match name.parse() {
                Ok(resource) => resources.push(resource),
                Err(error) => errors.push(format!("--cache-resources: {error}")),
            }
        }
        Self::Only(resources)
    }

    /// Whether nothing is cached.
    #[must_use]
    pub fn is_off(&self) -> bool {
        matches!(self, Self::Only(resources) if resources.is_empty())
    }

    /// The resources that are cached whatever the filters are.
    #[must_use]
    pub fn named(&self) -> Vec<GroupResource> {
        match self {
            Self::Default => DEFAULT.iter().map(|(resource, group)| GroupResource::new(resource, group)).collect(),
            Self::Only(resources) => resources.clone(),
        }
    }

    /// Those of them of which a view shows all objects. Lookups read the same stores.
    #[must_use]
    pub fn shared(&self) -> Vec<GroupResource> {
        self.named().into_iter().filter(|resource| ScopePolicy::of(resource) == ScopePolicy::Whole).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn caching_is_on_by_default_and_an_empty_value_turns_it_off() {
        let mut errors = Vec::new();
        let mut parse = |flag| CachedResources::from_flag(flag, &mut errors);
        assert!(parse(None).named().contains(&GroupResource::new("endpointslices", "discovery.k8s.io")));
        assert!(parse(Some("")).is_off() && parse(Some(" , ")).is_off() && !parse(None).is_off());
        let only = parse(Some("services,widgets.example.com"));
        assert_eq!(only.named(), [GroupResource::new("services", ""), GroupResource::new("widgets", "example.com")]);
        parse(Some("services,Widgets"));
        assert!(errors.len() == 1 && errors[0].starts_with("--cache-resources: ") && errors[0].contains("Widgets"));
    }

    #[test]
    fn the_default_has_no_resource_that_changes_all_the_time() {
        for resource in CachedResources::Default.named() {
            assert!(!matches!(resource.resource.as_str(), "events" | "leases"), "{resource}");
        }
    }
}
