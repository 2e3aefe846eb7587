//! Programs: the settings of the module, as JSON.

use serde::{Deserialize, Serialize};

/// A program; it runs once for each object.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Program {
    /// In order.
    pub ops: Vec<Op>,
}

/// One step. Targets are 0 for the filtered object, and n for the n-th lookup hit of the call, counted round; where there is
/// none the step does nothing.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Op {
    /// Reads an object.
    Read(usize, Read),
    /// Edits an object.
    Edit(usize, Edit),
    /// `cluster.get` of a resource, in the object's own namespace or in none, by name.
    Get(String, bool, String),
    /// `cluster.referent` of a resource, from a target, by the text at a path.
    Referent(String, usize, String),
    /// `cluster.find` of a resource, in the object's own namespace or in all, by a label selector.
    Find(String, bool, String),
    /// Reads the last selection.
    Select(Select),
    /// What derives from a value at a path is kept under its fingerprint.
    Memo(usize, String),
    /// Skips so many steps for one in so many numbers.
    Skip(u64, usize),
    /// Hides the object for one in so many numbers, and ends.
    Hide(u64),
    /// Returns an error for one in so many numbers.
    Fail(u64),
    /// Traps for one in so many numbers.
    Trap(u64),
    /// Writes a log line for one in so many numbers.
    Log(u64),
    /// Writes a log line in the first call of an instance.
    LogOnce,
    /// Reads the node's addresses.
    Addresses,
    /// Keeps the last hit beyond the call, and reads the one that an earlier call has kept.
    KeepHit(Read),
    /// Mixes in how many objects the instance has seen, up to so many: no pure function.
    Count(u64),
}

/// A read of an object.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Read {
    /// `api-version`.
    ApiVersion,
    /// `kind`.
    Kind,
    /// `namespace`.
    Namespace,
    /// `name`.
    Name,
    /// `label`.
    Label(String),
    /// `annotation`.
    Annotation(String),
    /// `get`.
    Get(String),
    /// `text`.
    Text(String),
    /// `text` at a path that depends on the number: one of so many.
    TextOf(u64),
    /// `one-of`.
    OneOf(String, Vec<String>),
    /// `column`.
    Column(String),
    /// `lengths`.
    Lengths(String),
    /// `keys`.
    Keys(String),
    /// `fingerprint`, which is compared with the last one: the number itself is any.
    Fingerprint(String),
    /// `to-json`.
    Json,
}

/// A read of a selection.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Select {
    /// `count`.
    Count,
    /// `at`.
    At(u32),
    /// `column`.
    Column(String),
    /// What derives from the values at a path is kept under their fingerprint.
    Memo(String),
}

/// An edit; values and rows derive from the number.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Edit {
    /// `set` to one of so many texts.
    Set(String, u64),
    /// `set-rows`, for so many rows.
    SetRows(String, u32),
    /// `remove`.
    Remove(String),
    /// `remove-rows`, for so many rows.
    RemoveRows(String, u32),
    /// `retain`, of as many rows as there are.
    Retain(String),
    /// `retain-in`.
    RetainIn(String, Vec<String>),
    /// `append`.
    Append(String),
    /// `replace` by what `to-json` returns.
    Replace,
}
