//! The host calls of filters, and their results.

mod weight;

use std::borrow::Cow;
use std::sync::Arc;

use weir_document::{Column, Document, Error, Path, Rows, StringSet, Value};
use weir_spec::InterfaceAddress;

use self::weight::is_long;
use super::lookup::Declared;

/// The maximum length of a recorded argument or result in bytes.
pub(super) const LONG: usize = 256;
/// The maximum length of a recorded result of `lengths` in rows.
pub(super) const ROWS: usize = 16;

/// One call from a filter to the host. Handles are numbered in the order of the filter call, so that equal host calls
/// of different filter calls mean the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum HostCall {
    /// A read of an object.
    Read(Target, Read),
    /// An edit of an object. Looked-up objects refuse it.
    Edit(Target, Edit),
    /// `cluster.get`.
    Get {
        /// The declared lookups of the resource.
        declared: Declared,
        /// None: a cluster-scoped object.
        namespace: Option<Box<str>>,
        /// The object's name.
        name: Box<str>,
    },
    /// `cluster.presence-of`.
    PresenceOf {
        /// The declared lookups of the resource.
        declared: Declared,
        /// None: a cluster-scoped object.
        namespace: Option<Box<str>>,
        /// The object's name.
        name: Box<str>,
    },
    /// `cluster.last-known`.
    LastKnown {
        /// The declared lookups of the resource.
        declared: Declared,
        /// None: a cluster-scoped object.
        namespace: Option<Box<str>>,
        /// The object's name.
        name: Box<str>,
    },
    /// `cluster.referent`.
    Referent {
        /// The declared lookups of the resource.
        declared: Declared,
        /// The object that refers to another one.
        from: Target,
        /// The path to the name of the other object.
        at: Path,
    },
    /// `cluster.find` or `cluster.find-last-known`.
    Find {
        /// The declared lookups of the resource.
        declared: Declared,
        /// None: all namespaces.
        namespace: Option<Box<str>>,
        /// A Kubernetes label selector.
        label_selector: Box<str>,
        /// Whether what was last found counts if nothing is found.
        last_known: bool,
    },
    /// A read of the n-th selection of the call.
    Select(u32, SelectionRead),
    /// `node.addresses`.
    Addresses,
}

/// The object that a host call reads or edits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Target {
    /// The filtered object.
    Object,
    /// The object that the n-th successful lookup of the call returned, from 0.
    Hit(u32),
}

/// A read of an object. See `wit/objects.wit`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Read {
    /// `api-version`.
    ApiVersion,
    /// `kind`.
    Kind,
    /// `namespace`.
    Namespace,
    /// `name`.
    Name,
    /// `label`.
    Label(Box<str>),
    /// `annotation`.
    Annotation(Box<str>),
    /// `get`.
    Get(Path),
    /// `text`.
    Text(Path),
    /// `one-of`.
    OneOf(Path, Box<[String]>),
    /// `lengths`.
    Lengths(Path),
    /// `column`.
    Column(Path),
    /// `keys`.
    Keys(Path),
    /// `fingerprint`.
    Fingerprint(Path),
    /// `to-json`. The path is `$`.
    Json(Path),
}

/// A read of a selection. See `wit/cluster.wit`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SelectionRead {
    /// `count`.
    Count,
    /// `at`.
    At(u32),
    /// `column`.
    Column(Path),
    /// `fingerprint`.
    Fingerprint(Path),
}

/// An edit of the filtered object. See `wit/objects.wit`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Edit {
    /// `set`.
    Set(Path, Value),
    /// `set-rows`.
    SetRows(Path, Box<[u8]>, Value),
    /// `remove`.
    Remove(Path),
    /// `remove-rows`.
    RemoveRows(Path, Box<[u8]>),
    /// `retain`.
    Retain(Path, Box<[u8]>),
    /// `retain-in`.
    RetainIn(Path, Arc<StringSet>),
    /// `append`.
    Append(Path, Value),
    /// `replace`.
    Replace(Box<str>),
}

