//! The rules of splitting and joining protobuf lists.

use super::{
    super::{
        Envelope,
        wire::{Records, put_bytes, put_number, put_varint},
    },
    *,
};
use crate::list::ItemOutcome;

mod random;

/// Returns all pieces of a body in these chunks.
fn split<'a>(
    chunks: impl IntoIterator<Item = &'a [u8]>,
    limit: usize,
) -> Result<(Vec<Piece>, ListSplitter), SplitError> {
    let mut pieces = Vec::new();
    let chunks = chunks.into_iter().map(Bytes::copy_from_slice);
    let mut splitter = crate::list::split(ListSplitter::with_limit(limit), chunks, |piece| {
        pieces.push(piece);
        Ok::<_, SplitError>(())
    })?;
    assert_eq!(splitter.next()?, None);
    Ok((pieces, splitter))
}

/// Returns the items of a body. Checks that items and errors are the same for all chunk sizes, and that the pieces are
/// the body.
fn items(body: &[u8], limit: usize) -> Result<Vec<Bytes>, SplitError> {
    let mut results = [1, 2, 3, 7, 64, body.len().max(1)].into_iter().map(|size| {
        let (pieces, _) = split(body.chunks(size), limit)?;
        let mut items = Vec::new();
        let mut all = Vec::new();
        for piece in pieces {
            match piece {
                Piece::Head { bytes } | Piece::Tail { bytes } => all.extend_from_slice(&bytes),
                Piece::Batch(batch) => {
                    assert!(!batch.items.is_empty());
                    all.extend_from_slice(&batch.bytes);
                    items.extend((0..batch.items.len()).map(|i| batch.item(i).unwrap()));
                }
            }
        }
        assert_eq!(all, body);
        Ok(items)
    });
    let first = results.next().unwrap();
    results.for_each(|result| assert_eq!(result, first));
    first
}

fn type_meta() -> TypeMeta {
    TypeMeta { api_version: "v1".into(), kind: "ServiceList".into() }
}

fn record(number: u32, value: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    put_bytes(number, value, &mut out);
    out
}

fn list(items: &[&[u8]]) -> Bytes {
    let mut list = record(1, &[record(2, b"77"), record(3, b"")].concat());
    items.iter().for_each(|item| put_bytes(2, item, &mut list));
    Envelope::seal(&type_meta(), &list)
}

/// Builds a body from these records.
fn body(records: &[&[u8]]) -> Vec<u8> {
    [MAGIC.as_slice(), &records.concat()].concat()
}

/// Joins a list with these outcomes, in turn.
fn join(body: &[u8], chunk: usize, outcomes: &[ItemOutcome], type_meta: Option<&TypeMeta>) -> Vec<u8> {
    let mut outcomes = outcomes.iter().cloned();
    let (mut joiner, mut first, mut rest) = (Joiner::new(), Bytes::new(), Vec::new());
    for piece in split(body.chunks(chunk), 1 << 20).unwrap().0 {
        match piece {
            Piece::Head { bytes } => first = bytes,
            Piece::Tail { bytes } => rest.extend_from_slice(&bytes),
            Piece::Batch(batch) => {
                let outcomes = outcomes.by_ref().take(batch.items.len());
                joiner.push(&batch, outcomes).unwrap().iter().for_each(|bytes| rest.extend_from_slice(bytes));
            }
        }
    }
    [joiner.head(&first, type_meta).unwrap().to_vec(), rest].concat()
}

#[test]
fn items_are_the_same_at_any_chunk_boundaries() {
    let long = [5; 200];
    assert_eq!(items(&list(&[b"a", b"", &long, b"ccc"]), 1000).unwrap(), [&b"a"[..], b"", &long, b"ccc"]);
    assert_eq!(items(&list(&[]), 1000).unwrap(), [""; 0]);
    assert_eq!(items(&body(&[&record(1, b""), &record(2, b"")]), 1000).unwrap(), [""; 0]);
}

#[test]
fn the_type_of_the_items_is_known_after_the_head() {
    for size in [1, 10, 1000] {
        let mut splitter = ListSplitter::new();
        for chunk in list(&[b"a"]).chunks(size) {
            splitter.push(Bytes::copy_from_slice(chunk));
            if let Some(piece) = splitter.next().unwrap() {
                assert!(matches!(piece, Piece::Head { .. }));
                break;
            }
        }
        let service = TypeMeta { api_version: "v1".into(), kind: "Service".into() };
        assert_eq!(splitter.item_type(), Some(service));
        let text = |text: &str| Some(text.to_owned());
        let expected = ListMeta {
            api_version: text("v1"),
            kind: text("ServiceList"),
            resource_version: text("77"),
            continue_token: None,
        };
        assert_eq!(splitter.meta(), &expected);
    }
    let none = Envelope::seal(&TypeMeta { api_version: "v1".into(), kind: "Status".into() }, b"");
    assert_eq!(split([&none[..]], 100).unwrap().1.item_type(), None);
}

