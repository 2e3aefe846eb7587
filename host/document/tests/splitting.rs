//! Compares splitting with parsing the whole body: random lists and watch streams at random chunk boundaries, joined
//! with random outcomes.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a panic in a test helper fails the test")]

use bytes::Bytes;
use proptest::prelude::*;
use serde_json::Value as Tree;
use weir_document::{
    Document, Path, Rows, SplitError,
    json::{EventType, FrameSplitter, Joiner, ListSplitter, event},
    list::{ItemOutcome, Piece, split},
};

#[path = "model/generate.rs"]
#[expect(dead_code, reason = "the other test uses the paths")]
mod generate;

/// Cuts a body at these positions.
fn chunks<'a>(body: &'a [u8], cuts: &[prop::sample::Index]) -> Vec<&'a [u8]> {
    let mut cuts: Vec<_> = cuts.iter().map(|cut| cut.index(body.len() + 1)).chain([0, body.len()]).collect();
    cuts.sort_unstable();
    cuts.windows(2).map(|pair| &body[pair[0]..pair[1]]).collect()
}

fn pieces(chunks: &[&[u8]]) -> Result<Vec<Piece>, SplitError> {
    let mut pieces = Vec::new();
    split(ListSplitter::new(), chunks.iter().map(|chunk| Bytes::copy_from_slice(chunk)), |piece| {
        pieces.push(piece);
        Ok::<_, SplitError>(())
    })?;
    Ok(pieces)
}

/// Reads with the marks from splitting return the same as reads of the bytes alone.
fn check_reads(seen: &Document) {
    let plain = Document::json(seen.bytes().clone());
    let root = Path::parse("$").unwrap();
    assert_eq!(seen.keys(&root), plain.keys(&root));
    assert_eq!(seen.to_json(), plain.to_json());
    for path in
        ["a", "['metadata'].b", "b[*]", "c[*].a", "a[*][*].b", "['x.io/y'][1]"].map(|path| Path::parse(path).unwrap())
    {
        let (read, expected) = (seen.column(&path), plain.column(&path));
        assert_eq!(read, expected, "{path:?}");
        assert_eq!(seen.lengths(&path), plain.lengths(&path), "{path:?}");
        let keep: Rows<'_> = (0..expected.map_or(0, |column| column.len())).map(|row| row % 2 == 0).collect();
        let (mut seen, mut plain) = (seen.clone(), plain.clone());
        assert_eq!(seen.retain(&path, &keep), plain.retain(&path, &keep), "{path:?}");
        assert_eq!(seen.bytes(), plain.bytes(), "{path:?}");
    }
}

/// Generates a list with its members in random order, and its items.
fn list() -> impl Strategy<Value = (String, Vec<Tree>)> {
    let items = prop::collection::vec(generate::object(), 0..12);
    (items, generate::object(), any::<u64>(), 0..3usize).prop_map(|(items, other, seed, place)| {
        let mut members = vec![("kind".to_owned(), Tree::from("List")), ("other".to_owned(), other)];
        members.insert(place, ("items".to_owned(), Tree::from(items.clone())));
        (generate::spell(&Tree::Object(members.into_iter().collect()), seed), items)
    })
}

