//! simd-json, which parses in place: into a tape, which is read only, or into values that borrow the strings.

use std::hint::black_box;

use simd_json::{BorrowedValue, prelude::*, tape};

use super::{Failure, Fields, Found, Step};
use crate::lists::{Key, List};

pub(super) fn tape(list: &List, mut body: Vec<u8>, step: Step) -> Result<Found, Failure> {
    let tape = simd_json::to_tape(&mut body)?;
    let items = tape.as_value().get("items").ok_or("no items")?.as_array().ok_or("no array")?;
    let (mut fields, mut objects) = (Fields::new(), 0);
    for item in items.iter() {
        objects += 1;
        if step >= Step::Read {
            let metadata = item.get("metadata").ok_or("no metadata")?;
            let text = |name: &str| metadata.get(name).and_then(|text| text.into_string());
            fields.add([text("name"), text("namespace"), at_tape(item, list.read)]);
        }
        black_box(item);
    }
    Ok(Found { objects, fields: fields.sum(), list: Vec::new() })
}

fn at_tape<'input>(object: tape::Value<'_, 'input>, keys: &[Key]) -> Option<&'input str> {
    let mut value = object;
    for key in keys {
        value = match key {
            Key::Member(name) => value.get(*name)?,
            Key::Element(index) => value.get_idx(*index)?,
        };
    }
    value.into_string()
}

pub(super) fn value(list: &List, mut body: Vec<u8>, step: Step) -> Result<Found, Failure> {
    let length = body.len();
    let mut whole = simd_json::to_borrowed_value(&mut body)?;
    let items = whole.get_mut("items").and_then(|items| items.as_array_mut()).ok_or("no items")?;
    let mut fields = Fields::new();
    for item in items.iter_mut() {
        if step >= Step::Read {
            let metadata = item.get("metadata").ok_or("no metadata")?;
            fields.add([metadata.get_str("name"), metadata.get_str("namespace"), at(item, list.read)]);
        }
        if step >= Step::Edit {
            let mut field = &mut *item;
            for name in list.edit {
                field = field.get_mut(*name).ok_or("no field to edit")?;
            }
            *field = BorrowedValue::from(list.value);
        }
        black_box(item);
    }
    let mut found = Found { objects: items.len(), fields: fields.sum(), list: Vec::new() };
    if step == Step::Encode {
        found.list.reserve(length + length / 8);
        whole.write(&mut found.list)?;
    }
    Ok(found)
}

fn at<'a>(object: &'a BorrowedValue<'_>, keys: &[Key]) -> Option<&'a str> {
    let mut value = object;
    for key in keys {
        value = match key {
            Key::Member(name) => value.get(*name)?,
            Key::Element(index) => value.get_idx(*index)?,
        };
    }
    value.as_str()
}
