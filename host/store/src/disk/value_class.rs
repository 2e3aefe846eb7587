//! The class of a value on disk, by the prefix of its name. It decides which values are evicted first.

/// In the order in which values give way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ValueClass {
    /// What clients other than node components have asked for.
    Clients,
    /// Discovery and OpenAPI, which are the same for all clients.
    Documents,
    /// What the API server has said of the credentials of clients.
    Grants,
    /// What node components have asked for: their objects, tokens and permissions.
    Node,
    /// What the daemon keeps for itself, one of each kind: never evicted.
    Own,
}

impl ValueClass {
    pub(super) fn of(name: &str) -> Self {
        match name.split_once('/').map_or("", |(class, _)| class) {
            // The last two are of older daemons.
            "client" | "answer" | "review" => Self::Clients,
            "document" => Self::Documents,
            "accepted" | "issued" | "grant" => Self::Grants,
            "node" => Self::Node,
            _ => Self::Own,
        }
    }

    /// Whether a client other than node components has it.
    pub(super) fn is_of_client(self) -> bool {
        matches!(self, Self::Clients | Self::Grants)
    }
}

/// Whether a value is a permission that the API server granted to the credential of a node component. The sender of a token
/// chooses the name of one.
pub(super) fn is_node_permission(name: &str) -> bool {
    name.strip_prefix("node/").is_some_and(|rest| ValueClass::of(rest) == ValueClass::Grants)
}

/// The owner of a value for clients: `client/OWNER/…`.
pub(super) fn owner(name: &str) -> &str {
    name.strip_prefix("client/").and_then(|rest| rest.split_once('/')).map_or("", |(owner, _)| owner)
}