/// The result of a host call.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Observed<'a> {
    /// There is no value or object.
    Nothing,
    /// A text.
    Text(Cow<'a, str>),
    /// The typed value of `get`.
    Value(Value),
    /// The position of `one-of`.
    Position(u32),
    /// The lengths of `lengths`.
    Lengths(Vec<u32>),
    /// The values of `column`.
    Column(Column),
    /// The names of `keys`.
    Keys(Vec<String>),
    /// A fingerprint, a count, or the number of values that an edit removed.
    Number(u64),
    /// The n-th lookup hit of the call.
    Hit(u32),
    /// The n-th selection of the call.
    Selection(u32),
    /// The node's addresses.
    Addresses(Arc<[InterfaceAddress]>),
    /// The edit succeeded.
    Done,
    /// The edit was refused for this reason.
    Refused(String),
}

impl HostCall {
    /// Returns whether it edits the filtered object.
    #[must_use]
    pub(crate) fn is_edit(&self) -> bool {
        matches!(self, Self::Edit(Target::Object, _))
    }

    /// Returns whether the filter may cache derived state by the result. After a fingerprint, an instance that has
    /// cached the state makes fewer host calls than one that has not.
    #[must_use]
    pub(crate) fn is_memo_key(&self) -> bool {
        matches!(self, Self::Read(_, Read::Fingerprint(_)) | Self::Select(_, SelectionRead::Fingerprint(_)))
    }

    /// Returns whether the trace cache replays it. It does not replay host calls with results that rarely repeat or are
    /// large.
    #[must_use]
    pub(crate) fn is_replayed(&self) -> bool {
        match self {
            Self::Read(Target::Object, Read::Fingerprint(_))
            | Self::Read(_, Read::Column(_) | Read::Keys(_) | Read::Json(_))
            | Self::Select(_, SelectionRead::Column(_))
            | Self::Addresses => false,
            Self::Edit(_, edit) => !edit.is_long(),
            _ => true,
        }
    }

    /// Returns the size of its string set in bytes. Everything else takes a few hundred bytes at most.
    #[must_use]
    pub(crate) fn weight(&self) -> usize {
        match self {
            Self::Edit(_, Edit::RetainIn(_, texts)) => texts.weight(),
            _ => 0,
        }
    }
}

impl Read {
    /// Returns the path that is read, or none for reads without a path. Reads of a looked-up object without a path
    /// return its identity, which never changes.
    pub(super) fn at(&self) -> Option<&Path> {
        match self {
            Self::ApiVersion | Self::Kind | Self::Namespace | Self::Name | Self::Label(_) | Self::Annotation(_) => None,
            Self::Get(at)
            | Self::Text(at)
            | Self::OneOf(at, _)
            | Self::Lengths(at)
            | Self::Column(at)
            | Self::Keys(at)
            | Self::Fingerprint(at)
            | Self::Json(at) => Some(at),
        }
    }

    /// Reads a document.
    ///
    /// # Errors
    /// If the bytes on the path of the read are malformed.
    pub(super) fn of<'a>(&self, document: &'a Document) -> Result<Observed<'a>, Error> {
        Ok(match self {
            Self::ApiVersion => Observed::Text(document.api_version()?),
            Self::Kind => Observed::Text(document.kind()?),
            Self::Namespace => Observed::text(document.namespace()?),
            Self::Name => Observed::Text(document.name()?),
            Self::Label(key) => Observed::text(document.label(key)?),
            Self::Annotation(key) => Observed::text(document.annotation(key)?),
            Self::Get(at) => document.get(at)?.map_or(Observed::Nothing, Observed::Value),
            Self::Text(at) => Observed::text(document.text(at)?),
            Self::OneOf(at, texts) => Observed::position(document.text(at)?.as_deref(), texts),
            Self::Lengths(at) => Observed::Lengths(document.lengths(at)?),
            Self::Column(at) => Observed::Column(document.column(at)?),
            Self::Keys(at) => Observed::Keys(document.keys(at)?),
            Self::Fingerprint(at) => Observed::Number(document.fingerprint(at)?),
            Self::Json(_) => Observed::Text(Cow::Owned(document.to_json()?)),
        })
    }
}

