//! The property of the block scanner. `weir-document` exports the scanner for the fuzzer alone, in its feature `scan`, and
//! includes this file in its own tests.

use weir_document::json::scan::{
    Block, Marks, Masks, Portable, Reached, Skip, nested_end, nested_end_with, string_end, string_end_with,
};

/// Input: the position at which the bytes are split, the number of bytes to skip so that they have any alignment, then
/// the bytes.
///
/// With any instructions of this processor, the results and the intermediate states equal those of the portable
/// classifier.
pub fn scan(data: &[u8]) {
    let [cut, shift, bytes @ ..] = data else { return };
    let bytes = bytes.get(usize::from(shift % 64)..).unwrap_or_default();
    let reached = Skip::new().run_with(Portable, bytes, 0, None);
    let marks = Marks::of(bytes);
    assert_eq!(marks, Marks::with(Portable, bytes));
    let nested = nested_end(bytes, &marks.blocks, 0);
    assert_eq!(nested, nested_end_with(Portable, bytes, &marks.blocks, 0));
    if let Ok(Reached::End(end)) = reached {
        assert_eq!(nested, Ok(end));
    } else {
        assert!(nested.is_err());
    }
    assert_eq!(string_end(bytes, 0), string_end_with(Portable, bytes, 0));
    // In two pieces: the recorded marks equal those of the whole text, and containers end at the same positions.
    let (mut vector, mut words) = (Skip::new(), Skip::new());
    let (mut kept, mut by_words) = (Marks::default(), Marks::default());
    let first = bytes.get(..usize::from(*cut)).unwrap_or(bytes);
    let mut ended = vector.run(first, 0, Some(&mut kept));
    assert_eq!(ended, words.run_with(Portable, first, 0, Some(&mut by_words)));
    assert_eq!(format!("{vector:?}"), format!("{words:?}"));
    if let Ok(Reached::More(at)) = ended {
        ended = vector.run(bytes, at, Some(&mut kept));
        assert_eq!(ended, reached);
        assert_eq!(words.run_with(Portable, bytes, at, Some(&mut by_words)), reached);
    }
    assert!(ended.is_err() || kept == by_words);
    if let Ok(Reached::End(end)) = ended {
        let text = bytes.get(..end).unwrap_or_default();
        let plain = Marks::of(text);
        let brackets = |blocks: &[Block]| {
            blocks.iter().map(|block| block.masks).filter(|masks| *masks != Masks::default()).collect::<Vec<_>>()
        };
        assert_eq!(brackets(&kept.blocks), brackets(&plain.blocks));
        kept.blocks.resize(plain.blocks.len(), Block::default());
        for at in (0..end).filter(|at| matches!(text.get(*at), Some(b'{' | b'['))).take(64) {
            let is_bracket = plain.blocks.get(at / 64).is_some_and(|block| block.masks.open >> (at % 64) & 1 == 1);
            assert!(!is_bracket || nested_end(text, &kept.blocks, at) == nested_end(text, &plain.blocks, at));
        }
    }
}
