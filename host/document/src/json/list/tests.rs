//! The rules of splitting and joining. `tests/splitting.rs` tests them at random chunk boundaries.

use super::{Joiner, ListMeta, ListSplitter, Piece, SplitError};
use crate::list::{self, ItemOutcome};
use bytes::Bytes;

/// Returns all pieces of a body in chunks of this size.
fn split(body: &[u8], chunk: usize, limit: usize) -> Result<(Vec<Piece>, ListMeta), SplitError> {
    let mut pieces = Vec::new();
    let chunks = body.chunks(chunk).map(Bytes::copy_from_slice);
    let mut splitter = list::split(ListSplitter::with_limit(limit), chunks, |piece| {
        pieces.push(piece);
        Ok::<_, SplitError>(())
    })?;
    assert_eq!(splitter.next()?, None);
    Ok((pieces, splitter.meta().clone()))
}

/// Returns the items of a body. Checks that they are the same for all chunk sizes, and that the pieces are the body.
fn items(body: &str) -> Result<Vec<String>, SplitError> {
    let mut results = Vec::new();
    for chunk in [1, 2, 3, 7, 64, body.len().max(1)] {
        results.push(split(body.as_bytes(), chunk, 1000).map(|(pieces, _)| {
            let mut all = Vec::new();
            let mut items = Vec::new();
            for piece in pieces {
                match piece {
                    Piece::Head { bytes } | Piece::Tail { bytes } => all.extend_from_slice(&bytes),
                    Piece::Batch(batch) => {
                        assert!(!batch.items.is_empty());
                        all.extend_from_slice(&batch.bytes);
                        for i in 0..batch.items.len() {
                            items.push(String::from_utf8(batch.item(i).unwrap().to_vec()).unwrap());
                        }
                    }
                }
            }
            assert_eq!(all, body.as_bytes());
            items
        }));
    }
    for result in &results {
        match (&results[0], result) {
            (Ok(first), Ok(other)) => assert_eq!(first, other),
            (Err(_), Err(_)) => {}
            (first, other) => panic!("{first:?} {other:?}"),
        }
    }
    results.remove(0)
}

