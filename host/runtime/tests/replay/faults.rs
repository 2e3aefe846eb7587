//! Violations of the contract, and changes during a call. Each test has one rule.

use std::sync::mpsc;
use std::time::Duration;

use guest::{Op, Program, Read};
use serde_json::json;
use weir_document::Document;
use weir_runtime::{Outcome, Outcomes};
use weir_spec::Mode;

use super::cluster::Cluster;
use super::dice::Dice;
use super::pair::{Parts, chain, changes, replayed};

fn settings(ops: Vec<Op>) -> String {
    serde_json::to_string(&Program { ops, ..Program::default() }).unwrap()
}

fn service(name: &str) -> Document {
    let object = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": "team"}});
    Document::json(object.to_string().into())
}

fn cluster() -> Cluster {
    Cluster::new(&mut Dice::new(1))
}

#[tokio::test]
async fn a_handle_from_an_earlier_call_is_stale_and_traps() {
    let parts = Parts::new();
    let get = Op::Get("nodepools.apps.openyurt.io".to_owned(), false, "hangzhou".to_owned());
    // Two lookups each: the second call's handles are many, none of which is the kept one.
    let ops = vec![get.clone(), get.clone(), get, Op::KeepHit(Read::Name)];
    let cluster = Cluster::complete();
    let filter = parts.filter(&cluster, "guest", &settings(ops)).await;
    let outcomes: Vec<_> = chain(&filter).run(vec![service("a"), service("b")]).await.into_iter().collect();
    assert!(matches!(outcomes[0], Outcome::Unchanged), "{:?}", outcomes[0]);
    let Outcome::Failed(failure) = &outcomes[1] else { panic!("{:?}", outcomes[1]) };
    assert_eq!(failure.class.label(), "trap");
    assert!(failure.message.contains("stale"), "{failure}");
}

#[tokio::test]
async fn what_is_filtered_again_counts_as_one_failure() {
    let parts = Parts::new();
    let filter = parts.filter(&cluster(), "guest", &settings(vec![Op::Trap(1)])).await;
    let chain = chain(&filter);
    let failed = || parts.metrics.counts(filter.name(), Mode::Enforce).failed;
    let fails = |outcomes: Outcomes| {
        assert!(!outcomes.are_degraded(), "an outcome that is not sent decides nothing");
        let [(outcome, is_degraded)] = &outcomes.with_degraded().collect::<Vec<_>>()[..] else { panic!("one") };
        assert!(matches!(outcome, Outcome::Failed(_)) && *is_degraded, "{outcome:?}");
    };
    fails(chain.run(vec![service("a")]).await);
    assert_eq!(failed(), 1);
    for _ in 0..5 {
        fails(chain.run_again(vec![service("a")]).await);
    }
    assert_eq!(failed(), 1);
    fails(chain.run(vec![service("a")]).await);
    assert_eq!(failed(), 2);
}

