//! Whom a value on disk serves: the beginning of its name says it. This decides what gives way to what.

/// In the order in which values give way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ValueClass {
    /// What clients other than node components have asked for.
    Clients,
    /// Discovery and OpenAPI, which are the same for all clients.
    Documents,
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
            "node" => Self::Node,
            _ => Self::Own,
        }
    }
}

/// The owner of a value for clients: `client/OWNER/…`.
pub(super) fn owner(name: &str) -> &str {
    name.strip_prefix("client/").and_then(|rest| rest.split_once('/')).map_or("", |(owner, _)| owner)
}