impl Edit {
    /// Edits a document. A refused edit is a result, not an error.
    pub(super) fn apply(&self, document: &mut Document) -> Observed<'static> {
        let done = |()| Observed::Done;
        let count = |count: u32| Observed::Number(count.into());
        let edited = match self {
            Self::Set(at, value) => document.set(at, value).map(done),
            Self::SetRows(at, rows, value) => document.set_rows(at, &Rows::from_bits(rows), value).map(done),
            Self::Remove(at) => document.remove(at).map(count),
            Self::RemoveRows(at, rows) => document.remove_rows(at, &Rows::from_bits(rows)).map(count),
            Self::Retain(at, keep) => document.retain(at, &Rows::from_bits(keep)).map(done),
            Self::RetainIn(at, texts) => document.retain_in(at, texts).map(done),
            Self::Append(at, value) => document.append(at, value).map(done),
            Self::Replace(json) => document.replace(json).map(done),
        };
        edited.unwrap_or_else(|error| Observed::Refused(error.to_string()))
    }
}

impl<'a> Observed<'a> {
    /// Creates the result of a read of an optional text.
    pub(super) fn text(text: Option<Cow<'a, str>>) -> Self {
        text.map_or(Self::Nothing, Self::Text)
    }

    /// Creates the result of `one-of`: the position of the text in `texts`.
    pub(super) fn position(text: Option<&str>, texts: &[String]) -> Self {
        let position = text.and_then(|text| texts.iter().position(|other| other == text));
        position.and_then(|position| u32::try_from(position).ok()).map_or(Self::Nothing, Self::Position)
    }

    /// Returns whether it is too long to be recorded.
    #[must_use]
    pub(crate) fn is_long(&self) -> bool {
        match self {
            Self::Text(text) => text.len() > LONG,
            Self::Refused(reason) => reason.len() > LONG,
            Self::Value(value) => is_long(value),
            Self::Lengths(rows) => rows.len() > ROWS,
            Self::Column(_) | Self::Keys(_) | Self::Addresses(_) => true,
            Self::Nothing | Self::Position(_) | Self::Number(_) | Self::Hit(_) | Self::Selection(_) | Self::Done => {
                false
            }
        }
    }

    pub(super) fn to_owned(&self) -> Observed<'static> {
        match self {
            Self::Nothing => Observed::Nothing,
            Self::Text(text) => Observed::Text(Cow::Owned(text.clone().into_owned())),
            Self::Value(value) => Observed::Value(value.clone()),
            Self::Position(position) => Observed::Position(*position),
            Self::Lengths(rows) => Observed::Lengths(rows.clone()),
            Self::Column(column) => Observed::Column(column.clone()),
            Self::Keys(keys) => Observed::Keys(keys.clone()),
            Self::Number(number) => Observed::Number(*number),
            Self::Hit(hit) => Observed::Hit(*hit),
            Self::Selection(selection) => Observed::Selection(*selection),
            Self::Addresses(addresses) => Observed::Addresses(addresses.clone()),
            Self::Done => Observed::Done,
            Self::Refused(reason) => Observed::Refused(reason.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> Path {
        Path::parse(text).unwrap()
    }

    #[test]
    fn edits_with_short_arguments_are_replayed_and_long_ones_are_not() {
        let edit = |edit| HostCall::Edit(Target::Object, edit).is_replayed();
        assert!(edit(Edit::Retain(path("a[*]"), Box::new([1]))));
        assert!(!edit(Edit::Retain(path("a[*]"), vec![1; LONG + 1].into())));
        assert!(edit(Edit::Set(path("a"), Value::Text("x".repeat(LONG)))));
        assert!(!edit(Edit::Set(path("a"), Value::Text("x".repeat(LONG + 1)))));
    }

    #[test]
    fn one_of_returns_the_position_or_nothing() {
        let one_of = Read::OneOf(path("metadata.name"), Box::new(["a".to_owned(), "b".to_owned()]));
        for (json, observed) in [
            (r#"{"metadata":{"name":"b"}}"#, Observed::Position(1)),
            (r#"{"metadata":{"name":"c"}}"#, Observed::Nothing),
            ("{}", Observed::Nothing),
        ] {
            assert_eq!(one_of.of(&Document::json(json.into())).unwrap(), observed);
        }
    }
}
