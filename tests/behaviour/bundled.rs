//! Runs the bundled filters as modules in the host, with the case files that each crate runs natively, in protobuf and
//! in JSON.

use std::sync::Arc;

use serde_json::Value;
use weir::cli::loader;
use weir::lookups::FileView;
use weir_document::{Document, resource_of};
use weir_filter::cases::{Case, CaseFile, CaseOutcome, Coverage};
use weir_kube::GroupResource;
use weir_kube::InterfaceAddress;
use weir_kube::VerbClass;
use weir_runtime::{Digest, FilterEntry};
use weir_runtime::{Endpoint, StartError};
use weir_runtime::{FilterSet, Outcome};
use weir_runtime::{LoadError, Loader};
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

/// The number of copies of each object. The host calls the filter for the first ones and replays their trace for the
/// last.
const ALIKE: usize = 8;

/// The largest module that may ship, in bytes.
const LARGEST: usize = 150_000;

/// The largest `inclusterconfig.wasm` that may ship: its size of 285,829 bytes and 5 %.
///
/// It contains granit-parser, the YAML parser of kube, which needs 110 KB of code and 60 KB of function names. Without the
/// names, and with all of the module optimized for size, it still has 206 KB. The parser has no features to turn off: its
/// error messages are already off, and tags, anchors and directives are part of it. Only a parser of our own would be
/// smaller.
const LARGEST_WITH_YAML: usize = 300_000;

#[tokio::test]
async fn every_case_of_every_bundled_filter_passes_in_the_host_in_both_encodings() {
    let (mut failures, mut count, mut in_protobuf) = (Vec::new(), 0, 0);
    for filter in FILTERS {
        let module = std::fs::read(built::module(filter)).unwrap().into();
        let folder = built::workspace().join("filters").join(filter).join("cases");
        let mut coverage = Coverage::default();
        for (path, file) in CaseFile::read_all(&folder).unwrap() {
            for case in &file.cases {
                count += 1;
                for failure in check(filter, &module, &file, case, &mut coverage).await {
                    failures.push(format!("{}: {}\n{failure}", path.display(), case.name));
                }
            }
        }
        assert!(coverage.ran > 0, "{filter}: no case in protobuf");
        in_protobuf += coverage.ran;
    }
    assert!(failures.is_empty(), "{} of {count} cases failed\n\n{}", failures.len(), failures.join("\n\n"));
    assert!(count >= 9 * 10, "only {count} cases");
    assert!(in_protobuf * 2 > count, "only {in_protobuf} of {count} cases in protobuf");
}

#[test]
fn modules_are_small() {
    for filter in FILTERS {
        let size = std::fs::metadata(built::module(filter)).unwrap().len() as usize;
        let largest = if *filter == "inclusterconfig" { LARGEST_WITH_YAML } else { LARGEST };
        assert!(size <= largest, "{filter}.wasm has {size} bytes, more than {largest}");
    }
}

/// Runs a case in both encodings on the same instances, as in the daemon. Returns the failures.
async fn check(
    filter: &str,
    module: &bytes::Bytes,
    file: &CaseFile,
    case: &Case,
    coverage: &mut Coverage,
) -> Vec<String> {
    let loader = loader(Arc::new(world(file, case))).unwrap();
    let set = match load(&loader, filter, module, &file.settings(case)).await {
        Ok(set) => set,
        Err(LoadError::Start(error @ (StartError::Settings(_) | StartError::Fault(_)))) => {
            return case.compare(&CaseOutcome::ConfigureFailed(error.to_string())).err().into_iter().collect();
        }
        Err(error) => panic!("{filter}: {}: {error}", case.name),
    };
    let json = run(&set, Document::json(case.input())).await;
    let mut failures: Vec<String> = case.compare(&json).err().into_iter().collect();
    if let Some(input) = coverage.input(case) {
        let protobuf = run(&set, input.document()).await;
        failures.extend(input.compare(case, &json, &protobuf).err());
    }
    failures
}

async fn load(loader: &Loader, filter: &str, module: &bytes::Bytes, settings: &str) -> Result<FilterSet, LoadError> {
    let Ok(Value::Object(settings)) = serde_json::from_str(settings) else {
        panic!("settings are objects: {settings}")
    };
    let entry =
        FilterEntry { settings, ..FilterEntry::of(filter.parse().unwrap(), Some(vec!["*/*".parse().unwrap()])) };
    let loaded = loader.load(&entry, "test".to_owned(), Digest::of(module), module).await?;
    Ok(FilterSet::new(vec![Arc::new(loaded)]))
}

async fn run(set: &FilterSet, document: Document) -> CaseOutcome {
    let resource = resource_of(&document.api_version().unwrap_or_default(), &document.kind().unwrap_or_default());
    let resource = resource.parse().unwrap_or_else(|_| GroupResource::new(&resource, ""));
    let chain = set.chain("test", &resource, VerbClass::Read).unwrap();
    let made = chain.run(vec![document.clone(); ALIKE]).await;
    let mut outcomes: Vec<_> = made.into_iter().map(|made| outcome(made, &document)).collect();
    let first = outcomes.swap_remove(0);
    // After repeated failures the circuit breaker stops calls.
    if !matches!(first, CaseOutcome::Failed { .. }) {
        assert!(outcomes.iter().all(|other| *other == first), "{first:?} at first, then {outcomes:?}");
    }
    first
}

fn outcome(made: Outcome, document: &Document) -> CaseOutcome {
    match made {
        Outcome::Unchanged => CaseOutcome::Kept(document.bytes().clone()),
        Outcome::Edited(bytes) => CaseOutcome::Kept(bytes),
        Outcome::Hidden => CaseOutcome::Hidden,
        Outcome::Failed(failure) => {
            CaseOutcome::Failed { class: failure.class.label(), message: failure.message.to_string() }
        }
    }
}

fn world(file: &CaseFile, case: &Case) -> FileView {
    let environment = file.environment(case);
    let addresses = environment.node.addresses.iter().map(|address| InterfaceAddress {
        interface_name: address.interface_name.clone(),
        ip: address.ip.parse().unwrap(),
        prefix_length: address.prefix_length,
        default_route: address.default_route,
    });
    let endpoint = environment.node.endpoint.map(|endpoint| Endpoint { host: endpoint.host, port: endpoint.port });
    let objects = file.cluster(case).map(|json| serde_json::from_str::<Value>(&json).unwrap());
    FileView::new(&environment.node.name, objects, addresses.collect(), endpoint).unwrap()
}
