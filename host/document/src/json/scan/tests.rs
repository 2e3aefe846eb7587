//! The scanner against a byte-by-byte model, at every alignment and with every cut.

use super::{BLOCK, Classify, Masks, Portable, Skip};
use proptest::prelude::*;

fn bits(block: &[u8; BLOCK], which: &[u8]) -> u64 {
    block.iter().enumerate().filter(|(_, byte)| which.contains(byte)).map(|(i, _)| 1 << i).sum()
}

/// The end of the container, or false for none yet, or an error.
fn model(bytes: &[u8]) -> Result<Option<usize>, ()> {
    let (mut open, mut text, mut escaped) = (Vec::new(), false, false);
    for (i, byte) in bytes.iter().enumerate() {
        match byte {
            _ if text && escaped => escaped = false,
            b'\\' if text => escaped = true,
            b'"' => text = !text,
            _ if text => {}
            b'\\' => return Err(()),
            b'{' | b'[' if open.len() == crate::MAX_DEPTH => return Err(()),
            b'{' | b'[' => open.push(*byte),
            b'}' | b']' => {
                if open.pop() != Some(byte - 2) {
                    return Err(());
                }
                if open.is_empty() {
                    return Ok(Some(i + 1));
                }
            }
            _ => {}
        }
    }
    Ok(None)
}

fn whole(bytes: &[u8]) -> Result<Option<usize>, ()> {
    Skip::new().run(bytes, 0).map_err(drop)
}

fn chunked(bytes: &[u8], cuts: &[usize]) -> Result<Option<usize>, ()> {
    let mut skip = Skip::new();
    let mut at = 0;
    for cut in cuts.iter().copied().chain([bytes.len()]) {
        let cut = cut.clamp(at, bytes.len());
        if let Some(end) = skip.run(&bytes[..cut], at).map_err(drop)? {
            return Ok(Some(end));
        }
        at = cut;
    }
    Ok(None)
}

/// Bytes that matter more often than chance.
fn soup() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![
        Just(b'"'),
        Just(b'\\'),
        Just(b'\\'),
        Just(b'{'),
        Just(b'}'),
        Just(b'['),
        Just(b']'),
        Just(b'a'),
        any::<u8>()
    ];
    prop::collection::vec(byte, 0..300).prop_map(|mut bytes| {
        bytes.insert(0, b'{');
        bytes
    })
}

#[test]
fn every_byte_is_classified_at_every_place() {
    for byte in 0..=255u8 {
        for i in 0..BLOCK {
            let mut block = [b' '; BLOCK];
            block[i] = byte;
            let masks = Masks {
                quote: bits(&block, b"\""),
                backslash: bits(&block, b"\\"),
                open: bits(&block, b"{["),
                close: bits(&block, b"}]"),
            };
            assert_eq!(Portable.classify(&block), masks, "{byte} at {i}");
        }
    }
}

#[test]
fn depth_is_bounded() {
    let nested = |depth: usize| [vec![b'['; depth], vec![b']'; depth]].concat();
    assert_eq!(whole(&nested(512)), Ok(Some(1024)));
    assert!(whole(&nested(513)).is_err());
    assert!(whole(&vec![b'{'; 1 << 20]).is_err());
}

#[test]
fn runs_of_backslashes_cross_blocks() {
    for lead in 0..130 {
        for run in 0..8 {
            let json = format!("{{\"{}{}\"}}\"}}", "a".repeat(lead), "\\".repeat(run));
            assert_eq!(whole(json.as_bytes()), model(json.as_bytes()), "{lead} {run}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2000) })]

    #[test]
    fn random_blocks_are_classified(block in prop::array::uniform32(any::<u8>())) {
        let block: [u8; BLOCK] = std::array::from_fn(|i| block[i % 32].rotate_left((i / 32) as u32));
        prop_assert_eq!(Portable.classify(&block).open, bits(&block, b"{["));
        prop_assert_eq!(Portable.classify(&block).quote, bits(&block, b"\""));
    }

    #[test]
    fn the_end_is_where_the_model_finds_it(bytes in soup()) {
        prop_assert_eq!(whole(&bytes), model(&bytes));
    }

    #[test]
    fn chunks_change_nothing(bytes in soup(), mut cuts in prop::collection::vec(0..300usize, 0..20)) {
        cuts.sort_unstable();
        prop_assert_eq!(chunked(&bytes, &cuts), whole(&bytes));
    }
}