fn cuts() -> impl Strategy<Value = Vec<prop::sample::Index>> {
    prop::collection::vec(any::<prop::sample::Index>(), 0..30)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(1500) })]

    #[test]
    fn items_equal_those_of_a_whole_parse_at_any_chunk_boundaries((body, items) in list(), cuts in cuts()) {
        let mut all = Vec::new();
        let mut found = Vec::new();
        for piece in pieces(&chunks(body.as_bytes(), &cuts)).unwrap() {
            match piece {
                Piece::Head { bytes } | Piece::Tail { bytes } => all.extend_from_slice(&bytes),
                Piece::Batch(batch) => {
                    for i in 0..batch.items.len() {
                        found.push(serde_json::from_slice::<Tree>(&batch.item(i).unwrap()).unwrap());
                        check_reads(&batch.json(i).unwrap());
                    }
                    all.extend_from_slice(&batch.bytes);
                }
            }
        }
        prop_assert_eq!(found, items);
        prop_assert_eq!(all, body.into_bytes());
    }

    #[test]
    fn a_joined_list_contains_the_kept_and_edited_items(
        (body, items) in list(),
        cuts in cuts(),
        fates in prop::collection::vec(0..4u8, 12),
    ) {
        let whole: Tree = serde_json::from_str(&body).unwrap();
        let mut fate = fates.iter();
        let mut joiner = Joiner::new();
        let mut out = Vec::new();
        for piece in pieces(&chunks(body.as_bytes(), &cuts)).unwrap() {
            match piece {
                Piece::Head { bytes } | Piece::Tail { bytes } => out.extend_from_slice(&bytes),
                Piece::Batch(batch) => {
                    let outcomes = fate.by_ref().take(batch.items.len()).map(|fate| match fate {
                        0 | 1 => ItemOutcome::Keep,
                        2 => ItemOutcome::Edit(Bytes::from_static(b"{\"edited\":true}")),
                        _ => ItemOutcome::Drop,
                    });
                    joiner.push(&batch, outcomes).unwrap().iter().for_each(|bytes| out.extend_from_slice(bytes));
                }
            }
        }
        let mut expected = whole;
        expected["items"] = items
            .into_iter()
            .zip(&fates)
            .filter(|(_, fate)| **fate < 3)
            .map(|(item, fate)| if *fate == 2 { serde_json::json!({"edited": true}) } else { item })
            .collect();
        prop_assert_eq!(serde_json::from_slice::<Tree>(&out).unwrap(), expected);
        if fates.iter().all(|fate| *fate < 2) {
            prop_assert_eq!(out, body.into_bytes());
        }
    }

    #[test]
    fn damaged_lists_end_in_an_error_or_in_the_same_pieces(
        (body, _) in list(),
        cuts in cuts(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), generate::bad_byte()), 1..3),
    ) {
        let mut body = body.into_bytes();
        for (at, byte) in damage {
            let at = at.index(body.len());
            match byte {
                Some(byte) => body[at] = byte,
                None => body.truncate(at.max(1)),
            }
        }
        let whole = pieces(&[&body]);
        let cut = pieces(&chunks(&body, &cuts));
        prop_assert_eq!(whole.is_ok(), cut.is_ok(), "{:?} {:?}", whole, cut);
        if let Ok(whole) = whole {
            let count = |pieces: &[Piece]| pieces.iter().map(|piece| match piece {
                Piece::Batch(batch) => batch.items.len(),
                _ => 0,
            }).sum::<usize>();
            prop_assert_eq!(count(&whole), count(&cut.unwrap()));
        } else if serde_json::from_slice::<Tree>(&body).is_ok_and(|list| list["items"].is_array()) {
            // The splitter may refuse input that parsers accept, but only if parsers disagree about it or the API never
            // writes it.
            let list: Tree = serde_json::from_slice(&body).unwrap();
            let odd = list["items"].as_array().unwrap().iter().any(|item| !item.is_object());
            let text = String::from_utf8_lossy(&body);
            prop_assert!(odd || !list["kind"].is_string() || text.matches("\"kind\"").count() > 1, "{:?}", whole);
        }
    }

    #[test]
    fn frames_equal_the_written_events(
        events in prop::collection::vec((0..5usize, generate::object(), any::<u64>(), any::<bool>()), 0..8),
        cuts in cuts(),
    ) {
        const TYPES: [EventType; 5] =
            [EventType::Added, EventType::Modified, EventType::Deleted, EventType::Bookmark, EventType::Error];
        let mut body = Vec::new();
        for (kind, object, seed, line) in &events {
            let kind = TYPES[*kind];
            if *line {
                body.extend_from_slice(&event(kind, generate::spell(object, *seed).as_bytes()));
            } else {
                let frame = serde_json::json!({"object": object, "type": kind.as_str()});
                body.extend_from_slice(generate::spell(&frame, *seed).as_bytes());
            }
        }
        let mut splitter = FrameSplitter::new();
        let mut found = Vec::new();
        for chunk in chunks(&body, &cuts) {
            splitter.push(Bytes::copy_from_slice(chunk));
            while let Some(frame) = splitter.next().unwrap() {
                check_reads(&frame.document());
                found.push((frame.event, serde_json::from_slice::<Tree>(&frame.object_bytes()).unwrap()));
            }
        }
        splitter.finish();
        prop_assert_eq!(splitter.next(), Ok(None));
        let written: Vec<_> = events.iter().map(|(kind, object, ..)| (TYPES[*kind], object.clone())).collect();
        prop_assert_eq!(found, written);
    }
}
