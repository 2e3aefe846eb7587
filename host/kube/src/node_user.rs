//! The users of nodes (<https://kubernetes.io/docs/reference/access-authn-authz/node/>).

/// The user of a node's kubelet, before the name of the node.
const NODE_USER: &str = "system:node:";
/// The group of all nodes.
const NODES: &str = "system:nodes";

/// The component that runs the pods of a node.
pub const KUBELET: &str = "kubelet";

/// Returns the name of the node whose kubelet this user is; `None` for all other users.
#[must_use]
pub fn node_of_user<'a>(user: &'a str, groups: &[String]) -> Option<&'a str> {
    let node = user.strip_prefix(NODE_USER)?;
    groups.iter().any(|group| group == NODES).then_some(node)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_needs_the_name_and_the_group() {
        let node = |user, group: &str| node_of_user(user, &["system:authenticated".to_owned(), group.to_owned()]);
        assert_eq!(node("system:node:edge-a", "system:nodes"), Some("edge-a"));
        assert_eq!(node("system:node:edge-a", "system:masters"), None);
        assert_eq!(node("edge-a", "system:nodes"), None);
    }
}
