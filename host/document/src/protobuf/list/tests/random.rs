//! Compares splitting and joining with a plain parser, on random lists at random chunk boundaries.

use proptest::prelude::*;

use super::*;

/// Parses the list of a complete body in a plain way.
fn plainly(body: &[u8]) -> Result<Vec<Bytes>, Error> {
    let envelope = Envelope::open(Bytes::copy_from_slice(body))?;
    let list = envelope.object();
    let mut records = Records::new(&list, 0..list.len());
    let (mut items, mut metadata) = (Vec::new(), 0);
    while let Some(record) = records.next()? {
        if matches!(record.number, 1 | 2) {
            record.written_as(WireType::Bytes)?;
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

/// Generates a list with unknown fields and overlong lengths, and its items.
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

/// Returns the items and the bytes of all pieces.
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
    fn items_equal_those_of_a_plain_parser_at_any_chunk_boundaries((body, items) in lists(), cuts in cuts()) {
        let (found, all) = taken(&split(chunks(&body, &cuts), 1 << 20).unwrap().0);
        prop_assert_eq!(&found, &plainly(&body).unwrap());
        prop_assert_eq!(found, items);
        prop_assert_eq!(all, body);
    }

    #[test]
    fn a_joined_list_contains_the_kept_and_edited_items(
        (body, items) in lists(),
        size in 1..400usize,
        fates in prop::collection::vec(0..4u8, 12),
    ) {
        let outcomes: Vec<_> = fates.iter().map(|fate| match fate {
            0 | 1 => ItemOutcome::Keep,
            2 => ItemOutcome::Edit(Bytes::from_static(&[7; 150])),
            _ => ItemOutcome::Drop,
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
                // The splitter requires the list, after its type.
                let stricter = matches!(whole, SplitError::NoItems | SplitError::Malformed { .. });
                prop_assert!(plain.is_err() || stricter, "{:?}", whole);
            }
            (whole, cut, plain) => prop_assert!(false, "{:?} {:?} {:?}", whole, cut, plain),
        }
    }
}
