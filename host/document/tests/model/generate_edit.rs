//! Random edits.

use super::{
    edit::{Edit, Kind},
    generate::{path, value},
};
use proptest::prelude::*;
use weir_document::Value;

/// Generates an edit.
pub(crate) fn edit() -> impl Strategy<Value = Edit> {
    let kind = prop::sample::select(
        &[Kind::Set, Kind::SetRows, Kind::Remove, Kind::RemoveRows, Kind::Retain, Kind::Append][..],
    );
    let new = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::Boolean),
        any::<i32>().prop_map(|number| Value::Number(number.to_string())),
        any::<String>().prop_map(Value::Text),
        value().prop_map(|tree| Value::Json(tree.to_string())),
    ];
    let bits = prop::collection::vec(any::<u8>(), 4);
    let raw = prop::bool::weighted(0.05);
    (kind, path(), bits, raw, new)
        .prop_map(|(kind, expression, bits, raw, value)| Edit::new(kind, expression, bits, raw, value))
}
