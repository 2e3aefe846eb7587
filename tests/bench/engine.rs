//! List in, list out, on one core: through wasm, natively, and baselines over the same bytes; and what one object costs.
//! Time is the processor's, so that what else runs on the machine counts little.

use std::sync::Arc;

use bytes::Bytes;
use weir::cli::loader;
use weir::lookups::FileWorld;
use weir_document::list::{Batch, Outcome as Join, Piece};
use weir_document::{Document, SplitError, TypeMeta, json, protobuf};
use weir_filter::native::{Node, Runner, World};
use weir_filter::{Filter, Verdict};
use weir_kube::Class;
use weir_runtime::{Chain, FilterSet, Outcome};
use weir_runtime::{Digest, FilterEntry};
use weir_tests::built;

use crate::baseline::Baseline;
use crate::data;
use crate::list::{BLOCK, Encoding, Kind, List};
use crate::table::{Goal, Table, median};
use crate::usage::thread;

/// Rounds of each measurement, unless they take too long; the median counts.
const ROUNDS: usize = 9;
/// Seconds after which no other round begins.
const LONG: f64 = 1.5;
/// Bytes of a body that arrive at once.
const CHUNK: usize = 128 << 10;
/// Seconds that a round takes at least: the clock of a thread moves by the tick.
const SHORT: f64 = 0.1;

/// When the module is called.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Calls {
    /// As the daemon does: where nothing is replayed.
    Replayed,
    /// For each object.
    Each,
}

/// A list as it is taken apart and written again.
enum Wire {
    Json(json::ListSplitter, json::Joiner),
    Protobuf(protobuf::ListSplitter, protobuf::Joiner),
}

/// A measurement round by round.
struct Rounds {
    megabytes: f64,
    /// How often the work is done in a round.
    times: usize,
    began: f64,
    /// Seconds that the rounds took together.
    spent: f64,
    /// Seconds that the work took once, of each round.
    once: Vec<f64>,
}

/// Filtered list throughput, both encodings and all sizes.
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
                table.cells(&format!("through wasm, {}", calls.name()), &rates);
                wasm.push(rates[1]);
            }
            let native = lists.each_ref().map(|list| Some(natively(list)));
            table.cells("natively, the same filter and engine", &native);
            for baseline in Baseline::of(encoding) {
                // What is decoded has to be there as a whole: a list of 10,000 is ten of 1,000.
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

/// What one object costs.
pub(crate) async fn call(table: &mut Table) {
    table.heading("Cost of an object, warm instance, the object as it comes from a list");
    for (what, kind, n) in [
        ("a Service that the filter leaves", Kind::Services, 3),
        ("an EndpointSlice of 100 endpoints, 90 of them cut", Kind::Slices, 4),
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
    let world = FileWorld::new(data::NODE, data::lookups(), Vec::new(), None).unwrap();
    let module = Bytes::from(std::fs::read(built::module(filter)).unwrap());
    let entry = FilterEntry::of(filter.parse().unwrap(), Some(vec!["*/*".parse().unwrap()]));
    let loader = loader(Arc::new(world)).unwrap();
    let loaded = loader.load(&entry, "bench".to_owned(), Digest::of(&module), &module).await.unwrap();
    if calls == Calls::Each {
        loaded.disable_replay();
    }
    let resource = kind.resource().parse().unwrap();
    FilterSet::new(vec![Arc::new(loaded)]).chain("bench", &resource, Class::Read).unwrap()
}

async fn through_wasm(chain: &Chain, list: &List) -> f64 {
    let type_meta = Arc::new(list.kind.type_meta());
    let mut rounds = Rounds::of(list.megabytes());
    while let Some(times) = rounds.begin() {
        for _ in 0..times {
            let mut wire = Wire::new(list.encoding);
            for chunk in list.chunks(CHUNK) {
                wire.push(chunk);
                while let Some(batch) = wire.next() {
                    let items = 0..batch.items.len();
                    let documents = items.map(|n| item(list.encoding, &batch, n, &type_meta)).collect();
                    let outcomes = chain.run(documents).await.into_iter().map(|outcome| match outcome {
                        Outcome::Unchanged => Join::Keep,
                        Outcome::Edited(bytes) => Join::Edit(bytes),
                        Outcome::Hidden => Join::Drop,
                        Outcome::Failed(failure) => panic!("{failure}"),
                    });
                    std::hint::black_box(wire.join(&batch, outcomes.collect()).unwrap());
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
    let world = World {
        node: Node { name: data::NODE.to_owned(), ..Node::default() },
        cluster: data::lookups().iter().map(|object| Document::json(Bytes::from(object.to_string()))).collect(),
    };
    let runner = Runner::<F>::new("{}", &world).unwrap();
    let type_meta = Arc::new(list.kind.type_meta());
    rate(list.megabytes(), || {
        let mut wire = Wire::new(list.encoding);
        for chunk in list.chunks(CHUNK) {
            wire.push(chunk);
            while let Some(batch) = wire.next() {
                let outcomes = (0..batch.items.len()).map(|n| {
                    let mut document = item(list.encoding, &batch, n, &type_meta);
                    match runner.filter(&mut document).unwrap() {
                        Verdict::Hide => Join::Drop,
                        Verdict::Keep if document.is_edited() => Join::Edit(document.bytes().clone()),
                        Verdict::Keep => Join::Keep,
                    }
                });
                let outcomes = outcomes.collect();
                std::hint::black_box(wire.join(&batch, outcomes).unwrap());
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

/// MB/s of some work over so many MB.
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
            Self::Replayed => "replayed where possible",
            Self::Each => "each by a call",
        }
    }
}

// === impl Rounds ===

impl Rounds {
    fn of(megabytes: f64) -> Self {
        Self { megabytes, times: 1, began: thread(), spent: 0.0, once: Vec::new() }
    }

    /// How often the work is to be done in the next round; none when there are enough.
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

    /// MB/s of the median round.
    fn rate(self) -> f64 {
        self.megabytes / median(self.once)
    }
}

// === impl Wire ===

impl Wire {
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

    /// The next batch that is there.
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

    fn join(&mut self, batch: &Batch, outcomes: Vec<Join>) -> Result<Vec<Bytes>, SplitError> {
        match self {
            Self::Json(_, joiner) => joiner.push(batch, outcomes),
            Self::Protobuf(_, joiner) => joiner.push(batch, outcomes),
        }
    }
}
