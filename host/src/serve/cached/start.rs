//! Which state a read asks a view for, and which ones only the API server has.

use weir_kube::{ListOptions, ResourceRequest, Verb};

/// The state that a read asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Start {
    /// Any state (`resourceVersion=0`).
    Any,
    /// A state that is at least as new as this version.
    NotOlderThan(u64),
    /// The state of a version, which only the API server has. Offline, a list of it has expired.
    Exact,
    /// A watch: every event after this version.
    After(u64),
    /// A watch: every event from now on.
    Now,
}

impl Start {
    /// `None` if only the API server has that state.
    pub(super) fn of(resource: &ResourceRequest, options: &ListOptions, online: bool) -> Option<Self> {
        match resource.verb {
            Verb::List if online => list_start(options),
            Verb::List => offline_list_start(options),
            Verb::Watch => watch_start(options),
            Verb::Get if !online => Some(Self::Any),
            _ => None,
        }
    }
}

/// The state that a list asks for; `None` if the API server must answer: the latest state, an exact version, or a page.
fn list_start(options: &ListOptions) -> Option<Start> {
    if !options.continue_token.is_empty() {
        return None;
    }
    match (options.resource_version.as_str(), options.resource_version_match.as_str()) {
        ("0", "" | "NotOlderThan") => Some(Start::Any),
        (_, "NotOlderThan") => options.version().map(Start::NotOlderThan),
        (_, "") if options.limit <= 0 => options.version().map(Start::NotOlderThan),
        _ => None,
    }
}

/// The state that a list gets offline: the view's, unless the client asks for a version itself, as the API server understands a
/// version with a limit, too. `None`: a further page of another list.
fn offline_list_start(options: &ListOptions) -> Option<Start> {
    if !options.continue_token.is_empty() {
        return None;
    }
    Some(match (options.version(), options.resource_version_match.as_str()) {
        (None, _) => Start::Any,
        (Some(_), "Exact") => Start::Exact,
        (Some(_), "") if options.limit > 0 => Start::Exact,
        (Some(version), _) => Start::NotOlderThan(version),
    })
}

/// A watch that says nothing of the initial events begins with all objects where it names no version, or 0.
fn watch_start(options: &ListOptions) -> Option<Start> {
    let version = options.version();
    match (options.send_initial_events, options.resource_version_match.as_str()) {
        (None, "") => Some(version.map_or(Start::Any, Start::After)),
        (Some(true), "NotOlderThan") => Some(version.map_or(Start::Any, Start::NotOlderThan)),
        (Some(false), "" | "NotOlderThan") => Some(version.map_or(Start::Now, Start::After)),
        _ => None,
    }
}

/// Whether a watch gets nothing older than what the API server has when the request arrives (KEP-3157). Version 0 is any.
pub(super) fn is_consistent(resource: &ResourceRequest, options: &ListOptions) -> bool {
    resource.verb == Verb::Watch && options.resource_version.is_empty()
}

#[cfg(test)]
mod tests {
    use weir_kube::RequestInfo;

    use super::*;

    fn start(query: &str, start: fn(&ListOptions) -> Option<Start>) -> Option<Start> {
        let parsed =
            RequestInfo::parse(&http::Method::GET, &format!("/api/v1/services?{query}").parse().unwrap()).unwrap();
        start(parsed.resource().unwrap().options.as_ref().ok()?)
    }

    #[test]
    fn lists_of_informers_are_cached_and_lists_of_the_latest_state_are_not() {
        for (query, start) in [
            ("resourceVersion=0", Some(Start::Any)),
            ("resourceVersion=0&limit=500", Some(Start::Any)),
            ("resourceVersion=7", Some(Start::NotOlderThan(7))),
            ("resourceVersion=7&resourceVersionMatch=NotOlderThan&limit=500", Some(Start::NotOlderThan(7))),
            ("", None),
            ("limit=500", None),
            ("resourceVersion=7&limit=500", None),
            ("resourceVersion=7&resourceVersionMatch=Exact", None),
            ("resourceVersion=0&resourceVersionMatch=Exact", None),
            ("continue=abc", None),
            ("resourceVersion=x", None),
        ] {
            assert_eq!(self::start(query, list_start), start, "{query}");
        }
    }

    #[test]
    fn offline_a_list_gets_the_state_of_the_view_unless_it_asks_for_a_version_itself() {
        for (query, start) in [
            ("", Some(Start::Any)),
            ("limit=500", Some(Start::Any)),
            ("resourceVersion=0&limit=500", Some(Start::Any)),
            ("resourceVersion=7", Some(Start::NotOlderThan(7))),
            ("resourceVersion=7&resourceVersionMatch=NotOlderThan&limit=500", Some(Start::NotOlderThan(7))),
            ("resourceVersion=7&limit=500", Some(Start::Exact)),
            ("resourceVersion=7&resourceVersionMatch=Exact", Some(Start::Exact)),
            ("resourceVersion=7&resourceVersionMatch=Exact&limit=500", Some(Start::Exact)),
            ("resourceVersion=0&resourceVersionMatch=Exact", None),
            ("continue=abc", None),
            ("resourceVersion=x", None),
        ] {
            assert_eq!(self::start(query, offline_list_start), start, "{query}");
        }
    }

    #[test]
    fn watches_start_as_the_api_server_documents() {
        const LIST: &str = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
        const EVENTS: &str = "sendInitialEvents=false&resourceVersionMatch=NotOlderThan";
        for (query, start, is_consistent) in [
            ("", Some(Start::Any), true),
            ("resourceVersion=", Some(Start::Any), true),
            ("resourceVersion=0", Some(Start::Any), false),
            ("resourceVersion=7", Some(Start::After(7)), false),
            (LIST, Some(Start::Any), true),
            (&format!("{LIST}&resourceVersion=0"), Some(Start::Any), false),
            (&format!("{LIST}&resourceVersion=7"), Some(Start::NotOlderThan(7)), false),
            ("sendInitialEvents=true&resourceVersionMatch=NotOlderThan", Some(Start::Any), true),
            ("sendInitialEvents=true", None, true),
            (EVENTS, Some(Start::Now), true),
            (&format!("{EVENTS}&resourceVersion=0"), Some(Start::Now), false),
            (&format!("{EVENTS}&resourceVersion=7"), Some(Start::After(7)), false),
            ("resourceVersionMatch=NotOlderThan", None, true),
        ] {
            let query = format!("watch=1&{query}");
            assert_eq!(self::start(&query, watch_start), start, "{query}");
            let parsed = RequestInfo::parse(&http::Method::GET, &format!("/api/v1/pods?{query}").parse().unwrap());
            let parsed = parsed.unwrap();
            let resource = parsed.resource().unwrap();
            if let Ok(options) = &resource.options {
                assert_eq!(self::is_consistent(resource, options), is_consistent, "{query}");
            }
        }
    }
}
