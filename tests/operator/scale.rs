//! Fifty pools: the bound of requests, quiet when nothing changes, and memory.

use std::time::{Duration, Instant};

use serde_json::json;

use super::cluster::{Cluster, DEPLOYMENTS, INGRESSES, spec};
use super::process::Operator;

/// What the operator may need.
const RESIDENT_BYTES: f64 = 30.0 * 1024.0 * 1024.0;

#[tokio::test]
async fn fifty_pools_cost_ten_requests_a_second_and_none_at_rest() {
    let Some(cluster) = Cluster::start().await else { return };
    let names: Vec<_> = (0..50).map(|at| format!("pool-{at:02}")).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    for name in &names {
        cluster.add_pool(name).await;
    }
    let operator = Operator::start(&cluster, &[]).await;
    let (begun, before) = (Instant::now(), operator.requests().await);
    cluster.add_ingress("edge", spec(&names)).await;
    cluster.status("edge", |status| (status["unreadyNum"] == 50).then_some(())).await;
    let (took, requests) = (begun.elapsed(), operator.requests().await - before);
    let rate = requests / took.as_secs_f64();
    println!("50 pools: {requests} requests in {took:.1?}, {rate:.1} a second");
    assert!(requests >= 300.0, "six objects for each pool");
    assert!(rate <= 10.5, "{rate}");
    for name in &names {
        cluster.deployed(&format!("traefik-{name}")).await;
    }
    cluster.status("edge", |status| (status["readyNum"] == 50).then_some(())).await;
    operator.logged("holds the Lease").await;
    // Nothing changes: the bound of a watch is minutes, so that a few seconds show everything that repeats itself.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let before = operator.requests().await;
    tokio::time::sleep(Duration::from_secs(6)).await;
    let at_rest = operator.requests().await - before;
    let resident = operator.metric("process_resident_memory_bytes").await;
    println!("at rest: {at_rest} requests in 6 s; {:.1} MB resident", resident / 1024.0 / 1024.0);
    // A renewal of the Lease may be between its two requests.
    assert!(at_rest.abs() <= 1.0, "{at_rest}");
    assert!(resident < RESIDENT_BYTES, "{resident}");

    // A restart finds everything as it should be.
    operator.kill().await;
    let operator = Operator::start(&cluster, &[]).await;
    operator.logged("holds the Lease").await;
    let mut spec = spec(&names);
    spec["pools"][0]["replicas"] = 2.into();
    cluster.merge(&format!("{INGRESSES}/edge"), json!({"spec": spec})).await;
    cluster.wait(DEPLOYMENTS, "traefik-pool-00", |it| (it?["spec"]["replicas"] == 2).then_some(())).await;
    operator.settled().await;
    assert_eq!(operator.metric("weir_operator_objects_total").await, 1.0, "nothing else was applied");
    operator.stop().await;
}
