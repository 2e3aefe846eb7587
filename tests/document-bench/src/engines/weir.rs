//! weir-document: object after object, as the list is split.

use std::hint::black_box;

use bytes::Bytes;
use weir_document::{
    Path, Value,
    json::{Joiner, ListSplitter},
    list::{ItemOutcome, Piece, split},
};

use super::{Failure, Fields, Found, Step};
use crate::lists::{Key, List};

pub(super) fn run(list: &List, body: Vec<u8>, step: Step) -> Result<Found, Failure> {
    let (read, edit) = (Path::parse(&read_path(list.read))?, Path::parse(&list.edit.join("."))?);
    let value = Value::Text(list.value.to_owned());
    let (mut fields, mut joiner) = (Fields::new(), Joiner::new());
    let mut found = Found::default();
    if step == Step::Encode {
        found.list.reserve(body.len() + body.len() / 8);
    }
    split(ListSplitter::new(), [Bytes::from(body)], |piece| {
        let batch = match piece {
            Piece::Head { bytes } | Piece::Tail { bytes } => {
                if step == Step::Encode {
                    found.list.extend_from_slice(&bytes);
                }
                return Ok(());
            }
            Piece::Batch(batch) => batch,
        };
        let mut outcomes = Vec::with_capacity(batch.items.len());
        for i in 0..batch.items.len() {
            let mut document = batch.json(i).ok_or("no item")?;
            found.objects += 1;
            if step >= Step::Read {
                let (name, namespace, third) = (document.name()?, document.namespace()?, document.text(&read)?);
                fields.add([Some(&*name), namespace.as_deref(), third.as_deref()]);
            }
            if step >= Step::Edit {
                document.set(&edit, &value)?;
            }
            if step == Step::Encode {
                outcomes.push(ItemOutcome::Edit(document.bytes().clone()));
            }
            black_box(document);
        }
        if step == Step::Encode {
            joiner.push(&batch, outcomes)?.iter().for_each(|part| found.list.extend_from_slice(part));
        }
        Ok::<_, Failure>(())
    })?;
    found.fields = fields.sum();
    Ok(found)
}

/// `endpoints[0].nodeName`
fn read_path(keys: &[Key]) -> String {
    let mut path = String::new();
    for key in keys {
        match key {
            Key::Member(name) if path.is_empty() => path.push_str(name),
            Key::Member(name) => path.push_str(&format!(".{name}")),
            Key::Element(index) => path.push_str(&format!("[{index}]")),
        }
    }
    path
}
