//! List in, list out, on one core: through wasm, natively, and baselines over the same bytes; and what one call costs.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use serde_json::Value;
use weir::author::loader;
use weir::config::{Class, Digest, FilterEntry};
use weir::feed::FileWorld;
use weir::filter::{Chain, FilterSet, Outcome};
use weir_document::json::{Joiner, ListSplitter, Outcome as Join, Piece};
use weir_document::{Document, TypeMeta};
use weir_filter::Verdict;
use weir_filter::native::{Node, Runner, World};
use weir_tests::built;

use crate::data;
use crate::table::{Goal, Table, median};

/// Rounds of each measurement; the median counts.
const ROUNDS: usize = 9;
/// Bytes of a body that arrive at once.
const CHUNK: usize = 64 << 10;
/// The local node of the benches.
const NODE: &str = "node-0000";

struct Input {
    what: &'static str,
    filter: &'static str,
    resource: &'static str,
    type_meta: TypeMeta,
    list: Bytes,
}

fn inputs() -> [Input; 2] {
    let meta = |api_version: &str, kind: &str| TypeMeta { api_version: api_version.to_owned(), kind: kind.to_owned() };
    [
        Input {
            what: "5,000 Services of 2 KB",
            filter: "nodeportisolation",
            resource: "services",
            type_meta: meta("v1", "Service"),
            list: data::services(),
        },
        Input {
            what: "1,000 EndpointSlices of 100 endpoints",
            filter: "servicetopology",
            resource: "endpointslices",
            type_meta: meta("discovery.k8s.io/v1", "EndpointSlice"),
            list: data::slices(),
        },
    ]
}

/// The objects that filters look up.
fn cluster() -> Vec<Value> {
    data::cluster().into_iter().chain((0..1000).map(data::service)).collect()
}

/// Filtered list throughput.
pub(crate) async fn throughput(table: &mut Table) {
    for input in inputs() {
        let megabytes = input.list.len() as f64 / 1e6;
        table.heading(&format!("{} ({megabytes:.1} MB of JSON), filter {}, one core", input.what, input.filter));
        let chain = chain(input.filter, input.resource).await;
        let type_meta = Arc::new(input.type_meta.clone());
        let mut rates = Vec::new();
        let mut sent = 0;
        for _ in 0..ROUNDS {
            let began = Instant::now();
            sent = through_wasm(&chain, &type_meta, &input.list).await;
            rates.push(megabytes / began.elapsed().as_secs_f64());
        }
        table.goal(&format!("{}: through wasm", input.what), median(rates), "MB/s", Goal::Least(250.0));
        table.row("of which is left", sent as f64 / 1e6, "MB");
        let native = match input.filter {
            "servicetopology" => natively::<servicetopology::ServiceTopology>(&type_meta, &input.list),
            _ => natively::<nodeportisolation::NodePortIsolation>(&type_meta, &input.list),
        };
        table.row("natively, the same filter and engine without wasm", native, "MB/s");
        table.row(
            "baseline: serde_json::Value decoded and encoded, no filter",
            rate(megabytes, || decoded(&input.list)),
            "MB/s",
        );
        table.row(
            "baseline: the bytes copied once",
            rate(megabytes, || std::hint::black_box(input.list.to_vec()).len()),
            "MB/s",
        );
    }
}

/// What one call of a filter costs.
pub(crate) async fn call(table: &mut Table) {
    table.heading("Cost of a call, warm instance, the object as it comes from a list");
    let small = Bytes::from(data::service(3).to_string());
    let slice = Bytes::from(data::slice(4, 100).to_string());
    for (what, filter, resource, object) in [
        ("a Service that the filter leaves after two reads", "nodeportisolation", "services", small),
        ("an EndpointSlice of 100 endpoints, 90 of them cut", "servicetopology", "endpointslices", slice),
    ] {
        let chain = chain(filter, resource).await;
        let batch: Vec<_> = (0..1000).map(|_| Document::json(object.clone())).collect();
        let mut times = Vec::new();
        for _ in 0..ROUNDS {
            let began = Instant::now();
            chain.run(batch.clone()).await;
            times.push(began.elapsed().as_secs_f64() * 1e6 / 1000.0);
        }
        table.row(what, median(times), "µs");
    }
}

