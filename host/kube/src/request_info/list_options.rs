//! The options of a list or a watch: `ListOptions` of apimachinery, as the API server decodes and validates them from a query.
//!
//! Options that are refused here go to the API server, and get 400 or 422 while none can be reached.

use std::borrow::Cow;
use std::fmt;

use super::query::Query;
use crate::{FieldSelector, LabelSelector};

/// What a list or a watch may have in its query: `ListOptions`; for how long client-go waits (`timeout`); how JSON is written
/// (`pretty`); what the rows of a Table hold (`includeObject`); and what servers ignore, `TypeMeta` among it.
const KNOWN: [&str; 16] = [
    "labelSelector",
    "fieldSelector",
    "watch",
    "allowWatchBookmarks",
    "resourceVersion",
    "resourceVersionMatch",
    "timeoutSeconds",
    "limit",
    "continue",
    "sendInitialEvents",
    "timeout",
    "pretty",
    "includeObject",
    "includeUninitialized",
    "kind",
    "apiVersion",
];

/// `time.Duration` holds no more seconds.
const MAX_SECONDS: i64 = i64::MAX / 1_000_000_000;

/// The options of a list or a watch.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ListOptions {
    /// Selects by labels.
    pub labels: LabelSelector,
    /// Selects by fields; also the name in the path of an old watch, `/watch/pods/NAME`.
    pub fields: FieldSelector,
    /// Whether the query asks for a watch.
    pub watch: bool,
    /// Whether the client takes BOOKMARK events.
    pub allow_watch_bookmarks: bool,
    /// The version at which a watch or a list begins; empty if none is given.
    pub resource_version: String,
    /// What the version means: empty, `Exact` or `NotOlderThan`.
    pub resource_version_match: String,
    /// How long a watch lasts; 0 is as good as none.
    pub timeout_seconds: Option<i64>,
    /// The most objects of a list; 0 and less mean all.
    pub limit: i64,
    /// The token of a further page; empty for the first.
    pub continue_token: String,
    /// Whether a watch begins with the whole state.
    pub send_initial_events: Option<bool>,
}

/// An option that the API server, or at least Weir, does not serve.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the parameter {parameter} is invalid: {reason}")]
pub struct OptionsError {
    /// The name of the query parameter.
    pub parameter: Cow<'static, str>,
    /// What is wrong with it.
    pub reason: String,
    /// Which server refuses it, and why.
    pub kind: OptionsErrorKind,
}

/// Which server refuses an option, and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OptionsErrorKind {
    /// The API server with 400: it cannot be parsed.
    Malformed,
    /// The API server with 422: the options contradict each other.
    Contradiction,
    /// Weir does not serve it as the API server may.
    Unserved,
    /// Weir does not know the parameter. The API server may.
    Unknown,
}

impl ListOptions {
    /// Decodes the options of a query, and nothing more, as `RequestInfo` of the API server does.
    ///
    /// # Errors
    /// [`OptionsErrorKind::Malformed`]
    pub fn decode(query: &Query) -> Result<Self, OptionsError> {
        let text = |key| query.first(key).unwrap_or_default();
        let integer = |key| {
            let parsed = query.first(key).map(str::parse::<i64>).transpose();
            parsed.map_err(|error| OptionsError::malformed(key, error))
        };
        let (timeout_seconds, limit) = (integer("timeoutSeconds")?, integer("limit")?.unwrap_or_default());
        let labels = LabelSelector::parse(text("labelSelector"));
        let fields = FieldSelector::parse(text("fieldSelector"));
        Ok(Self {
            labels: labels.map_err(|error| OptionsError::malformed("labelSelector", error))?,
            fields: fields.map_err(|error| OptionsError::malformed("fieldSelector", error))?,
            watch: query.flag("watch"),
            allow_watch_bookmarks: query.flag("allowWatchBookmarks"),
            resource_version: text("resourceVersion").to_owned(),
            resource_version_match: text("resourceVersionMatch").to_owned(),
            timeout_seconds,
            limit,
            continue_token: text("continue").to_owned(),
            send_initial_events: query.first("sendInitialEvents").map(|_| query.flag("sendInitialEvents")),
        })
    }