#[test]
fn other_records_keep_their_positions() {
    let mut list = record(9, b"before");
    let mut expected = list.clone();
    for (i, item) in [b"a", b"b", b"c"].iter().enumerate() {
        put_bytes(2, *item, &mut list);
        if i != 1 {
            put_bytes(2, *item, &mut expected);
        }
        put_number(7, 300, &mut list);
        put_number(7, 300, &mut expected);
    }
    let metadata = record(1, &record(3, b"token"));
    list.extend_from_slice(&metadata);
    expected.extend_from_slice(&metadata);
    let came = Envelope::seal(&type_meta(), &list);
    assert_eq!(items(&came, 1000).unwrap(), ["a", "b", "c"]);
    assert_eq!(split([&came[..]], 1000).unwrap().1.meta().continue_token.as_deref(), Some("token"));
    for size in [1, 5, 1000] {
        let left = join(&came, size, &[ItemOutcome::Keep, ItemOutcome::Drop, ItemOutcome::Keep], None);
        assert_eq!(left, Envelope::seal(&type_meta(), &expected));
    }
}

#[test]
fn a_joined_list_equals_a_list_of_the_outcomes() {
    let long = [5; 200];
    let items: [&[u8]; 4] = [b"a", b"bb", &long, b"d"];
    let came = list(&items);
    let outcome = |digit| match digit {
        0 => ItemOutcome::Keep,
        1 => ItemOutcome::Drop,
        _ => ItemOutcome::Edit(Bytes::from_static(b"edited")),
    };
    for case in 0..81 {
        let digits = [case % 3, case / 3 % 3, case / 9 % 3, case / 27];
        let left: Vec<&[u8]> = items
            .iter()
            .zip(digits)
            .filter(|(_, digit)| *digit != 1)
            .map(|(item, digit)| if digit == 0 { *item } else { b"edited" })
            .collect();
        for size in [1, 100, 1000] {
            assert_eq!(join(&came, size, &digits.map(outcome), None), list(&left), "{case}");
        }
    }
}

#[test]
fn a_new_type_meta_replaces_the_original_one() {
    let other = TypeMeta { api_version: "meta.k8s.io/v1".into(), kind: "PartialObjectMetadataList".into() };
    let kept = [ItemOutcome::Keep, ItemOutcome::Drop];
    let left = Envelope::open(join(&list(&[b"a", b"b"]), 1000, &kept, Some(&other)).into()).unwrap();
    assert_eq!(left.type_meta(), &other);
    assert_eq!(left.object(), Envelope::open(list(&[b"a"])).unwrap().object());
    let untyped = body(&[&record(9, b"new"), &record(2, &record(2, b"a"))]);
    let left = join(&untyped, 1000, &kept, Some(&other));
    assert_eq!(Envelope::open(left.clone().into()).unwrap().type_meta(), &other);
    assert!(left.ends_with(&untyped[MAGIC.len()..]));
}

#[test]
fn kept_items_are_not_copied() {
    let came = list(&[b"a", b"bb", b"ccc"]);
    let mut splitter = ListSplitter::new();
    splitter.push(came.clone());
    let Some(Piece::Head { bytes: first }) = splitter.next().unwrap() else { panic!("no head") };
    let Some(Piece::Batch(batch)) = splitter.next().unwrap() else { panic!("no batch") };
    assert_eq!(batch.bytes.as_ptr(), came[first.len()..].as_ptr());
    let mut joiner = Joiner::new();
    assert_eq!(joiner.push(&batch, vec![ItemOutcome::Keep; 3]).unwrap(), std::slice::from_ref(&batch.bytes));
    assert_eq!(joiner.head(&first, None).unwrap().as_ptr(), came.as_ptr());
    let one = [ItemOutcome::Keep, ItemOutcome::Drop, ItemOutcome::Keep];
    assert_eq!(Joiner::new().push(&batch, one).unwrap().len(), 2);
}

#[test]
fn one_outcome_for_each_item_or_an_error() {
    let (pieces, _) = split([&list(&[b"a", b"b"])[..]], 1000).unwrap();
    let Some(Piece::Batch(batch)) = pieces.get(1) else { panic!("{pieces:?}") };
    for outcomes in [0, 1, 3] {
        let error = Joiner::new().push(batch, vec![ItemOutcome::Keep; outcomes]).unwrap_err();
        assert_eq!(error, SplitError::Outcomes { items: 2, outcomes });
    }
}