async fn chain(filter: &str, resource: &str) -> Chain {
    let world = FileWorld::new(NODE, cluster(), Vec::new(), None).unwrap();
    let module = Bytes::from(std::fs::read(built::module(filter)).unwrap());
    let entry = FilterEntry::of(filter.parse().unwrap(), Some(vec!["*/*".parse().unwrap()]));
    let loader = loader(Arc::new(world)).unwrap();
    let loaded = loader.load(&entry, "bench".to_owned(), Digest::of(&module), &module).await.unwrap();
    FilterSet::new(vec![Arc::new(loaded)]).chain("bench", &resource.parse().unwrap(), Class::Read).unwrap()
}

async fn through_wasm(chain: &Chain, type_meta: &Arc<TypeMeta>, list: &Bytes) -> usize {
    let (mut splitter, mut joiner, mut sent) = (ListSplitter::new(), Joiner::new(), 0);
    for chunk in list.chunks(CHUNK) {
        splitter.push(list.slice_ref(chunk));
        while let Some(piece) = splitter.next().unwrap() {
            let Piece::Batch(batch) = piece else { continue };
            let documents = (0..batch.items.len())
                .map(|n| Document::json(batch.item(n).unwrap()).with_type(type_meta.clone()))
                .collect();
            let outcomes = chain.run(documents).await.into_iter().map(|outcome| match outcome {
                Outcome::Unchanged => Join::Keep,
                Outcome::Edited(bytes) => Join::Edit(bytes),
                Outcome::Hidden => Join::Drop,
                Outcome::Failed(failure) => panic!("{failure}"),
            });
            sent += joiner.push(&batch, outcomes).unwrap().iter().map(Bytes::len).sum::<usize>();
        }
    }
    sent
}

fn natively<F: weir_filter::Filter>(type_meta: &Arc<TypeMeta>, list: &Bytes) -> f64 {
    let world = World {
        node: Node { name: NODE.to_owned(), ..Node::default() },
        cluster: cluster().iter().map(|object| Document::json(Bytes::from(object.to_string()))).collect(),
    };
    let runner = Runner::<F>::new("{}", &world).unwrap();
    rate(list.len() as f64 / 1e6, || {
        let (mut splitter, mut joiner, mut sent) = (ListSplitter::new(), Joiner::new(), 0);
        for chunk in list.chunks(CHUNK) {
            splitter.push(list.slice_ref(chunk));
            while let Some(piece) = splitter.next().unwrap() {
                let Piece::Batch(batch) = piece else { continue };
                let outcomes = (0..batch.items.len()).map(|n| {
                    let mut document = Document::json(batch.item(n).unwrap()).with_type(type_meta.clone());
                    match runner.filter(&mut document).unwrap() {
                        Verdict::Hide => Join::Drop,
                        Verdict::Keep if document.is_edited() => Join::Edit(document.bytes().clone()),
                        Verdict::Keep => Join::Keep,
                    }
                });
                let outcomes: Vec<_> = outcomes.collect();
                sent += joiner.push(&batch, outcomes).unwrap().iter().map(Bytes::len).sum::<usize>();
            }
        }
        sent
    })
}

fn decoded(list: &Bytes) -> usize {
    let value: Value = serde_json::from_slice(list).unwrap();
    serde_json::to_vec(&value).unwrap().len()
}

fn rate(megabytes: f64, work: impl Fn() -> usize) -> f64 {
    let rates = (0..ROUNDS).map(|_| {
        let began = Instant::now();
        std::hint::black_box(work());
        megabytes / began.elapsed().as_secs_f64()
    });
    median(rates.collect())
}
