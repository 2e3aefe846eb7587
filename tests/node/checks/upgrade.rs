//! The daemon of the last version is replaced by this one, with its disk, its certificate and its clients.
//!
//! Where this version stands in for the last one, the pod, its image and its manifest change all the same.

use serde_json::Value;

use super::{WEIR_PODS, World, clients, items};
use crate::SERVER_NAME;
use crate::cluster::deploy;
use crate::guide::Guide;
use crate::images;
use crate::kubectl::holds;

/// The image of the last version, as manifests name it.
pub(super) const OTHER: &str = "weir:previous";

/// kube-proxy's pod.
const KUBE_PROXY: &[&str] = &["-n", "kube-system", "get", "pods", "-l", "k8s-app=kube-proxy"];
const ROLLED_OUT: &[&str] = &["-n", "kube-system", "rollout", "status", "daemonset/weir", "--timeout=90s"];

pub(super) fn replaced_by_the_next_version(world: &World<'_>) {
    let admin = &world.admin;
    let folder = images::previous_checkout().map_or_else(|| deploy(""), |checkout| checkout.join("deploy"));
    let manifests = admin.run(&["kustomize", &folder.display().to_string()]);
    let current = images::WEIR.trim_start_matches("docker.io/library/");
    let former = manifests.replace(&format!("image: {current}"), &format!("image: {OTHER}"));
    assert_ne!(former, manifests, "the manifests name {current}");
    admin.apply(&former);
    admin.run(ROLLED_OUT);
    assert_eq!(image(world), OTHER);
    clients::restart_kube_proxy(world);
    world.kube_proxy_follows();
    let state = || (world.requests(), restarts(&admin.json(KUBE_PROXY).unwrap()));
    let (before, listed) = (state(), lists(world));

    admin.run(&["apply", "-k", &deploy("").display().to_string()]);
    admin.run(ROLLED_OUT);
    world.weir_is_ready();
    assert_eq!(image(world), current);
    world.kube_proxy_follows();
    // No certificate was requested; the cache on disk went on with a watch; no client started or listed again.
    assert_eq!(state(), before, "certificate requests, restarts of kube-proxy");
    // The history is asked for once, by names, uids and versions; the stamp of the start by one object.
    let lists = lists(world) - listed;
    assert!(lists <= 2.0, "{lists} lists of EndpointSlices");

    page(world).follow("DaemonSet");
    assert_eq!(image(world), current);
    world.kube_proxy_follows();
}

/// The page, whose next version is the last one here: upgrades and roll-backs are the same commands.
pub(super) fn page(world: &World<'_>) -> Guide {
    world
        .page("upgrade.md")
        .replacing("registry.example/weir:0.2.0", OTHER)
        .replacing("image.tag=0.2.0", "image.tag=previous")
        .replacing("https://10.0.0.1:6443", &format!("https://{SERVER_NAME}:6443"))
}

/// The image of Weir's pod.
fn image(world: &World<'_>) -> String {
    let pods = world.admin.json(WEIR_PODS).unwrap();
    let running = items(&pods).iter().find(|pod| holds(pod, "Ready")).expect("a pod is Ready");
    running["spec"]["containers"][0]["image"].as_str().unwrap().to_owned()
}

/// How many lists of EndpointSlices the API server has answered.
fn lists(world: &World<'_>) -> f64 {
    let metrics = world.admin.run(&["get", "--raw", "/metrics"]);
    let counted = metrics.lines().filter(|line| {
        line.starts_with("apiserver_request_total{")
            && line.contains(r#"resource="endpointslices""#)
            && line.contains(r#"verb="LIST""#)
    });
    counted.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
}

/// The identity and the restarts of the pods of a list.
fn restarts(pods: &Value) -> Vec<(Value, Value)> {
    let of =
        |pod: &Value| (pod["metadata"]["uid"].clone(), pod["status"]["containerStatuses"][0]["restartCount"].clone());
    items(pods).iter().map(of).collect()
}
