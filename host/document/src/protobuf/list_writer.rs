//! Writes the frame of a list whose items are in memory: everything of an enveloped list message but the items' bytes.
//!
//! Every list kind of Kubernetes has its metadata in field 1 and its items in field 2.

use super::envelope::{MAGIC, put_type_meta};
use super::wire::{put_bytes, put_varint, varint_length};
use crate::TypeMeta;

/// The tag of an item: field 2, length-delimited.
const ITEM_TAG: u8 = 2 << 3 | 2;

/// Writes the beginning of a list up to its first item. `type_meta` is the type of the list, `item_lengths` the lengths
/// of all its items.
pub fn list_head(
    type_meta: &TypeMeta,
    resource_version: &str,
    continue_token: &str,
    item_lengths: impl Iterator<Item = usize>,
) -> Vec<u8> {
    let mut meta = Vec::new();
    // Empty fields, too, as the API server does: selfLink, resourceVersion, continue.
    for (number, text) in [(1, ""), (2, resource_version), (3, continue_token)] {
        put_bytes(number, text.as_bytes(), &mut meta);
    }
    let mut head = Vec::new();
    put_bytes(1, &meta, &mut head);
    let items: usize = item_lengths.map(|length| 1 + varint_length(length as u64) + length).sum();
    let mut out = Vec::with_capacity(128);
    out.extend_from_slice(MAGIC);
    put_type_meta(type_meta, &mut out);
    // Field 2, length-delimited: the raw list.
    out.push(2 << 3 | 2);
    put_varint((head.len() + items) as u64, &mut out);
    out.extend_from_slice(&head);
    out
}

/// Writes what precedes an item of this length.
pub fn list_item(length: usize, out: &mut Vec<u8>) {
    out.push(ITEM_TAG);
    put_varint(length as u64, out);
}

/// Writes what follows the last item: both are empty in every body of the API server.
pub fn list_tail(out: &mut Vec<u8>) {
    put_bytes(3, &[], out);
    put_bytes(4, &[], out);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SplitError;
    use crate::list::{Piece, split};
    use crate::protobuf::ListSplitter;

    #[test]
    fn the_splitter_reads_the_list_back() {
        let type_meta = TypeMeta { api_version: "v1".into(), kind: "ServiceList".into() };
        let items: [&[u8]; 3] = [b"\x0a\x00", &[], &[7; 300]];
        let mut body = list_head(&type_meta, "42", "", items.iter().map(|item| item.len()));
        for item in items {
            list_item(item.len(), &mut body);
            body.extend_from_slice(item);
        }
        list_tail(&mut body);
        let mut read = Vec::new();
        let splitter = split(ListSplitter::new(), [body.into()], |piece| {
            if let Piece::Batch(batch) = piece {
                read.extend((0..batch.items.len()).filter_map(|index| batch.item(index)));
            }
            Ok::<_, SplitError>(())
        })
        .unwrap();
        assert_eq!(read, items);
        assert_eq!(splitter.meta().resource_version.as_deref(), Some("42"));
        assert_eq!(splitter.meta().kind.as_deref(), Some("ServiceList"));
    }
}
