//! Whose share a request counts in.

use crate::Access;
use crate::caller::Caller;
use weir_kube::Identity;
use weir_process::ledger::Owner;

impl Access {
    /// The owner, after asking the API server for it unless it is known. Cancel-safe.
    pub async fn known_owner(&self, caller: &Caller) -> Owner {
        self.authenticate(caller).await;
        self.owner(caller)
    }

    /// The owner of what a request makes the daemon hold. A token counts for the user that the API server has named for it, who
    /// impersonates for itself; and until it has named one, for all clients without a name together.
    pub fn owner(&self, caller: &Caller) -> Owner {
        if caller.is_node_component(&self.node_service_accounts) {
            return Owner::Node;
        }
        match (caller.identity(), caller.account()) {
            (Identity::Client, None) => Owner::Unaccepted,
            _ => Owner::Client(caller.owner()),
        }
    }
}