#[test]
fn an_invalid_list_is_an_error() {
    let names = record(1, &record(1, b"v1"));
    for bad in [
        &b""[..],
        b"{}",
        b"k8",
        b"k8s\x01",
        &body(&[]),
        &body(&[&names]),
        &body(&[&names, &names, &record(2, b"")]),
        &body(&[&record(2, b""), &names]),
        &body(&[&record(2, b""), &record(2, b"")]),
        &body(&[&record(3, b"gzip"), &record(2, b"")]),
        &body(&[&record(2, b""), &record(3, b"gzip")]),
        &body(&[&record(2, b""), &record(3, b""), &record(3, b"")]),
        &body(&[&[0x10, 1]]),
        &body(&[&record(1, &[0xff]), &record(2, b"")]),
        &body(&[&record(1, &record(2, b"\xff")), &record(2, b"")]),
        // In the list: a group, no wire type, field 0, wrong wire types, lengths past the end, truncated varints,
        // repeated records.
        &body(&[&record(2, &[0x0b])]),
        &body(&[&record(2, &[0x0c])]),
        &body(&[&record(2, &[0x0e, 1])]),
        &body(&[&record(2, &[0x02, 0])]),
        &body(&[&record(2, &[0x10, 1])]),
        &body(&[&record(2, &[0x08, 1])]),
        &body(&[&record(2, &[0x12, 2, 0])]),
        &body(&[&record(2, &[0x12])]),
        &body(&[&record(2, &[0x12, 0x80])]),
        &body(&[&record(2, &[0x12, 0, 0x48, 0x80])]),
        &body(&[&record(2, &[0x4d, 1, 2, 3])]),
        &body(&[&record(2, &[0x12, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1])]),
        &body(&[&record(2, &[0x12, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1])]),
        &body(&[&record(2, &[record(1, b""), record(1, b"")].concat())]),
        &body(&[&record(2, &record(1, &[0x12, 9]))]),
        &body(&[&[0x12, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1]]),
        // After the list.
        &body(&[&record(2, b""), &[0x4b]]),
        &body(&[&record(2, b""), &[0x4a, 1]]),
    ] {
        assert!(items(bad, 1000).is_err(), "{bad:x?}");
    }
    assert_eq!(items(&body(&[&names]), 1000), Err(SplitError::NoItems));
    assert_eq!(items(&body(&[&record(2, b""), &record(2, b"")]), 1000), Err(SplitError::Repeated { key: "raw" }));
}

#[test]
fn a_body_that_is_cut_off_is_an_error_unless_it_is_whole_records_after_the_list() {
    let whole = list(&[b"a", b"bb", b"ccc"]);
    let raw = whole.len() - 4;
    for end in 0..whole.len() {
        match items(&whole[..end], 1000) {
            Ok(items) => assert!(items.len() == 3 && (end == raw || end == raw + 2), "{end}"),
            Err(error) => assert!(matches!(error, SplitError::Truncated | SplitError::NoItems), "{end} {error}"),
        }
    }
}

#[test]
fn a_record_over_the_limit_is_refused_before_its_bytes_arrive() {
    let large = SplitError::TooLarge { limit: 90 };
    for bytes in [
        body(&[&record(1, &record(9, &[7; 100])), &record(2, b"")]),
        body(&[&record(2, &record(2, &[7; 91]))]),
        body(&[&record(2, &record(1, &record(9, &[7; 100])))]),
        body(&[&record(2, &[record(9, &[7; 50]), record(9, &[7; 50])].concat())]),
        body(&[&record(2, &[record(2, b""), record(9, &[7; 50]), record(9, &[7; 50])].concat())]),
        body(&[&record(2, b""), &record(9, &[7; 50]), &record(9, &[7; 50])]),
    ] {
        assert!(items(&bytes, 1000).is_ok());
        assert_eq!(items(&bytes, 90), Err(large.clone()));
    }
    let mut splitter = ListSplitter::with_limit(90);
    splitter.push(body(&[&[0x12, 0xff, 0xff, 0x7f, 0x12, 91]]));
    assert!(matches!(splitter.next(), Ok(Some(Piece::Head { .. }))));
    assert_eq!(splitter.next(), Err(large));
    assert!(items(&list(&[&[7; 90][..]; 50]), 90).is_ok());
}

#[test]
fn batches_are_bounded_and_at_most_one_item_is_pending() {
    let body = list(&[&[7; 1000][..]; 1000]);
    let (pieces, _) = split([&body[..]], 2000).unwrap();
    let sizes = pieces.iter().filter_map(|piece| match piece {
        Piece::Batch(batch) => Some(batch.bytes.len()),
        _ => None,
    });
    let sizes: Vec<_> = sizes.collect();
    assert!(sizes.len() > 8);
    assert!(sizes.iter().all(|size| *size < 128 << 10), "{sizes:?}");
    let mut splitter = ListSplitter::new();
    for chunk in body.chunks(500) {
        splitter.push(Bytes::copy_from_slice(chunk));
        while splitter.next().unwrap().is_some() {}
        assert!(splitter.pending.bytes().len() <= 1003 + 500);
    }
}

/// A quadratic algorithm would take hours here.
#[test]
fn tiny_chunks_take_linear_time() {
    let item = vec![7; 1 << 20];
    assert_eq!(split(list(&[&item, b"a"]).chunks(1), 2 << 20).unwrap().0.len(), 4);
    let many = vec![&b"ab"[..]; 1 << 18];
    assert!(split(list(&many).chunks(1), 100).is_ok());
}
