//! Programs: the settings of the module, as JSON.

use serde::{Deserialize, Serialize};

/// A program. It runs once for each object.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Program {
    /// The steps, in order.
    pub ops: Vec<Op>,
    /// Sleeps this many seconds in `configure`.
    #[serde(default)]
    pub configure_sleeps: u64,
}

/// One step. Target 0 is the filtered object; target n is the n-th lookup hit of the call, modulo their number. A step
/// without its target does nothing.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Op {
    /// Reads an object.
    Read(usize, Read),
    /// Edits an object.
    Edit(usize, Edit),
    /// `cluster.get` of a resource, in the object's own namespace or in none, by name.
    Get(String, bool, String),
    /// `cluster.referent` of a resource, from a target, by the name at a path.
    Referent(String, usize, String),
    /// `cluster.find` of a resource, in the object's own namespace or in all, by a label selector.
    Find(String, bool, String),
    /// Reads the last selection.
    Select(Select),
    /// Caches a result derived from the value at a path under the value's fingerprint.
    Memo(usize, String),
    /// Skips this many steps if the number is divisible by the other one.
    Skip(u64, usize),
    /// Hides the object and ends, if the number is divisible.
    Hide(u64),
    /// Returns an error, if the number is divisible.
    Fail(u64),
    /// Traps, if the number is divisible.
    Trap(u64),
    /// Writes a log line, if the number is divisible.
    Log(u64),
    /// Writes a log line in the first call of an instance.
    LogOnce,
    /// Reads the node's addresses.
    Addresses,
    /// Keeps the last hit after the call, and reads the one that an earlier call kept.
    KeepHit(Read),
    /// Mixes in the number of objects that the instance has seen, up to a limit. This makes the filter impure.
    Count(u64),
    /// Sleeps this many seconds.
    Sleep(u64),
    /// Prints this many lines, which contain characters that change the direction of text.
    Print(u64),
    /// Tries to connect to this port, to open sockets, to resolve a name and to open a file. It traps if any of them works.
    Reach(u16),
    /// `one-of` at a path, with a text of this many bytes.
    LongOneOf(String, usize),
    /// `cluster.find` of a resource, by a selector with this many values.
    LongFind(String, usize),
    /// `set` at a path, to a text of this many bytes.
    LongSet(String, usize),
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
    /// `text` at a path that depends on the number, out of this many paths.
    TextOf(u64),
    /// `one-of`.
    OneOf(String, Vec<String>),
    /// `column`.
    Column(String),
    /// `lengths`.
    Lengths(String),
    /// `keys`.
    Keys(String),
    /// `fingerprint`, compared with the previous one, as its value is arbitrary.
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
    /// Caches a result derived from the values at a path under their fingerprint.
    Memo(String),
}

/// An edit. Its values and rows depend on the number.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Edit {
    /// `set` to one of this many texts.
    Set(String, u64),
    /// `set-rows`, for this many rows.
    SetRows(String, u32),
    /// `remove`.
    Remove(String),
    /// `remove-rows`, for this many rows.
    RemoveRows(String, u32),
    /// `retain`, with as many rows as the column has.
    Retain(String),
    /// `retain-in`.
    RetainIn(String, Vec<String>),
    /// `append`.
    Append(String),
    /// `replace` with the result of `to-json`.
    Replace,
}
