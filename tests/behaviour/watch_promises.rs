//! What kube-apiserver's watch cache promises holds on views: watches are ordered, unique, reliable, atomic, resumable and
//! bookmarkable, even if connections on both sides of the daemon break.
//!
//! `SEED=n` repeats the writes of a failed run.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::json;
use tokio::sync::watch;
use tokio::task::JoinSet;
use weir_apiserver::{Action, ApiServer, End};
use weir_tests::client::Client;
use weir_tests::daemon::{Daemon, Setup};
use weir_tests::edge::api_server;
use weir_tests::watch_history::{History, version};

use self::recorder::Progress;
use super::service;

mod recorder;

const SERVICES: &str = "/api/v1/services";
const NAMESPACES: [&str; 2] = ["default", "apps"];
/// The objects in each namespace.
const OBJECTS: u64 = 16;
const WRITES: u64 = 1600;
/// The time between two writes. It leaves each client some time between the events of others.
const PACE: Duration = Duration::from_millis(4);
/// Hides LoadBalancer Services from kube-proxy. Other clients are shown all of them.
const HIDE_FROM_KUBE_PROXY: &str = "\
filters:
  - name: discardcloudservice
    module: discardcloudservice.wasm
    match: [\"kube-proxy/services\"]
";

/// Random numbers that a seed determines (splitmix64).
struct Random(u64);

impl Random {
    /// A number below a bound.
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }
}

/// Writes objects at random, and keeps the history.
struct Writer<'a> {
    server: &'a ApiServer,
    weir: &'a Daemon,
    random: Random,
    history: History,
    existing: BTreeSet<(usize, u64)>,
    progress: watch::Sender<Progress>,
}

impl Writer<'_> {
    /// Creates, updates or deletes an object. Updates move objects in and out of the selections and of what is shown.
    fn write(&mut self, step: u64) {
        let (namespace, number) = (self.random.below(2) as usize, self.random.below(OBJECTS));
        let store = self.server.store();
        let name = format!("object-{number}");
        let exists = self.existing.contains(&(namespace, number));
        let written = if exists && self.random.below(4) == 0 {
            self.existing.remove(&(namespace, number));
            let at = store.delete("v1", "Service", NAMESPACES[namespace], &name).unwrap();
            self.history.delete(at, &format!("{}/{name}", NAMESPACES[namespace]));
            at
        } else {
            let kind = ["LoadBalancer", "ClusterIP", "ClusterIP"][self.random.below(3) as usize];
            let mut object = service(&name, kind);
            object["metadata"]["namespace"] = json!(NAMESPACES[namespace]);
            object["metadata"]["annotations"] = json!({"step": step.to_string(), "filler": "x".repeat(2000)});
            object["metadata"]["labels"] = match self.random.below(4) {
                0 => json!({"zone": "east"}),
                tier => json!({"zone": "west", "tier": &"abc"[tier as usize - 1..tier as usize]}),
            };
            self.existing.insert((namespace, number));
            store.put(object).unwrap();
            let object = store.get("v1", "Service", NAMESPACES[namespace], &name).unwrap();
            let at = version(&object);
            self.history.put(object);
            at
        };
        self.progress.send_modify(|progress| progress.written = written);
    }

    async fn writes(&mut self, steps: std::ops::Range<u64>) {
        let mut pace = tokio::time::interval(PACE);
        for step in steps {
            pace.tick().await;
            self.write(step);
            match step % 300 {
                90 => self.server.close_watches(End::Clean),
                180 => self.server.close_watches(End::Abort),
                270 => self.server.break_connections(),
                _ => {}
            }
        }
    }

    /// The reflector's version is compacted while it is cut off: it lists again, and the cache jumps.
    async fn jump(&mut self, steps: std::ops::Range<u64>) {
        let mut requests = self.server.request_count();
        self.server.on_request(|request| match request.path.ends_with("/services") {
            true => Action::json(503, "{}"),
            false => Action::Serve,
        });
        self.server.clear_requests();
        self.server.close_watches(End::Clean);
        let reflector = |request: &weir_apiserver::Recorded| {
            let of_weir = request.path == SERVICES
                && request.query.contains("watch=")
                && request.header("user-agent").starts_with("weir");
            let from = request.query.split('&').find_map(|part| part.strip_prefix("resourceVersion="))?.parse().ok()?;
            of_weir.then_some(from)
        };
        let from: u64 = loop {
            if let Some(from) = self.server.requests().iter().find_map(reflector) {
                break from;
            }
            requests.changed().await.unwrap();
        };
        self.writes(steps).await;
        self.server.compact();
        self.server.clear_hook();
        let newest = self.server.store().revision();
        let client = Client::new(self.weir.url(), "kube-proxy");
        let path = format!("{SERVICES}?resourceVersion={newest}&resourceVersionMatch=NotOlderThan");
        let to = loop {
            let answer = client.get(&path).await;
            if answer.status == 200 {
                break version(&answer.json());
            }
        };
        self.history.jump(from, to);
    }
}

fn seed() -> u64 {
    let random = || std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().subsec_nanos().into();
    std::env::var("SEED").map_or_else(|_| random(), |seed| seed.parse().expect("SEED is a number"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watches_of_views_keep_the_promises_of_a_watch_cache() {
    let seed = seed();
    println!("SEED={seed} repeats the writes and the cuts of the clients");
    let server = api_server().start().await.unwrap();
    let weir =
        Setup::new(server.url()).bundled("discardcloudservice").filters(HIDE_FROM_KUBE_PROXY).start_ready().await;
    let (progress, observed) = watch::channel(Progress::default());
    let (existing, history) = (BTreeSet::new(), History::default());
    let mut writer = Writer { server: &server, weir: &weir, random: Random(seed), history, existing, progress };
    // The views exist before the clients: they know what they have shown them.
    writer.write(0);
    for component in ["kube-proxy", "tool"] {
        weir.client(component).json(&format!("{SERVICES}?resourceVersion=0")).await;
    }
    weir.settled(&server).await;
    (1..40).for_each(|step| writer.write(step));
    let mut clients = JoinSet::new();
    for (number, recorder) in recorder::all().into_iter().enumerate() {
        let (url, observed) = (weir.url().to_owned(), observed.clone());
        clients.spawn(recorder.run(url, Random(seed ^ (number as u64 + 1)), observed));
    }
    writer.writes(40..WRITES / 2).await;
    writer.jump(WRITES / 2..WRITES / 2 + 60).await;
    writer.writes(WRITES / 2 + 60..WRITES).await;
    writer.progress.send_modify(|progress| progress.ended = true);
    let (mut violations, mut counts) = (Vec::new(), Vec::new());
    while let Some(ended) = clients.join_next().await {
        let (viewer, session, counted) = ended.unwrap_or_else(|error| panic!("SEED={seed}: {error}"));
        violations.extend(writer.history.check(&viewer, &session));
        counts.push(format!("{}: {counted:?}", viewer.name));
    }
    println!("{}", counts.join("\n"));
    let first: Vec<_> = violations.iter().take(20).map(ToString::to_string).collect();
    assert!(violations.is_empty(), "SEED={seed}: {} violations, the first:\n{}", violations.len(), first.join("\n"));
}
