//! API verbs, and the classes by which match rules group them.

/// The API verb of a request, named as in RBAC rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Verb {
    /// GET or HEAD of one object or of a subresource.
    Get,
    /// GET or HEAD of a collection.
    List,
    /// GET of a collection with `watch`, or any request under the deprecated `/watch/` prefix.
    Watch,
    /// POST.
    Create,
    /// PUT.
    Update,
    /// PATCH.
    Patch,
    /// DELETE of one object.
    Delete,
    /// DELETE of a collection.
    DeleteCollection,
    /// Any request under the removed `/proxy/` prefix. The API server answers it with 404.
    Proxy,
    /// Any HTTP method that the API does not use.
    Other,
}

impl Verb {
    /// Returns the name in RBAC rules; `None` for a method that the API does not use.
    #[must_use]
    pub fn name(self) -> Option<&'static str> {
        Some(match self {
            Self::Get => "get",
            Self::List => "list",
            Self::Watch => "watch",
            Self::Create => "create",
            Self::Update => "update",
            Self::Patch => "patch",
            Self::Delete => "delete",
            Self::DeleteCollection => "deletecollection",
            Self::Proxy => "proxy",
            Self::Other => return None,
        })
    }
}

/// A group of verbs that match rules treat alike.
///
/// Get, list and watch share one class, so that the same chain of filters runs for a list and for its watch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum VerbClass {
    /// get, list and watch. HEAD counts as get.
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
