//! How much host calls make the host keep, and which are too long to be recorded.

use weir_document::Value;

use super::{Edit, HostCall, LONG, Read};

/// What a lookup takes besides its texts.
const ARGUMENTS: usize = 256;

impl HostCall {
    /// Returns the size in bytes of the arguments that the host may keep until the end of the call: edits in the object,
    /// lookups as dependencies, and the texts of comparisons in traces.
    pub(in crate::wasm) fn kept(&self) -> usize {
        match self {
            Self::Edit(_, edit) => edit.kept(),
            Self::Read(_, read) => read.kept(),
            Self::Get { namespace, name, .. }
            | Self::PresenceOf { namespace, name, .. }
            | Self::LastKnown { namespace, name, .. } => ARGUMENTS + length(namespace.as_deref()) + name.len(),
            Self::Find { namespace, label_selector, .. } => {
                ARGUMENTS + length(namespace.as_deref()) + label_selector.len()
            }
            Self::Referent { .. } | Self::Select(..) => ARGUMENTS,
            Self::Addresses => 0,
        }
    }

    /// Returns whether its arguments are too long to be recorded.
    pub(in crate::wasm) fn is_long(&self) -> bool {
        match self {
            Self::Read(_, read) => read.kept() > LONG,
            Self::Get { .. } | Self::PresenceOf { .. } | Self::LastKnown { .. } | Self::Find { .. } => {
                self.kept() > ARGUMENTS + LONG
            }
            _ => false,
        }
    }
}

impl Read {
    /// The size of the texts that it compares with.
    fn kept(&self) -> usize {
        match self {
            Self::Label(key) | Self::Annotation(key) => key.len(),
            Self::OneOf(_, texts) => texts.iter().map(|text| size_of::<String>() + text.len()).sum(),
            _ => 0,
        }
    }
}

impl Edit {
    /// The size of what it puts into the object.
    fn kept(&self) -> usize {
        match self {
            Self::Set(_, value) | Self::Append(_, value) => weight(value),
            Self::SetRows(_, rows, value) => rows.len().saturating_mul(weight(value)),
            Self::RemoveRows(_, rows) | Self::Retain(_, rows) => rows.len(),
            Self::Replace(json) => json.len(),
            Self::Remove(_) | Self::RetainIn(..) => 0,
        }
    }

    pub(super) fn is_long(&self) -> bool {
        match self {
            Self::Set(_, value) | Self::Append(_, value) => is_long(value),
            Self::SetRows(_, rows, value) => rows.len() > LONG || is_long(value),
            Self::RemoveRows(_, rows) | Self::Retain(_, rows) => rows.len() > LONG,
            Self::Replace(json) => json.len() > LONG,
            Self::Remove(_) | Self::RetainIn(..) => false,
        }
    }
}

pub(super) fn is_long(value: &Value) -> bool {
    weight(value) > LONG
}

fn weight(value: &Value) -> usize {
    match value {
        Value::Number(text) | Value::Text(text) | Value::Json(text) => text.len(),
        Value::Null | Value::Boolean(_) => 0,
    }
}

fn length(text: Option<&str>) -> usize {
    text.map_or(0, str::len)
}
