//! sonic-rs: values of the whole list, or each object's text, from which single fields are read and edited.

use std::hint::black_box;

use sonic_rs::{JsonValueMutTrait, JsonValueTrait, LazyValue, OwnedLazyValue, PointerNode, PointerTree, Value};

use super::{Failure, Fields, Found, Step};
use crate::lists::{Key, List};

pub(super) fn lazy(list: &List, body: Vec<u8>, step: Step) -> Result<Found, Failure> {
    // Checked once, as the engines do it that are given bytes: the iterator of a `str` does not check it again.
    let text = str::from_utf8(&body)?;
    let items = sonic_rs::get(text, ["items"])?;
    let array = items.as_raw_str();
    let start = array.as_ptr() as usize - text.as_ptr() as usize;
    let mut tree = PointerTree::new();
    tree.add_path(["metadata", "name"].map(PointerNode::from).iter());
    tree.add_path(["metadata", "namespace"].map(PointerNode::from).iter());
    tree.add_path(nodes(list.read).iter());
    let (mut fields, mut found) = (Fields::new(), Found::default());
    if step == Step::Encode {
        found.list.reserve(body.len() + body.len() / 8);
        found.list.extend_from_slice(&body[..=start]);
    }
    for item in sonic_rs::to_array_iter(array) {
        let item = item?;
        if step >= Step::Read {
            let read = sonic_rs::get_many(item.as_raw_str(), &tree)?;
            let text = |i: usize| read.get(i).and_then(Option::as_ref).and_then(LazyValue::as_str);
            fields.add([text(0), text(1), text(2)]);
        }
        if step >= Step::Edit {
            let mut object = OwnedLazyValue::from(item);
            let field = object.pointer_mut(list.edit).ok_or("no field to edit")?;
            *field = sonic_rs::to_lazyvalue(list.value)?;
            if step == Step::Encode {
                if found.objects > 0 {
                    found.list.push(b',');
                }
                sonic_rs::to_writer(&mut found.list, &object)?;
            }
            black_box(object);
        } else {
            black_box(item);
        }
        found.objects += 1;
    }
    if step == Step::Encode {
        found.list.extend_from_slice(&body[start + array.len() - 1..]);
    }
    found.fields = fields.sum();
    Ok(found)
}

pub(super) fn value(list: &List, body: Vec<u8>, step: Step) -> Result<Found, Failure> {
    let mut whole: Value = sonic_rs::from_slice(&body)?;
    let items = whole.get_mut("items").and_then(|items| items.as_array_mut()).ok_or("no items")?;
    let (read, mut fields) = (nodes(list.read), Fields::new());
    for item in items.iter_mut() {
        if step >= Step::Read {
            let metadata = item.get("metadata").ok_or("no metadata")?;
            let text = |name: &str| metadata.get(name).and_then(|text| text.as_str());
            fields.add([text("name"), text("namespace"), item.pointer(&read).and_then(|text| text.as_str())]);
        }
        if step >= Step::Edit {
            *item.pointer_mut(list.edit).ok_or("no field to edit")? = Value::from_static_str(list.value);
        }
        black_box(item);
    }
    let mut found = Found { objects: items.len(), fields: fields.sum(), list: Vec::new() };
    if step == Step::Encode {
        found.list.reserve(body.len() + body.len() / 8);
        sonic_rs::to_writer(&mut found.list, &whole)?;
    }
    Ok(found)
}

fn nodes(keys: &[Key]) -> Vec<PointerNode> {
    let node = |key: &Key| match key {
        Key::Member(name) => PointerNode::from(*name),
        Key::Element(index) => PointerNode::from(*index),
    };
    keys.iter().map(node).collect()
}
