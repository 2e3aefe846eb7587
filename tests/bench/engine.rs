//! Measures filtering of lists on one core, with wasm, natively and against baselines on the same bytes, and the cost
//! of one object. It measures CPU time, so that other load on the machine has little effect.

use std::sync::Arc;

use bytes::Bytes;
use weir::cli::Workbench;
use weir::lookups::FileView;
use weir_document::list::{Batch, ItemOutcome, Piece};
use weir_document::{Document, SplitError, TypeMeta, json, protobuf};
use weir_filter::native::{Environment, Node, Runner};
use weir_filter::{Filter, Verdict};
use weir_kube::VerbClass;
use weir_runtime::{Chain, FilterSet, Outcome};
use weir_spec::{Digest, FilterEntry};
use weir_tests::built;

use crate::baseline::Baseline;
use crate::data;
use crate::list::{BLOCK, Encoding, Kind, List};
use crate::table::{Goal, Table, median};
use crate::usage::thread;

/// The maximum rounds of each measurement. The result is the median.
const ROUNDS: usize = 9;
/// No further round starts after this number of seconds.
const LONG: f64 = 1.5;
/// The size of a body's chunks in bytes.
const CHUNK: usize = 128 << 10;
/// The minimum duration of a round in seconds, because a thread's clock advances by the tick.
const SHORT: f64 = 0.1;

/// When the module is called.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Calls {
    /// As in the daemon, which replays traces.
    Replayed,
    /// For each object, without replay.
    Each,
}

/// Splits and joins a list.
enum Codec {
    Json(json::ListSplitter, json::Joiner),
    Protobuf(protobuf::ListSplitter, protobuf::Joiner),
}

/// The rounds of a measurement.
struct Rounds {
    megabytes: f64,
    /// The number of repetitions in a round.
    times: usize,
    began: f64,
    /// The duration of all rounds in seconds.
    spent: f64,
    /// For each round, the duration of one repetition in seconds.
    once: Vec<f64>,
}

/// Measures the throughput of filtered lists, for both encodings and all sizes.
pub(crate) async fn throughput(table: &mut Table) {
    for kind in Kind::BOTH {
        for encoding in Encoding::BOTH {
            let filter = kind.filters()[0];
            table.heading(&format!("Lists of {} in {}, filter {filter}, one core, MB/s", kind.name(), encoding.name()));
            let lists = [100, 1000, 10_000].map(|count| kind.list(encoding, count));
            table.columns("", &lists.each_ref().map(|list| format!("{:.1} MB", list.megabytes())));
            let mut wasm = Vec::new();
            for calls in Calls::BOTH {
                let chain = chain(kind, calls).await;
                let mut rates = Vec::new();
                for list in &lists {
                    rates.push(Some(through_wasm(&chain, list).await));
                }
                table.cells(&format!("wasm, {}", calls.name()), &rates);
                wasm.push(rates[1]);
            }
            let native = lists.each_ref().map(|list| Some(natively(list)));
            table.cells("native, the same filter and engine", &native);
            for baseline in Baseline::of(encoding) {
                // The baselines need the whole list in memory, so 10,000 objects are ten lists of 1,000.
                let rates = lists.each_ref().map(|list| {
                    let (part, times) = (list.count.min(BLOCK), list.count / list.count.min(BLOCK));
                    let whole = kind.list(encoding, part).whole();
                    Some(rate(list.megabytes(), || {
                        for _ in 0..times {
                            baseline.run(kind, &whole)
                        }
                    }))
                });
                table.cells(baseline.name(), &rates);
            }
            let name = |way: &str| format!("1,000 {} in {}, {way}", kind.name(), encoding.name());
            let least = match (kind, encoding) {
                (Kind::Services, _) => 1000.0,
                (Kind::Slices, Encoding::Json) => 1500.0,
                (Kind::Slices, Encoding::Protobuf) => 2000.0,
            };
            table.keep(&name("through wasm"), wasm[0].unwrap_or_default(), "MB/s", Goal::Least(least));
            table.keep(&name("natively"), native[1].unwrap_or_default(), "MB/s", Goal::Least(2000.0));
        }
    }
}

