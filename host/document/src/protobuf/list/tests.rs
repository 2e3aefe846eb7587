//! The rules of splitting and joining protobuf lists, and both against a plain parse at random cuts.

use super::{
    super::{
        Envelope,
        wire::{Records, put_bytes, put_number, put_varint},
    },
    *,
};
use crate::list::Outcome;
use proptest::prelude::*;

/// All pieces of a body that comes in these chunks.
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

/// The items of a body, whatever the chunks; the pieces together are the body, and what is wrong is the same.
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

/// A body of these records.
fn body(records: &[&[u8]]) -> Vec<u8> {
    [MAGIC.as_slice(), &records.concat()].concat()
}

/// What leaves when the items of a list get these outcomes, in turn.
fn join(body: &[u8], chunk: usize, outcomes: &[Outcome], type_meta: Option<&TypeMeta>) -> Vec<u8> {
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
fn items_are_cut_wherever_the_chunks_end() {
    let long = [5; 200];
    assert_eq!(items(&list(&[b"a", b"", &long, b"ccc"]), 1000).unwrap(), [&b"a"[..], b"", &long, b"ccc"]);
    assert_eq!(items(&list(&[]), 1000).unwrap(), [""; 0]);
    assert_eq!(items(&body(&[&record(1, b""), &record(2, b"")]), 1000).unwrap(), [""; 0]);
}

#[test]
fn the_head_tells_what_the_items_are() {
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
fn records_that_are_no_items_stay_where_they_are() {
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
        let left = join(&came, size, &[Outcome::Keep, Outcome::Drop, Outcome::Keep], None);
        assert_eq!(left, Envelope::seal(&type_meta(), &expected));
    }
}

#[test]
fn joined_lists_are_what_a_list_of_the_outcomes_would_be() {
    let long = [5; 200];
    let items: [&[u8]; 4] = [b"a", b"bb", &long, b"d"];
    let came = list(&items);
    let outcome = |digit| match digit {
        0 => Outcome::Keep,
        1 => Outcome::Drop,
        _ => Outcome::Edit(Bytes::from_static(b"edited")),
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
fn another_type_meta_takes_the_place_of_the_one_that_came() {
    let other = TypeMeta { api_version: "meta.k8s.io/v1".into(), kind: "PartialObjectMetadataList".into() };
    let kept = [Outcome::Keep, Outcome::Drop];
    let left = Envelope::open(join(&list(&[b"a", b"b"]), 1000, &kept, Some(&other)).into()).unwrap();
    assert_eq!(left.type_meta(), &other);
    assert_eq!(left.object(), Envelope::open(list(&[b"a"])).unwrap().object());
    let untyped = body(&[&record(9, b"new"), &record(2, &record(2, b"a"))]);
    let left = join(&untyped, 1000, &kept, Some(&other));
    assert_eq!(Envelope::open(left.clone().into()).unwrap().type_meta(), &other);
    assert!(left.ends_with(&untyped[MAGIC.len()..]));
}

#[test]
fn what_is_kept_is_not_copied() {
    let came = list(&[b"a", b"bb", b"ccc"]);
    let mut splitter = ListSplitter::new();
    splitter.push(came.clone());
    let Some(Piece::Head { bytes: first }) = splitter.next().unwrap() else { panic!("no head") };
    let Some(Piece::Batch(batch)) = splitter.next().unwrap() else { panic!("no batch") };
    assert_eq!(batch.bytes.as_ptr(), came[first.len()..].as_ptr());
    let mut joiner = Joiner::new();
    assert_eq!(joiner.push(&batch, vec![Outcome::Keep; 3]).unwrap(), std::slice::from_ref(&batch.bytes));
    assert_eq!(joiner.head(&first, None).unwrap().as_ptr(), came.as_ptr());
    let one = [Outcome::Keep, Outcome::Drop, Outcome::Keep];
    assert_eq!(Joiner::new().push(&batch, one).unwrap().len(), 2);
}

#[test]
fn one_outcome_for_each_item_or_an_error() {
    let (pieces, _) = split([&list(&[b"a", b"b"])[..]], 1000).unwrap();
    let Some(Piece::Batch(batch)) = pieces.get(1) else { panic!("{pieces:?}") };
    for outcomes in [0, 1, 3] {
        let error = Joiner::new().push(batch, vec![Outcome::Keep; outcomes]).unwrap_err();
        assert_eq!(error, SplitError::Outcomes { items: 2, outcomes });
    }
}

#[test]
fn what_is_no_list_is_an_error() {
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
        // In the list: a group, no wire type, field 0, wrong wire types, lengths past the end, cut varints, twice.
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
        // After it.
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
fn what_is_over_the_limit_is_refused_before_it_is_waited_for() {
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
fn batches_are_bounded_and_pending_bytes_are_one_item() {
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

/// In quadratic time this would take hours.
#[test]
fn tiny_chunks_take_linear_time() {
    let item = vec![7; 1 << 20];
    assert_eq!(split(list(&[&item, b"a"]).chunks(1), 2 << 20).unwrap().0.len(), 4);
    let many = vec![&b"ab"[..]; 1 << 18];
    assert!(split(list(&many).chunks(1), 100).is_ok());
}

/// A list as a plain parse sees it: of a body that is there in one piece.
fn plainly(body: &[u8]) -> Result<Vec<Bytes>, Error> {
    let envelope = Envelope::open(Bytes::copy_from_slice(body))?;
    let list = envelope.object();
    let mut records = Records::new(&list, 0..list.len());
    let (mut items, mut metadata) = (Vec::new(), 0);
    while let Some(record) = records.next()? {
        if matches!(record.number, 1 | 2) {
            record.written_as(Wire::Bytes)?;
        }
        match record.number {
            1 => {
                metadata += 1;
                for (number, name) in [(2, "resourceVersion"), (3, "continue")] {
                    text(&list, record.value.clone(), number, name)?;
                }
            }
            2 => items.push(list.slice(record.value)),
            _ => {}
        }
    }
    if metadata > 1 { Err(Error::malformed(0, "metadata twice")) } else { Ok(items) }
}

/// A list with fields that nobody knows, lengths that are written longer than need be, and its items.
fn lists() -> impl Strategy<Value = (Vec<u8>, Vec<Vec<u8>>)> {
    let item = prop_oneof![
        prop::collection::vec(any::<u8>(), 0..40),
        prop::collection::vec(any::<u8>(), 100..300),
        Just(vec![0x12, 0x80])
    ];
    let between = prop_oneof![
        6 => Just(Vec::new()),
        1 => prop::collection::vec(any::<u8>(), 0..150).prop_map(|value| record(9, &value)),
        1 => any::<u64>().prop_map(|number| { let mut out = Vec::new(); put_number(1 << 20, number, &mut out); out }),
        1 => Just(vec![0x4d, 1, 2, 3, 4]),
    ];
    let items = prop::collection::vec((between, item, prop::bool::weighted(0.1)), 0..12);
    (items, any::<bool>(), any::<bool>()).prop_map(|(items, first, extra)| {
        let metadata = record(1, &[record(2, b"7"), record(3, b"t"), record(9, b"x")].concat());
        let mut list = if first { metadata.clone() } else { Vec::new() };
        for (between, item, long) in &items {
            list.extend_from_slice(between);
            if *long {
                list.extend([0x92, 0, item.len() as u8 | 0x80, (item.len() >> 7) as u8 | 0x80, 0]);
                list.extend_from_slice(item);
            } else {
                put_bytes(2, item, &mut list);
            }
        }
        if !first {
            list.extend_from_slice(&metadata);
        }
        let mut body = Envelope::seal(&type_meta(), &list).to_vec();
        if extra {
            put_varint(9 << 3, &mut body);
            body.push(1);
        }
        (body, items.into_iter().map(|(_, item, _)| item).collect())
    })
}

fn chunks<'a>(body: &'a [u8], cuts: &[prop::sample::Index]) -> Vec<&'a [u8]> {
    let mut cuts: Vec<_> = cuts.iter().map(|cut| cut.index(body.len() + 1)).chain([0, body.len()]).collect();
    cuts.sort_unstable();
    cuts.windows(2).map(|pair| &body[pair[0]..pair[1]]).collect()
}

fn cuts() -> impl Strategy<Value = Vec<prop::sample::Index>> {
    prop::collection::vec(any::<prop::sample::Index>(), 0..30)
}

/// The items and the bytes of all pieces.
fn taken(pieces: &[Piece]) -> (Vec<Bytes>, Vec<u8>) {
    let (mut items, mut all) = (Vec::new(), Vec::new());
    for piece in pieces {
        match piece {
            Piece::Head { bytes } | Piece::Tail { bytes } => all.extend_from_slice(bytes),
            Piece::Batch(batch) => {
                all.extend_from_slice(&batch.bytes);
                items.extend((0..batch.items.len()).map(|i| batch.item(i).unwrap()));
            }
        }
    }
    (items, all)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(1500) })]

    #[test]
    fn items_are_those_of_a_plain_parse_wherever_chunks_end((body, items) in lists(), cuts in cuts()) {
        let (found, all) = taken(&split(chunks(&body, &cuts), 1 << 20).unwrap().0);
        prop_assert_eq!(&found, &plainly(&body).unwrap());
        prop_assert_eq!(found, items);
        prop_assert_eq!(all, body);
    }

    #[test]
    fn joined_lists_hold_what_was_kept_and_edited(
        (body, items) in lists(),
        size in 1..400usize,
        fates in prop::collection::vec(0..4u8, 12),
    ) {
        let outcomes: Vec<_> = fates.iter().map(|fate| match fate {
            0 | 1 => Outcome::Keep,
            2 => Outcome::Edit(Bytes::from_static(&[7; 150])),
            _ => Outcome::Drop,
        }).collect();
        let left = join(&body, size, &outcomes, None);
        let expected: Vec<Vec<u8>> = items
            .into_iter()
            .zip(&fates)
            .filter(|(_, fate)| **fate < 3)
            .map(|(item, fate)| if *fate == 2 { vec![7; 150] } else { item })
            .collect();
        prop_assert_eq!(plainly(&left).unwrap(), expected);
        if fates.iter().all(|fate| *fate < 2) {
            prop_assert_eq!(left, body);
        }
    }

    #[test]
    fn damaged_lists_end_in_the_same_error_or_the_same_pieces(
        (mut body, _) in lists(),
        cuts in cuts(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<Option<u8>>()), 1..4),
    ) {
        for (at, byte) in damage {
            let at = at.index(body.len());
            match byte {
                Some(byte) => body[at] = byte,
                None => body.truncate(at.max(1)),
            }
        }
        let whole = split([&body[..]], 1 << 20);
        let cut = split(chunks(&body, &cuts), 1 << 20);
        match (whole, cut, plainly(&body)) {
            (Ok((whole, _)), Ok((cut, _)), Ok(plain)) => {
                prop_assert_eq!(&taken(&whole).0, &plain);
                prop_assert_eq!(taken(&cut).0, plain);
            }
            (Err(whole), Err(cut), plain) => {
                prop_assert_eq!(&whole, &cut);
                // A list must be there, and after what says what it is.
                let stricter = matches!(whole, SplitError::NoItems | SplitError::Malformed { .. });
                prop_assert!(plain.is_err() || stricter, "{:?}", whole);
            }
            (whole, cut, plain) => prop_assert!(false, "{:?} {:?} {:?}", whole, cut, plain),
        }
    }
}
