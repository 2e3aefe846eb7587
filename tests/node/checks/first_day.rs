//! `deploy/first-day.md`, and the installations of `deploy/README.md`, word by word.

use super::World;
use crate::SERVER_NAME;
use crate::guide::Guide;
use crate::outage::Link;

/// Follows the page on the DaemonSet that runs.
pub(super) fn follow(world: &World<'_>) {
    let guide = Guide::of("first-day.md", &world.cloud.file("admin.kubeconfig"));
    for heading in [
        "See",
        "Ask why",
        "Turn one filter off",
        "Turn all filters off",
        "Roll a filter set back",
        "Roll Weir back",
        "Prepare to lose the cloud",
    ] {
        guide.follow(heading);
    }
    Link::Node.cut();
    guide.follow("Lose the cloud");
    Link::Node.mend();
    guide.follow("Get the cloud back");
    world.admin.run(&["annotate", "service", "web", "openyurt.io/topologyKeys-"]);
}

/// Installs the chart where nothing of Weir is left, and removes it.
pub(super) fn chart(world: &World<'_>) {
    let admin = world.cloud.file("admin.kubeconfig");
    let removing = Guide::of("upgrade.md", &admin);
    removing.follow("Remove Weir");
    let installing = Guide::of("README.md", &admin)
        .replacing("https://10.0.0.1:6443", &format!("https://{SERVER_NAME}:6443"))
        .replacing("registry.example/weir", "weir");
    installing.follow("Helm");
    world.weir_is_ready();
    let page = Guide::of("first-day.md", &admin);
    page.follow("The same with the chart");
    let filters = world.admin.json(&["-n", "kube-system", "get", "configmap", "weir-filters"]).unwrap();
    for name in ["servicetopology", "masterservice", "inclusterconfig", "serviceenvupdater", "forwardkubesvctraffic"] {
        assert_eq!(filters["data"][format!("filter_{name}")], "", "{name} is off: {}", filters["data"]);
    }
    page.follow("Roll the release back");
    page.follow("Restore what kubectl has changed");
    page.follow("Test and uninstall it");
    let pods = ["-n", "kube-system", "get", "pods", "-l", "app.kubernetes.io/instance=weir"];
    let () = world.admin.wait("all pods are gone", &pods, |pods| pods["items"].as_array()?.is_empty().then_some(()));
    world.admin.run(&["annotate", "service", "web", "openyurt.io/topologyKeys-"]);
}