#[test]
fn items_are_the_same_at_any_chunk_boundaries() {
    assert_eq!(
        items(r#"{"kind":"L","items":[{"a":"}\\\"{"},{"b":[{}]}],"z":1}"#).unwrap(),
        [r#"{"a":"}\\\"{"}"#, r#"{"b":[{}]}"#]
    );
    assert_eq!(
        items("{\n \"items\": [\n  {\"ü\":\"\u{1f600}\"} ,\n\n  { }\n ]\n}\n").unwrap(),
        ["{\"ü\":\"\u{1f600}\"}", "{ }"]
    );
    assert_eq!(
        items(r#"{"\u0069tems":[{}],"x":"\"","y":[1,{"items":[]}],"w":-1.5e3,"v":null,"u":true}"#).unwrap(),
        ["{}"]
    );
}

#[test]
fn lists_without_elements_have_a_head_and_a_tail() {
    for body in
        [r#"{"items":[]}"#, r#"{"items": null }"#, r#"{"items":[ ] , "kind":"L"}"#, " {\"items\":null,\"a\":1} \n"]
    {
        assert_eq!(items(body).unwrap(), [""; 0], "{body}");
    }
}

#[test]
fn rows_are_the_items_of_a_table() {
    let body = br#"{"kind":"Table","items":1,"rows":[{"cells":["a"]},{}],"z":[]}"#;
    let mut rows = Vec::new();
    let chunks = [Bytes::from_static(body)];
    list::split(ListSplitter::rows(), chunks, |piece| {
        if let Piece::Batch(batch) = piece {
            rows.extend((0..batch.items.len()).map(|i| batch.item(i).unwrap()));
        }
        Ok::<_, SplitError>(())
    })
    .unwrap();
    assert_eq!(rows, [r#"{"cells":["a"]}"#, "{}"]);
    let mut splitter = ListSplitter::rows_with_limit(1000);
    splitter.push(r#"{"rows":[],"rows":[]}"#);
    assert!(matches!(splitter.next(), Ok(Some(Piece::Head { .. }))));
    assert_eq!(splitter.next(), Err(SplitError::Repeated { key: "rows" }));
}

#[test]
fn an_invalid_list_is_an_error() {
    for body in [
        "",
        " ",
        "[]",
        "null",
        "x",
        "{}",
        r#"{"kind":"Status"}"#,
        r#"{"items":{}}"#,
        r#"{"items":1}"#,
        r#"{"items":nope}"#,
        r#"{"items":[}"#,
        r#"{"items":[{}"#,
        r#"{"items":[{}]"#,
        r#"{"items":[{},]}"#,
        r#"{"items":[,{}]}"#,
        r#"{"items":[1]}"#,
        r#"{"items":[null]}"#,
        r#"{"items":[{}{}]}"#,
        r#"{"items":[]}x"#,
        r#"{"items":[]}{}"#,
        r#"{"items":[],}"#,
        r#"{"items" []}"#,
        r#"{"items":[],"items":[]}"#,
        r#"{"items":[],"\u0069tems":null}"#,
        r#"{"kind":"a","kind":"b","items":[]}"#,
        r#"{"kind":1,"items":[]}"#,
        r#"{"metadata":[],"items":[]}"#,
        r#"{"metadata":{"continue":"a","continue":"b"},"items":[]}"#,
        r#"{"a":nul,"items":[]}"#,
        r#"{"a":1x,"items":[]}"#,
        r#"{"a":01,"items":[]}"#,
        r#"{"items":[{]}]}"#,
        r#"{"a":"\ud8"#,
        r#"{a:1}"#,
        r#"{,}"#,
        "{\"items\":[]}\u{b}",
    ] {
        assert!(items(body).is_err(), "{body}");
    }
    assert_eq!(items("{}").unwrap_err(), SplitError::NoItems);
    assert_eq!(items(r#"{"items":[{}"#).unwrap_err(), SplitError::Truncated);
    assert_eq!(items(r#"{"items":[],"items":[]}"#).unwrap_err(), SplitError::Repeated { key: "items" });
}

#[test]
fn the_meta_of_a_list_may_precede_or_follow_the_items() {
    let meta =
        r#""kind":"ServiceList","apiVersion":"v1","metadata":{"x":{},"resourceVersion":"7","continue":"c\u0041"}"#;
    for body in [format!("{{{meta},\"items\":[{{}}]}}"), format!("{{\"items\":[{{}}],{meta}}}")] {
        for chunk in [1, 1000] {
            let (_, meta) = split(body.as_bytes(), chunk, 1000).unwrap();
            let text = |text: &str| Some(text.to_owned());
            let expected = ListMeta {
                api_version: text("v1"),
                kind: text("ServiceList"),
                resource_version: text("7"),
                continue_token: text("cA"),
            };
            assert_eq!(meta, expected);
        }
    }
    let (_, meta) = split(br#"{"metadata":{"continue":""},"kind":null,"items":[]}"#, 10, 1000).unwrap();
    assert_eq!(meta, ListMeta::default());
}

#[test]
fn an_item_or_a_gap_over_the_limit_is_an_error() {
    let item = format!(r#"{{"items":[{{"a":"{}"}}]}}"#, "x".repeat(100));
    let blanks = format!(r#"{{"items":[{}{{}}]}}"#, " ".repeat(200));
    let head = format!(r#"{{"a":"{}","items":[]}}"#, "x".repeat(200));
    for body in [&item, &blanks, &head] {
        assert!(split(body.as_bytes(), 10, 1000).is_ok());
        assert_eq!(split(body.as_bytes(), 10, 90).unwrap_err(), SplitError::TooLarge { limit: 90 }, "{body}");
    }
    let many = format!(r#"{{"items":[{}]}}"#, vec!["{}"; 1000].join(","));
    assert!(split(many.as_bytes(), 10, 20).is_ok());
    assert!(split(many.as_bytes(), 10_000, 20).is_ok());
}

#[test]
fn batches_are_bounded_and_at_most_one_item_is_pending() {
    let item = format!(r#"{{"a":"{}"}}"#, "x".repeat(1000));
    let body = format!(r#"{{"items":[{}]}}"#, vec![item.as_str(); 1000].join(","));
    let (pieces, _) = split(body.as_bytes(), body.len(), 2000).unwrap();
    let sizes: Vec<_> = pieces
        .iter()
        .filter_map(|piece| match piece {
            Piece::Batch(batch) => Some(batch.bytes.len()),
            _ => None,
        })
        .collect();
    assert!(sizes.len() > 8);
    assert!(sizes.iter().all(|size| *size < 128 << 10), "{sizes:?}");
    let mut splitter = ListSplitter::new();
    for chunk in body.as_bytes().chunks(500) {
        splitter.push(Bytes::copy_from_slice(chunk));
        while splitter.next().unwrap().is_some() {}
        assert!(splitter.pending.bytes().len() <= item.len() + 501);
    }
}

/// Joins a list with these outcomes, in turn.
fn join(body: &str, chunk: usize, outcomes: &[ItemOutcome]) -> String {
    let mut outcomes = outcomes.iter();
    let mut joiner = Joiner::new();
    let mut out = Vec::new();
    for piece in split(body.as_bytes(), chunk, 1000).unwrap().0 {
        match piece {
            Piece::Head { bytes } | Piece::Tail { bytes } => out.extend_from_slice(&bytes),
            Piece::Batch(batch) => {
                let outcomes = outcomes.by_ref().take(batch.items.len()).cloned();
                joiner.push(&batch, outcomes).unwrap().iter().for_each(|bytes| out.extend_from_slice(bytes));
            }
        }
    }
    String::from_utf8(out).unwrap()
}

#[test]
fn a_joined_list_has_its_commas() {
    use ItemOutcome::{Drop, Keep};
    let edit = || ItemOutcome::Edit(Bytes::from_static(b"{9}"));
    let body = r#"{"items":[{"a":0},{"a":1},{"a":2}]}"#;
    for (outcomes, expected) in [
        ([Keep, Keep, Keep], body),
        ([Drop, Keep, Keep], r#"{"items":[{"a":1},{"a":2}]}"#),
        ([Keep, Drop, Keep], r#"{"items":[{"a":0},{"a":2}]}"#),
        ([Keep, Keep, Drop], r#"{"items":[{"a":0},{"a":1}]}"#),
        ([Drop, Drop, Keep], r#"{"items":[{"a":2}]}"#),
        ([Drop, Drop, Drop], r#"{"items":[]}"#),
        ([edit(), Keep, edit()], r#"{"items":[{9},{"a":1},{9}]}"#),
        ([Drop, edit(), edit()], r#"{"items":[{9},{9}]}"#),
        ([edit(), Drop, Keep], r#"{"items":[{9},{"a":2}]}"#),
    ] {
        for chunk in [1, 20, 1000] {
            assert_eq!(join(body, chunk, &outcomes), expected, "{outcomes:?} {chunk}");
        }
    }
    let pretty = "{\"items\": [\n  {} ,\n  {\"a\":1}\n]}";
    assert_eq!(join(pretty, 1000, &[Keep, Keep]), pretty);
    assert_eq!(join(pretty, 1, &[Drop, Keep]), "{\"items\": [\n  {\"a\":1}\n]}");
}

#[test]
fn runs_of_kept_items_leave_as_one_slice() {
    let body = r#"{"items":[{"a":0},{"a":1},{"a":2},{"a":3}]}"#;
    let (pieces, _) = split(body.as_bytes(), 1000, 1000).unwrap();
    let Some(Piece::Batch(batch)) = pieces.get(1) else { panic!("{pieces:?}") };
    let kept = Joiner::new().push(batch, vec![ItemOutcome::Keep; 4]).unwrap();
    assert_eq!(kept, std::slice::from_ref(&batch.bytes));
    assert_eq!(kept[0].as_ptr(), batch.bytes.as_ptr());
    let one = [ItemOutcome::Keep, ItemOutcome::Keep, ItemOutcome::Drop, ItemOutcome::Keep];
    assert_eq!(Joiner::new().push(batch, one).unwrap().len(), 2);
}

#[test]
fn one_outcome_for_each_item_or_an_error() {
    let (pieces, _) = split(br#"{"items":[{},{}]}"#, 1000, 1000).unwrap();
    let Some(Piece::Batch(batch)) = pieces.get(1) else { panic!("{pieces:?}") };
    for outcomes in [1, 3] {
        let error = Joiner::new().push(batch, vec![ItemOutcome::Keep; outcomes]).unwrap_err();
        assert_eq!(error, SplitError::Outcomes { items: 2, outcomes });
    }
}

/// A quadratic algorithm would take hours here.
#[test]
fn tiny_chunks_take_linear_time() {
    let text = "x".repeat(1 << 20);
    for body in [
        format!(r#"{{"items":[{{"a":"{text}"}}]}}"#),
        format!(r#"{{"a":"{text}","items":[]}}"#),
        format!(r#"{{"{text}":1,"items":[]}}"#),
        format!(r#"{{"a":[{}1],"items":[]}}"#, "1,".repeat(1 << 19)),
        format!(r#"{{"items":[{}{{}}]}}"#, " ".repeat(1 << 20)),
        format!(r#"{{"items":[{}{{}}]}}"#, "{},".repeat(1 << 18)),
    ] {
        assert!(split(body.as_bytes(), 1, 2 << 20).is_ok());
    }
}

#[test]
fn only_bytes_that_continue_in_the_next_chunk_are_copied() {
    let item = format!(r#"{{"a":"{}"}}"#, "x".repeat(1000));
    let body = Bytes::from(format!(r#"{{"items":[{}]}}"#, vec![item.as_str(); 2000].join(",")));
    let chunks: Vec<_> = body.chunks(500_000).map(|chunk| body.slice_ref(chunk)).collect();
    let inside = |bytes: &Bytes| body.as_ptr_range().contains(&bytes.as_ptr());
    let (mut splitter, mut copied) = (ListSplitter::new(), 0);
    for chunk in chunks {
        splitter.push(chunk);
        while let Some(piece) = splitter.next().unwrap() {
            if let Piece::Batch(batch) = piece
                && !inside(&batch.bytes)
            {
                copied += batch.bytes.len();
            }
        }
    }
    assert!((1..5 * 20_000).contains(&copied), "{copied}");
}