    /// Checks the options as `ValidateListOptions` does.
    ///
    /// # Errors
    /// [`OptionsErrorKind::Contradiction`]
    pub(crate) fn validate(&self) -> Result<(), OptionsError> {
        let version_match = self.resource_version_match.as_str();
        let contradiction =
            |parameter, reason: &str| Err(OptionsError::new(parameter, reason, OptionsErrorKind::Contradiction));
        let refused = |reason| contradiction("resourceVersionMatch", reason);
        let is_legacy = matches!(self.resource_version.as_str(), "" | "0");
        match (self.watch, version_match, self.send_initial_events) {
            // `SetListOptionsDefaults`: such a watch is a watch-list.
            (true, "", None) if is_legacy && !self.continue_token.is_empty() => {
                return contradiction("continue", "it is forbidden for a watch that begins with all objects");
            }
            (false, _, Some(_)) => return contradiction("sendInitialEvents", "it is forbidden for a list"),
            (true, "NotOlderThan", Some(_)) | (_, "", None) => {}
            (true, _, Some(_)) => return refused("sendInitialEvents needs the value NotOlderThan"),
            (true, _, None) => return refused("it is forbidden for a watch without sendInitialEvents"),
            (false, "Exact" | "NotOlderThan", None) => {}
            (false, _, None) => return refused("supported values are Exact and NotOlderThan"),
        }
        match (version_match, self.resource_version.as_str()) {
            ("", _) => Ok(()),
            _ if !self.continue_token.is_empty() => refused("it is forbidden with continue"),
            (_, "") if !self.watch => refused("it is forbidden without resourceVersion"),
            ("Exact", "0") => refused("Exact is forbidden for resourceVersion 0"),
            _ => Ok(()),
        }
    }

    /// Checks that Weir understands the options as the API server does.
    ///
    /// # Errors
    /// [`OptionsErrorKind::Malformed`], [`OptionsErrorKind::Unserved`]
    pub(crate) fn check_meaning(&self, is_watch: bool) -> Result<(), OptionsError> {
        let version = self.resource_version.as_str();
        if !version.is_empty() {
            let is_number = version.bytes().all(|byte| byte.is_ascii_digit());
            if !is_number || version.parse::<u64>().is_err() {
                return Err(OptionsError::malformed("resourceVersion", "it is not a number"));
            }
            if version.starts_with('0') && version != "0" {
                return Err(OptionsError::unserved("resourceVersion", "it begins with a zero"));
            }
        }
        if is_watch && !self.continue_token.is_empty() {
            return Err(OptionsError::unserved("continue", "it has no meaning for a watch"));
        }
        let is_time = |seconds| (0..=MAX_SECONDS).contains(&seconds);
        if is_watch && !self.timeout_seconds.is_none_or(is_time) {
            return Err(OptionsError::unserved("timeoutSeconds", "it is negative or too large"));
        }
        Ok(())
    }

    /// Checks that a query has only parameters whose meaning is known here: another one may select objects.
    ///
    /// # Errors
    /// [`OptionsErrorKind::Unknown`]
    pub(crate) fn check_known(query: &Query) -> Result<(), OptionsError> {
        match query.keys().find(|key| !KNOWN.contains(key)) {
            Some(key) => Err(OptionsError::new(key.to_owned(), "it is not known here", OptionsErrorKind::Unknown)),
            None => Ok(()),
        }
    }

    /// The parameters of a query whose meaning is not known here, encoded.
    #[must_use]
    pub fn unknown(query: &Query) -> String {
        let mut unknown = String::new();
        query.without(&KNOWN).append_to(&mut unknown);
        unknown.split_off(unknown.len().min(1))
    }

    /// Restricts the options to the object that the request names, in its path or by its field selector.
    pub(crate) fn restrict_to(&mut self, name: &str) -> Result<(), OptionsError> {
        if self.fields.is_empty() {
            self.fields = FieldSelector::equal("metadata.name", name);
        }
        match self.fields.exact("metadata.name") == Some(name) {
            true => Ok(()),
            false => Err(OptionsError::malformed("fieldSelector", "metadata.name does not match the requested name")),
        }
    }

    /// The version as a number; `None` if there is none, or 0.
    #[must_use]
    pub fn version(&self) -> Option<u64> {
        self.resource_version.parse().ok().filter(|version| *version > 0)
    }
}

impl OptionsError {
    pub(crate) fn malformed(parameter: &'static str, reason: impl fmt::Display) -> Self {
        Self::new(parameter, reason, OptionsErrorKind::Malformed)
    }

    fn unserved(parameter: &'static str, reason: &str) -> Self {
        Self::new(parameter, reason, OptionsErrorKind::Unserved)
    }