#[tokio::test]
async fn a_module_that_logs_once_per_instance_is_replayed_and_not_impure() {
    let parts = Parts::new();
    let filter = parts.filter(&cluster(), "guest", &settings(vec![Op::LogOnce, Op::Read(0, Read::Kind)])).await;
    let chain = chain(&filter);
    let version = chain.version();
    for _ in 0..8 {
        // Enough for spot checks, which make fresh instances.
        chain.run((0..1024).map(|n| service(&n.to_string())).collect()).await;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(parts.metric("weir_filter_impure_total"), 0);
    assert!(replayed(&parts.metrics) > 8000);
    assert_eq!(chain.version(), version);
}

#[tokio::test]
async fn an_impure_module_is_called_for_each_object_and_its_earlier_outcomes_are_out_of_date() {
    let parts = Parts::new();
    // The first nine objects of each instance end otherwise than the others.
    let ops = vec![Op::Read(0, Read::Kind), Op::Count(10), Op::Hide(2)];
    let filter = parts.filter(&cluster(), "guest", &settings(ops)).await;
    let chain = chain(&filter);
    let version = chain.version();
    let mut batches = 0;
    while parts.metric("weir_filter_impure_total") == 0 {
        chain.run((0..64).map(|n| service(&n.to_string())).collect()).await;
        batches += 1;
        assert!(batches < 100, "never found");
    }
    assert!(chain.version() > version, "outcomes before are out of date");
    let before = replayed(&parts.metrics);
    chain.run(vec![service("a"); 8]).await;
    assert_eq!(replayed(&parts.metrics), before, "nothing is replayed any more");
}

/// The object of the second lookup changes during the first lookup, and the change is validated before the call ends.
#[tokio::test]
async fn a_change_during_a_call_makes_its_outcome_out_of_date() {
    let parts = Parts::new();
    let get = |name: &str| Op::Get("nodepools.apps.openyurt.io".to_owned(), false, name.to_owned());
    let ops = vec![get("hangzhou"), get("beijing"), Op::Read(2, Read::Text("status.nodes[0]".to_owned()))];
    let cluster = Cluster::complete();
    let filter = parts.filter(&cluster, "guest", &settings(ops)).await;
    let chain = chain(&filter);
    let version = chain.version();
    cluster.change_in_next_lookup(("nodepools.apps.openyurt.io", "", "beijing"));
    let outcomes: Vec<_> = chain.run(vec![service("a")]).await.into_iter().collect();
    assert!(matches!(outcomes[0], Outcome::Unchanged), "{:?}", outcomes[0]);
    assert!(chain.version() > version, "the outcome is of the state before the change");
    let version = chain.version();
    let changed = changes(&parts.lookups(), &[("nodepools.apps.openyurt.io", "", "beijing")]);
    let snapshot = weir_runtime::ClusterView::snapshot(&cluster);
    assert!(!filter.validate_dependencies(&*snapshot, &changed).await, "nothing is left to be found later");
    chain.run(vec![service("a")]).await;
    assert_eq!(chain.version(), version);
}

#[tokio::test]
async fn time_in_host_calls_is_charged_to_the_call() {
    let parts = Parts::new();
    let find = Op::Find("nodes".to_owned(), false, String::new());
    let cluster = Cluster::complete();
    cluster.stall(Duration::from_millis(30));
    let filter = parts.filter_within(&cluster, "guest", &settings(vec![find; 40]), "100ms").await;
    let began = std::time::Instant::now();
    let outcomes: Vec<_> = chain(&filter).run(vec![service("a")]).await.into_iter().collect();
    let Outcome::Failed(failure) = &outcomes[0] else { panic!("{:?}", outcomes[0]) };
    assert_eq!(failure.class.label(), "time");
    assert!(began.elapsed() < Duration::from_millis(40 * 30), "forty lookups of 30 ms, within 100 ms");
}

/// A module cannot be interrupted within a lookup. The connections of a thread must not wait for it, in a call and in a replay.
#[test]
fn a_lookup_of_thousands_of_objects_does_not_stop_the_other_tasks_of_its_thread() {
    let daemon = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let connections = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let parts = Parts::new();
    let find = Op::Find("nodes".to_owned(), false, String::new());
    let cluster = Cluster::complete();
    let filter = daemon.block_on(parts.filter(&cluster, "guest", &settings(vec![find])));
    // It is taken only by a lookup that waits for it.
    let (other, message) = mpsc::sync_channel(0);
    cluster.find_waits_for(message);
    for round in 0..3 {
        let outcomes = connections.block_on(async {
            let chain = chain(&filter);
            let filtered = chain.run(vec![service("a")]);
            let others = async {
                loop {
                    tokio::task::yield_now().await;
                    let _ = other.try_send(());
                }
            };
            tokio::select! {
                biased;
                outcomes = filtered => outcomes.into_iter().collect::<Vec<_>>(),
                () = others => Vec::new(),
            }
        });
        assert!(matches!(outcomes[..], [Outcome::Unchanged]), "round {round}: {outcomes:?}");
    }
}