/// Measures the cost of one object.
pub(crate) async fn call(table: &mut Table) {
    table.heading("Cost of an object from a list, with a warm instance");
    for (what, kind, n) in [
        ("a Service that the filter does not edit", Kind::Services, 3),
        ("an EndpointSlice of 100 endpoints, 90 of them removed", Kind::Slices, 4),
    ] {
        for (encoding, calls) in
            Encoding::BOTH.into_iter().flat_map(|encoding| Calls::BOTH.map(|calls| (encoding, calls)))
        {
            let chain = chain(kind, calls).await;
            let object = kind.object(n).to_string();
            let type_meta = Arc::new(kind.type_meta());
            let object = match encoding {
                Encoding::Json => Bytes::from(object),
                Encoding::Protobuf => protobuf::from_json(&type_meta, &object).unwrap(),
            };
            let batch: Vec<_> = (0..1000).map(|_| document(encoding, object.clone(), &type_meta)).collect();
            let mut rounds = Rounds::of(1.0);
            while let Some(times) = rounds.begin() {
                for _ in 0..times {
                    chain.run(batch.clone()).await;
                }
                rounds.end();
            }
            table.row(&format!("{what}, {}, {}", encoding.name(), calls.name()), 1e6 / (1000.0 * rounds.rate()), "µs");
        }
    }
}

async fn chain(kind: Kind, calls: Calls) -> Chain {
    let filter = kind.filters()[0];
    let world = FileView::new(data::NODE, data::lookups(), Vec::new(), None).unwrap();
    let module = Bytes::from(std::fs::read(built::module(filter)).unwrap());
    let entry = FilterEntry::of(filter.parse().unwrap(), Some(vec!["*/*".parse().unwrap()]));
    let loader = Workbench::temporary().unwrap().loader(world);
    let loaded = loader.load(&entry, "bench".to_owned(), Digest::of(&module), &module, || {}).await.unwrap();
    if calls == Calls::Each {
        loaded.disable_replay();
    }
    let resource = kind.resource().parse().unwrap();
    FilterSet::new(vec![Arc::new(loaded)]).chain("bench", &resource, VerbClass::Read).unwrap()
}

async fn through_wasm(chain: &Chain, list: &List) -> f64 {
    let type_meta = Arc::new(list.kind.type_meta());
    let mut rounds = Rounds::of(list.megabytes());
    while let Some(times) = rounds.begin() {
        for _ in 0..times {
            let mut codec = Codec::new(list.encoding);
            for chunk in list.chunks(CHUNK) {
                codec.push(chunk);
                while let Some(batch) = codec.next() {
                    let items = 0..batch.items.len();
                    let documents = items.map(|n| item(list.encoding, &batch, n, &type_meta)).collect();
                    let outcomes = chain.run(documents).await.into_iter().map(|outcome| match outcome {
                        Outcome::Unchanged => ItemOutcome::Keep,
                        Outcome::Edited(bytes) => ItemOutcome::Edit(bytes),
                        Outcome::Hidden => ItemOutcome::Drop,
                        Outcome::Failed(failure) => panic!("{failure}"),
                    });
                    std::hint::black_box(codec.join(&batch, outcomes.collect()).unwrap());
                }
            }
        }
        rounds.end();
    }
    rounds.rate()
}

fn natively(list: &List) -> f64 {
    match list.kind {
        Kind::Services => run_natively::<nodeportisolation::NodePortIsolation>(list),
        Kind::Slices => run_natively::<servicetopology::ServiceTopology>(list),
    }
}