    fn new(parameter: impl Into<Cow<'static, str>>, reason: impl fmt::Display, kind: OptionsErrorKind) -> Self {
        Self { parameter: parameter.into(), reason: reason.to_string(), kind }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(query: &str) -> Result<ListOptions, OptionsError> {
        ListOptions::decode(&Query::parse(query).unwrap())
    }

    #[test]
    fn what_the_server_cannot_decode_is_malformed() {
        for (query, parameter) in [
            ("limit=x", "limit"),
            ("limit=", "limit"),
            ("limit=1_0", "limit"),
            ("limit=9223372036854775808", "limit"),
            ("timeoutSeconds=x", "timeoutSeconds"),
            ("timeoutSeconds=1.5", "timeoutSeconds"),
            ("fieldSelector=metadata.name!%3D%3Done", "fieldSelector"),
            ("labelSelector=a%3D%3D%3Db", "labelSelector"),
        ] {
            let error = decode(query).unwrap_err();
            assert_eq!((&*error.parameter, error.kind), (parameter, OptionsErrorKind::Malformed), "{query}");
        }
        assert_eq!(decode("limit=%2B5&limit=x").unwrap().limit, 5);
        assert_eq!(decode("timeoutSeconds=-1").unwrap().timeout_seconds, Some(-1));
        assert_eq!(decode("sendInitialEvents=fal%C5%BFe").unwrap().send_initial_events, Some(false));
    }

    #[test]
    fn options_contradict_each_other_where_the_server_says_so() {
        for ok in [
            "",
            "resourceVersion=0&resourceVersionMatch=NotOlderThan",
            "resourceVersion=7&resourceVersionMatch=Exact",
            "watch=1",
            "watch=1&sendInitialEvents=1&resourceVersionMatch=NotOlderThan",
            "watch=1&continue=x&resourceVersion=7",
        ] {
            assert_eq!(decode(ok).unwrap().validate(), Ok(()), "{ok}");
        }
        for bad in [
            "sendInitialEvents=1",
            "sendInitialEvents=false",
            "resourceVersionMatch=Exact",
            "resourceVersion=0&resourceVersionMatch=Exact",
            "resourceVersion=1&resourceVersionMatch=exact",
            "resourceVersion=1&resourceVersionMatch=Exact&continue=x",
            "watch=1&sendInitialEvents=1",
            "watch=1&continue=x&resourceVersion=0",
            "watch=1&resourceVersionMatch=NotOlderThan",
            "watch=1&sendInitialEvents=1&resourceVersionMatch=Exact",
            "watch=1&sendInitialEvents=1&resourceVersionMatch=NotOlderThan&continue=x",
        ] {
            assert_eq!(decode(bad).unwrap().validate().unwrap_err().kind, OptionsErrorKind::Contradiction, "{bad}");
        }
    }

    #[test]
    fn what_weir_reads_otherwise_than_the_server_it_does_not_read() {
        let check = |query: &str, is_watch| {
            decode(query).unwrap().check_meaning(is_watch).map_err(|error| error.parameter.into_owned())
        };
        for version in ["x", "-1", "%2B7", "18446744073709551616", "007", "1.5"] {
            assert_eq!(check(&format!("resourceVersion={version}"), false), Err("resourceVersion".into()), "{version}");
        }
        assert_eq!(check("continue=x", true), Err("continue".into()));
        for seconds in ["-1", "9223372036854775807", "9223372037"] {
            let query = format!("timeoutSeconds={seconds}");
            assert_eq!(
                (check(&query, true), check(&query, false)),
                (Err("timeoutSeconds".into()), Ok(())),
                "{seconds}"
            );
        }
        for query in ["timeoutSeconds=9223372036", "resourceVersion=0", "resourceVersion=18446744073709551615", ""] {
            assert_eq!(check(query, true), Ok(()), "{query}");
        }
    }

    #[test]
    fn a_parameter_that_is_not_known_here_may_select_objects() {
        let unknown = |query: &str| {
            let error = ListOptions::check_known(&Query::parse(query).unwrap()).err()?;
            assert_eq!(error.kind, OptionsErrorKind::Unknown);
            Some(error.parameter.into_owned())
        };
        let known = KNOWN.map(|key| format!("{key}=1")).join("&");
        assert_eq!(unknown(&known), None);
        assert_eq!(unknown(""), None);
        assert_eq!(unknown(&format!("{known}&shardSelector=x")).as_deref(), Some("shardSelector"));
        assert_eq!(unknown("Watch=1").as_deref(), Some("Watch"), "keys are case sensitive");
    }
}
