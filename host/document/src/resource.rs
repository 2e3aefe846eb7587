//! Derives the name of a resource from a kind, with the heuristic of client-go.

/// Returns the resource of a kind: `services`, `nodepools.apps.openyurt.io`. It is the plural of the lower-case kind,
/// with the group unless it is the core group. This is a heuristic (client-go's `UnsafeGuessKindToResource`). Use
/// discovery where it is available.
pub fn resource_of(api_version: &str, kind: &str) -> String {
    let mut name = kind.to_lowercase();
    if name.ends_with("endpoints") {
        // The plural equals the singular.
    } else if name.ends_with('s') {
        name.push_str("es");
    } else if name.ends_with('y') {
        name.pop();
        name.push_str("ies");
    } else {
        name.push('s');
    }
    if let Some((group, _)) = api_version.split_once('/') {
        name.push('.');
        name.push_str(group);
    }
    name
}

#[cfg(test)]
mod tests {
    use super::resource_of;

    #[test]
    fn plurals_follow_the_rule_of_client_go() {
        assert_eq!(resource_of("v1", "Service"), "services");
        assert_eq!(resource_of("v1", "Endpoints"), "endpoints");
        assert_eq!(resource_of("discovery.k8s.io/v1", "EndpointSlice"), "endpointslices.discovery.k8s.io");
        assert_eq!(resource_of("networking.k8s.io/v1", "Ingress"), "ingresses.networking.k8s.io");
        assert_eq!(resource_of("networking.k8s.io/v1", "NetworkPolicy"), "networkpolicies.networking.k8s.io");
        assert_eq!(resource_of("apps.openyurt.io/v1beta2", "NodePool"), "nodepools.apps.openyurt.io");
    }
}
