//! Compares the scanner with a byte-by-byte model, and the vector classifiers with the portable one, at every alignment
//! and chunk boundary. `make miri` runs a short form.

use super::{BLOCK, Brackets, Classify, Marks, Masks, Portable, Reached, Skip, nested_end_with, string_end_with};
use proptest::prelude::*;

#[path = "../../../../../tests/fuzz/src/scan.rs"]
#[allow(unreachable_pub, reason = "written as a module of a library")]
mod fuzz_target;

#[cfg(target_arch = "x86_64")]
use super::avx2::Avx2 as Vector;
#[cfg(target_arch = "aarch64")]
use super::neon::Neon as Vector;

/// The number of random cases.
const CASES: u32 = if cfg!(miri) { 2 } else { 2000 };
/// The maximum length of random texts.
const LONG: usize = if cfg!(miri) { 80 } else { 300 };

/// Without vector instructions, the portable classifier stands in.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn vector() -> Option<Portable> {
    Some(Portable)
}

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
fn vector() -> Option<Vector> {
    Vector::detect()
}

fn bits(block: &[u8; BLOCK], which: &[u8]) -> u64 {
    block.iter().enumerate().filter(|(_, byte)| which.contains(byte)).map(|(i, _)| 1 << i).sum()
}

/// Returns the end of the container, none if it has no end yet, or an error.
fn model(bytes: &[u8]) -> Result<Option<usize>, ()> {
    let (mut open, mut text, mut escaped) = (Vec::new(), false, false);
    for (i, byte) in bytes.iter().enumerate() {
        match byte {
            _ if text && escaped => escaped = false,
            b'\\' if text => escaped = true,
            b'"' => text = !text,
            _ if text => {}
            b'\\' => return Err(()),
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

/// Returns the end by every classifier of this machine, which must agree.
fn whole(bytes: &[u8]) -> Result<Option<usize>, ()> {
    let portable = Skip::new().run_with(Portable, bytes, 0, None);
    if let Some(vector) = vector() {
        assert_eq!(Skip::new().run_with(vector, bytes, 0, None), portable);
        assert_eq!(string_end_with(vector, bytes, 1), string_end_with(Portable, bytes, 1));
        assert_eq!(Marks::with(vector, bytes), Marks::with(Portable, bytes));
    }
    assert_eq!(Skip::new().run(bytes, 0, None), portable);
    let marks = Marks::of(bytes);
    // No more bytes follow a complete text.
    let ended = nested_end_with(Portable, bytes, &marks.blocks, 0);
    assert_eq!(super::nested_end(bytes, &marks.blocks, 0), ended);
    assert_eq!(crate::json::marked::Marked::new(bytes, &marks).container_end(0).ok(), ended.clone().ok());
    match &portable {
        Ok(Reached::More(at)) => assert!(ended.is_err() && *at + BLOCK > bytes.len() && *at <= bytes.len()),
        Ok(Reached::End(end)) => assert_eq!(ended, Ok(*end)),
        Err(error) => assert_eq!(ended.as_ref(), Err(error)),
    }
    kept(bytes, &[]).map_err(drop)
}

/// Returns the end by scanning in pieces. Checks the recorded marks: they equal the marks of the whole container, and
/// every container in it ends at the same position with known and unknown depths.
fn kept(bytes: &[u8], cuts: &[usize]) -> Result<Option<usize>, crate::Error> {
    let (mut skip, mut portable) = (Skip::new(), Skip::new());
    let (mut marks, mut by_words) = (Marks::default(), Marks::default());
    let mut at = 0;
    for cut in cuts.iter().copied().chain([bytes.len()]) {
        let bytes = &bytes[..cut.clamp(at, bytes.len())];
        let reached = skip.run(bytes, at, Some(&mut marks));
        assert_eq!(portable.run_with(Portable, bytes, at, Some(&mut by_words)), reached);
        let reached = reached?;
        assert_eq!(marks, by_words);
        match reached {
            Reached::More(on) => at = on,
            Reached::End(end) => {
                let text = &bytes[..end];
                marks.end_text(0, end);
                let plain = Marks::of(text);
                let masks = |marks: &Marks| marks.blocks.iter().map(|block| block.masks).collect::<Vec<_>>();
                assert_eq!(masks(&marks), masks(&plain));
                for (i, block) in plain.blocks.iter().enumerate() {
                    for at in (0..BLOCK).filter(|bit| block.masks.open >> bit & 1 == 1).map(|bit| i * BLOCK + bit) {
                        let end = nested_end_with(Portable, text, &plain.blocks, at);
                        assert_eq!(super::nested_end(text, &marks.blocks, at), end, "{at}");
                    }
                }
                return Ok(Some(end));
            }
        }
        assert_eq!(format!("{skip:?}"), format!("{portable:?}"));
    }
    Ok(None)
}

/// Returns the closing quote of a string that continues at `at`, and whether there is no backslash before it.
fn string_model(bytes: &[u8], at: usize) -> Option<(usize, bool)> {
    let (mut escaped, mut plain) = (false, true);
    for (i, byte) in bytes.iter().enumerate().skip(at) {
        match byte {
            _ if escaped => escaped = false,
            b'"' => return Some((i, plain)),
            b'\\' => (escaped, plain) = (true, false),
            _ => {}
        }
    }
    None
}

/// Generates bytes in which structural ones are frequent.
fn noise(seed: u64, length: usize) -> Vec<u8> {
    const ALPHABET: &[u8; 16] = b"\"\"\\\\{}[]{}a:, \x02\xfb";
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as usize
    };
    (0..length).map(|_| if seed.is_multiple_of(3) { next() as u8 } else { ALPHABET[next() % 16] }).collect()
}

/// Generates bytes in which structural ones are frequent.
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
    prop::collection::vec(byte, 0..LONG).prop_map(|mut bytes| {
        bytes.insert(0, b'{');
        bytes
    })
}

#[test]
fn every_byte_is_classified_at_every_place() {
    let bytes: Vec<u8> = if cfg!(miri) { b"\"\\{}[]\x02\xfb".to_vec() } else { (0..=255).collect() };
    for byte in bytes {
        for i in (0..BLOCK).step_by(if cfg!(miri) { 21 } else { 1 }) {
            let mut block = [b' '; BLOCK];
            block[i] = byte;
            let masks = Masks {
                quote: bits(&block, b"\""),
                backslash: bits(&block, b"\\"),
                open: bits(&block, b"{["),
                close: bits(&block, b"}]"),
            };
            assert_eq!(Portable.classify(&block), masks, "{byte} at {i}");
            if let Some(vector) = vector() {
                assert_eq!(vector.classify(&block), masks, "{byte} at {i}");
            }
        }
    }
}

#[test]
fn brackets_match_at_any_depth_and_containers_end_where_they_do() {
    let depth = if cfg!(miri) { 600 } else { 70_000 };
    let nested = [vec![b'['; depth], vec![b']'; depth]].concat();
    assert_eq!(whole(&nested), Ok(Some(2 * depth)));
    let mut wrong = nested.clone();
    wrong[depth + 1] = b'}';
    assert!(whole(&wrong).is_err());
    let mut marks = Marks::default();
    assert!(Skip::new().run(&nested, 0, Some(&mut marks)).is_ok());
    marks.end_text(0, nested.len());
    // 65,535 is the depth that marks do not hold any more.
    for at in
        [0, 1, 63, 64, 511, 512, 65_400, 65_470, 65_534, 65_535, 65_536, 65_600].into_iter().filter(|at| *at < depth)
    {
        assert_eq!(super::marks::nested_end(&nested, &marks.blocks, at), Ok(2 * depth - at), "{at}");
    }
}

#[test]
fn runs_of_backslashes_cross_blocks() {
    for lead in if cfg!(miri) { 58..61 } else { 0..130 } {
        for run in if cfg!(miri) { 2..4 } else { 0..8 } {
            let json = format!("{{\"{}{}\"}}\"}}", "a".repeat(lead), "\\".repeat(run));
            assert_eq!(whole(json.as_bytes()), model(json.as_bytes()), "{lead} {run}");
            assert_eq!(super::string_end(json.as_bytes(), 2), string_model(json.as_bytes(), 2), "{lead} {run}");
        }
    }
}

/// At every length and alignment: no load reads beyond the bytes (Miri detects this), and no tail is skipped.
#[test]
fn vectors_agree_with_words_at_every_length_and_alignment() {
    let step = if cfg!(miri) { 67 } else { 1 };
    for length in (0..=200).step_by(step.min(11)) {
        for shift in (length % step.min(13)..64).step_by(step.min(13)) {
            let mut bytes = noise((length * 64 + shift) as u64, shift + length);
            if let Some(first) = bytes.get_mut(shift) {
                *first = b'{';
            }
            // A box has exactly this length, so that Miri detects reads beyond the end.
            let bytes = bytes.into_boxed_slice();
            assert_eq!(whole(&bytes[shift..]), model(&bytes[shift..]), "{length} at {shift}");
            assert_eq!(super::string_end(&bytes, shift), string_model(&bytes, shift), "{length} at {shift}");
        }
    }
}

#[test]
fn nested_containers_end_where_the_model_ends_them() {
    for depth in if cfg!(miri) { 64..65 } else { 1..200usize } {
        for (open, close) in [("[", "]"), ("{", "}"), ("[{", "}]"), (" [", "\"]\"]")] {
            let nest = open.repeat(depth).trim_start().to_owned() + &close.repeat(depth);
            // A single wrong bracket is found too.
            for json in [nest.clone(), nest.clone() + "}]", format!("[{nest},{nest}]"), nest.replacen(']', "}", 1)] {
                assert_eq!(whole(json.as_bytes()), model(json.as_bytes()), "{json}");
            }
        }
    }
}

/// Brackets of many blocks are compared together. A wrong one is still found at its position, however far its pair is
/// away.
#[test]
fn one_wrong_bracket_among_many_blocks_is_found() {
    for apart in if cfg!(miri) { 40..41 } else { 0..70usize } {
        let item = format!("{{\"a\":[{{\"b\":\"{}\"}},[],{{}}]}},", "[".repeat(apart));
        let json = format!("{{\"items\":[{}{{}}]}}", item.repeat(if cfg!(miri) { 3 } else { 25 }));
        assert_eq!(whole(json.as_bytes()), Ok(Some(json.len())));
        let mut inside = false;
        for at in 1..json.len() {
            let byte = json.as_bytes()[at];
            inside ^= byte == b'"';
            if inside || !b"[]{}".contains(&byte) || cfg!(miri) && at % 7 != 0 {
                continue;
            }
            let mut wrong = json.clone().into_bytes();
            wrong[at] ^= 0x20;
            assert_eq!(whole(&wrong), model(&wrong), "{at} of {json}");
            let cuts = [at / 2, at, at + apart];
            assert_eq!(kept(&wrong, &cuts).map_err(drop), model(&wrong), "{at} of {json}");
        }
    }
}

#[test]
fn a_block_is_folded_as_its_brackets_are_one_after_another() {
    let Some(vector) = vector() else { return };
    let mut folded = 0;
    for seed in 0..if cfg!(miri) { 50 } else { 100_000u64 } {
        let noise = noise(seed * 3 + 1, BLOCK);
        // Fewer kinds of brackets in some blocks, so that most of them match.
        let block: [u8; BLOCK] = std::array::from_fn(|i| match noise[i] {
            b'[' | b'{' if seed % 2 == 0 => b'{',
            b']' | b'}' if seed % 2 == 0 => b'}',
            byte if (i as u64).is_multiple_of(seed % 11 + 1) => byte,
            _ => b' ',
        });
        let masks = Portable.classify(&block);
        let depth = 1 + (seed % 40) as usize;
        let kinds = if seed % 2 == 0 { u64::MAX } else { seed } & (u64::MAX >> (64 - depth));
        let before = Brackets { kinds, depth };
        let all = masks.open | masks.close;
        if before.depth + masks.open.count_ones() as usize > 64 {
            continue;
        }
        let Some(after) = vector.fold(vector.gather(&block, all, masks.open), before) else { continue };
        let mut by_turns = before;
        for (i, byte) in block.iter().enumerate().filter(|(i, _)| all >> i & 1 == 1) {
            if masks.open >> i & 1 == 1 {
                by_turns.kinds = by_turns.kinds << 1 | u64::from(*byte == b'{');
                by_turns.depth += 1;
            } else {
                assert_eq!(by_turns.kinds & 1, u64::from(*byte == b'}'), "{block:?}");
                by_turns.kinds >>= 1;
                by_turns.depth -= 1;
                assert!(by_turns.depth > 0, "{block:?}");
            }
        }
        assert_eq!(after, by_turns, "{block:?}");
        folded += 1;
    }
    assert!(folded > 0 || cfg!(target_arch = "aarch64") || cfg!(miri));
}

#[test]
fn xor_of_all_bits_below() {
    for bits in [0, 1, u64::MAX, 1 << 63, 0x8000_0000_8000_0001, 0x1234_5678_9abc_def0] {
        let expected = (0..64).fold(0, |mask, i| mask | u64::from((bits << (63 - i)).count_ones() % 2) << i);
        assert_eq!(Portable.prefix_xor(bits), expected);
        if let Some(vector) = vector() {
            assert_eq!(vector.prefix_xor(bits), expected);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, max_shrink_iters: 100 * CASES, ..ProptestConfig::with_cases(CASES) })]

    #[test]
    fn random_blocks_are_classified(block in prop::array::uniform32(any::<u8>())) {
        let block: [u8; BLOCK] = std::array::from_fn(|i| block[i % 32].rotate_left((i / 32) as u32));
        prop_assert_eq!(Portable.classify(&block).open, bits(&block, b"{["));
        prop_assert_eq!(Portable.classify(&block).quote, bits(&block, b"\""));
        if let Some(vector) = vector() {
            prop_assert_eq!(vector.classify(&block), Portable.classify(&block));
        }
    }

    #[test]
    fn the_end_equals_that_of_the_model(bytes in soup()) {
        prop_assert_eq!(whole(&bytes), model(&bytes));
        prop_assert_eq!(super::string_end(&bytes, 1), string_model(&bytes, 1));
    }

    #[test]
    fn chunks_change_nothing(bytes in soup(), mut cuts in prop::collection::vec(0..LONG, 0..LONG / 15)) {
        cuts.sort_unstable();
        prop_assert_eq!(kept(&bytes, &cuts).map_err(drop), whole(&bytes));
    }
}

/// Replays the corpus of the fuzz target, so that bugs found by fuzzing stay fixed.
#[test]
#[cfg_attr(miri, ignore = "thousands of bytes take minutes")]
fn every_input_of_the_corpus_keeps_the_rules() {
    let corpus = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fuzz/corpus/scan");
    let inputs: Vec<_> = std::fs::read_dir(corpus).unwrap().map(|entry| std::fs::read(entry.unwrap().path())).collect();
    assert!(inputs.len() > 50, "{} inputs", inputs.len());
    for input in inputs {
        fuzz_target::scan(&input.unwrap());
    }
}
