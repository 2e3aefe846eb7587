//! Runs the bundled filters as modules in the host, with the case files that each crate runs natively, in protobuf and
//! in JSON.

use weir::cli::{Workbench, run_cases};
use weir_tests::built;

/// The bundled filters.
const FILTERS: &[&str] = &[
    "discardcloudservice",
    "endpoints",
    "forwardkubesvctraffic",
    "inclusterconfig",
    "masterservice",
    "nodeportaddresses",
    "nodeportisolation",
    "serviceenvupdater",
    "servicetopology",
];

/// The largest module that may ship, in bytes: servicetopology chooses for each family and port and names the members of its pool.
const LARGEST: usize = 170_000;

/// The same for the modules that edit YAML, each with its own.
///
/// They contain granit-parser, the YAML parser of kube, which needs 110 KB of code and 60 KB of function names, and 10 KB of error
/// messages where they are shown. Tags, anchors and directives are part of it. Only a parser of our own would be smaller.
const LARGEST_WITH_YAML: [(&str, usize); 2] = [("inclusterconfig", 310_000), ("nodeportaddresses", 360_000)];

#[tokio::test]
async fn every_case_of_every_bundled_filter_passes_in_the_host_in_both_encodings() {
    let workbench = Workbench::temporary().unwrap();
    let (mut failures, mut count, mut in_protobuf) = (Vec::new(), 0, 0);
    for filter in FILTERS {
        let path = built::module(filter);
        let module = std::fs::read(&path).unwrap().into();
        let folder = built::workspace().join("filters").join(filter).join("cases");
        let results = run_cases(&workbench, &path, &module, &folder).await.unwrap();
        for result in &results {
            for failure in &result.failures {
                failures.push(format!("{}: {}\n{failure}", result.file.display(), result.name));
            }
        }
        let ran = results.iter().filter(|result| result.in_protobuf).count();
        assert!(ran > 0, "{filter}: no case in protobuf");
        (count, in_protobuf) = (count + results.len(), in_protobuf + ran);
    }
    assert!(failures.is_empty(), "{} of {count} cases failed\n\n{}", failures.len(), failures.join("\n\n"));
    assert!(count >= 9 * 10, "only {count} cases");
    assert!(in_protobuf * 2 > count, "only {in_protobuf} of {count} cases in protobuf");
}

#[test]
fn modules_are_small() {
    for filter in FILTERS {
        let size = std::fs::metadata(built::module(filter)).unwrap().len() as usize;
        let with_yaml = LARGEST_WITH_YAML.iter().find(|(name, _)| name == filter);
        let largest = with_yaml.map_or(LARGEST, |(_, largest)| *largest);
        assert!(size <= largest, "{filter}.wasm has {size} bytes, more than {largest}");
    }
}
