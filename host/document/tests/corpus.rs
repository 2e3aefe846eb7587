//! Replays the corpus of the fuzz targets through the same code, so that bugs found by fuzzing stay fixed.

#[path = "../../../tests/fuzz/src/bodies.rs"]
#[allow(unreachable_pub, clippy::panic, reason = "written as a library: a target panics if a property does not hold")]
mod bodies;

use std::{fs, path::Path};

#[test]
fn every_input_of_the_corpus_keeps_the_rules() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fuzz/corpus");
    for (name, body) in bodies::TARGETS {
        let mut count = 0;
        for entry in fs::read_dir(corpus.join(name)).unwrap() {
            body(&fs::read(entry.unwrap().path()).unwrap());
            count += 1;
        }
        assert!(count > 0, "no corpus of {name}");
    }
}
