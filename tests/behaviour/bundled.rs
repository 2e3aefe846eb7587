//! The bundled filters as built modules in the host, by the same case files that each crate runs natively.

use std::sync::Arc;

use serde_json::Value;
use weir::author::loader;
use weir::config::{Class, Digest, FilterEntry};
use weir::feed::FileWorld;
use weir::filter::{FilterSet, Outcome as Made};
use weir::module::{LoadError, Loader};
use weir::resource::GroupResource;
use weir::wasm::{Address, Endpoint, StartError};
use weir_document::{Document, resource_of};
use weir_filter::cases::{Case, CaseFile, Outcome};
use weir_tests::built;

/// Filters and the least number of cases each must have.
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

/// The largest module that may ship, in bytes.
const LARGEST: usize = 150_000;

#[tokio::test]
async fn every_case_of_every_bundled_filter_holds_in_the_host() {
    let (mut failures, mut count) = (Vec::new(), 0);
    for filter in FILTERS {
        let module = std::fs::read(built::module(filter)).unwrap().into();
        let folder = built::workspace().join("filters").join(filter).join("cases");
        for (path, file) in CaseFile::read_all(&folder).unwrap() {
            for case in &file.cases {
                count += 1;
                let outcome = in_host(filter, &module, &file, case).await;
                if let Err(difference) = case.judge(&outcome) {
                    failures.push(format!("{}: {}\n{difference}", path.display(), case.name));
                }
            }
        }
    }
    assert!(failures.is_empty(), "{} of {count} cases failed\n\n{}", failures.len(), failures.join("\n\n"));
    assert!(count >= 9 * 10, "only {count} cases");
}

#[test]
fn modules_are_small() {
    for filter in FILTERS {
        let size = std::fs::metadata(built::module(filter)).unwrap().len() as usize;
        assert!(size <= LARGEST, "{filter}.wasm has {size} bytes, more than {LARGEST}");
    }
}

async fn in_host(filter: &str, module: &bytes::Bytes, file: &CaseFile, case: &Case) -> Outcome {
    let loader = loader(Arc::new(world(file, case))).unwrap();
    match load(&loader, filter, module, &file.settings(case)).await {
        Ok(set) => run(&set, case).await,
        Err(LoadError::Start(error @ (StartError::Settings(_) | StartError::Fault(_)))) => {
            Outcome::ConfigureFailed(error.to_string())
        }
        Err(error) => panic!("{filter}: {}: {error}", case.name),
    }
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

async fn run(set: &FilterSet, case: &Case) -> Outcome {
    let input = case.input();
    let value: Value = serde_json::from_slice(&input).unwrap_or_default();
    let text = |key: &str| value[key].as_str().unwrap_or_default();
    let resource = resource_of(text("apiVersion"), text("kind"));
    let resource = resource.parse().unwrap_or_else(|_| GroupResource::new(&resource, ""));
    let chain = set.chain("test", &resource, Class::Read).unwrap();
    match chain.run(vec![Document::json(input.clone())]).await.pop().unwrap() {
        Made::Unchanged => Outcome::Kept(input),
        Made::Edited(bytes) => Outcome::Kept(bytes),
        Made::Hidden => Outcome::Hidden,
        Made::Failed(failure) => Outcome::Failed(failure.message.to_string()),
    }
}

fn world(file: &CaseFile, case: &Case) -> FileWorld {
    let world = file.world(case);
    let addresses = world.node.addresses.iter().map(|address| Address {
        interface_name: address.interface_name.clone(),
        ip: address.ip.parse().unwrap(),
        prefix_length: address.prefix_length,
        default_route: address.default_route,
    });
    let endpoint = world.node.endpoint.map(|endpoint| Endpoint { host: endpoint.host, port: endpoint.port });
    let objects = file.cluster(case).map(|json| serde_json::from_str::<Value>(&json).unwrap());
    FileWorld::new(&world.node.name, objects, addresses.collect(), endpoint).unwrap()
}