fn run_natively<F: Filter>(list: &List) -> f64 {
    let world = Environment {
        node: Node { name: data::NODE.to_owned(), ..Node::default() },
        cluster: data::lookups().iter().map(|object| Document::json(Bytes::from(object.to_string()))).collect(),
    };
    let runner = Runner::<F>::new("{}", &world).unwrap();
    let type_meta = Arc::new(list.kind.type_meta());
    rate(list.megabytes(), || {
        let mut codec = Codec::new(list.encoding);
        for chunk in list.chunks(CHUNK) {
            codec.push(chunk);
            while let Some(batch) = codec.next() {
                let outcomes = (0..batch.items.len()).map(|n| {
                    let mut document = item(list.encoding, &batch, n, &type_meta);
                    match runner.filter(&mut document).unwrap() {
                        Verdict::Hide => ItemOutcome::Drop,
                        Verdict::Keep if document.is_edited() => ItemOutcome::Edit(document.bytes().clone()),
                        Verdict::Keep => ItemOutcome::Keep,
                    }
                });
                let outcomes = outcomes.collect();
                std::hint::black_box(codec.join(&batch, outcomes).unwrap());
            }
        }
    })
}

fn document(encoding: Encoding, bytes: Bytes, type_meta: &Arc<TypeMeta>) -> Document {
    match encoding {
        Encoding::Json => Document::json(bytes).with_type(type_meta.clone()),
        Encoding::Protobuf => Document::protobuf(bytes, type_meta.clone()).unwrap(),
    }
}

fn item(encoding: Encoding, batch: &Batch, n: usize, type_meta: &Arc<TypeMeta>) -> Document {
    match encoding {
        Encoding::Json => batch.json(n).unwrap().with_type(type_meta.clone()),
        Encoding::Protobuf => document(encoding, batch.item(n).unwrap(), type_meta),
    }
}

/// Returns the throughput in MB/s.
fn rate(megabytes: f64, mut work: impl FnMut()) -> f64 {
    let mut rounds = Rounds::of(megabytes);
    while let Some(times) = rounds.begin() {
        for _ in 0..times {
            work();
        }
        rounds.end();
    }
    rounds.rate()
}

// === impl Calls ===

impl Calls {
    const BOTH: [Self; 2] = [Self::Replayed, Self::Each];

    fn name(self) -> &'static str {
        match self {
            Self::Replayed => "with trace replay",
            Self::Each => "without replay",
        }
    }
}

// === impl Rounds ===

impl Rounds {
    fn of(megabytes: f64) -> Self {
        Self { megabytes, times: 1, began: thread(), spent: 0.0, once: Vec::new() }
    }

    /// Starts the next round and returns its number of repetitions, or none after the last one.
    fn begin(&mut self) -> Option<usize> {
        self.began = thread();
        let enough = self.once.len() == ROUNDS || self.spent > LONG;
        (!enough).then_some(self.times)
    }

    fn end(&mut self) {
        match thread() - self.began {
            seconds if seconds < SHORT => self.times *= 2,
            seconds => {
                self.spent += seconds;
                self.once.push(seconds / self.times as f64);
            }
        }
    }

    /// Returns the throughput of the median round in MB/s.
    fn rate(self) -> f64 {
        self.megabytes / median(self.once)
    }
}

// === impl Codec ===

impl Codec {
    fn new(encoding: Encoding) -> Self {
        match encoding {
            Encoding::Json => Self::Json(json::ListSplitter::new(), json::Joiner::new()),
            Encoding::Protobuf => Self::Protobuf(protobuf::ListSplitter::new(), protobuf::Joiner::new()),
        }
    }

    fn push(&mut self, chunk: Bytes) {
        match self {
            Self::Json(splitter, _) => splitter.push(chunk),
            Self::Protobuf(splitter, _) => splitter.push(chunk),
        }
    }

    /// Returns the next available batch.
    fn next(&mut self) -> Option<Batch> {
        loop {
            let piece = match self {
                Self::Json(splitter, _) => splitter.next(),
                Self::Protobuf(splitter, _) => splitter.next(),
            };
            if let Piece::Batch(batch) = piece.unwrap()? {
                return Some(batch);
            }
        }
    }

    fn join(&mut self, batch: &Batch, outcomes: Vec<ItemOutcome>) -> Result<Vec<Bytes>, SplitError> {
        match self {
            Self::Json(_, joiner) => joiner.push(batch, outcomes),
            Self::Protobuf(_, joiner) => joiner.push(batch, outcomes),
        }
    }
}
