//! `deploy/first-day.md`, and the installations and removals of the pages beside it, word by word.

use super::{ACCOUNT, WEIR_PODS, World, clients, rules, upgrade};
use crate::guide::Guide;
use crate::images;
use crate::kubectl::holds;
use crate::outage::Link;

/// The sections on an outage where Weir runs in a container.
const CLOUD: [&str; 2] = ["Lose the cloud", "Get the cloud back"];

pub(super) fn page(world: &World<'_>) -> Guide {
    world.page("first-day.md")
}

/// Follows the page on the static pod that runs, and another version of it.
pub(super) fn static_pod(world: &World<'_>) {
    let guide = page(world);
    for heading in ["See", "Ask why", "Turn one filter off", "Turn all filters off", "Roll a filter set back"] {
        guide.follow(heading);
    }
    rules::readmes_line_answers(world);
    lose_the_cloud(&guide, CLOUD);
    world.admin.run(&["annotate", "service", "web", "openyurt.io/topologyKeys-"]);
    images::import_previous(world.machine);
    let pods = || world.admin.json(WEIR_PODS).unwrap()["items"].clone();
    let image = pods()[0]["spec"]["containers"][0]["image"].clone();
    upgrade::page(world).follow("Static pod");
    world.admin.wait("the former image runs again", WEIR_PODS, |pods| {
        let [pod] = pods["items"].as_array()?.as_slice() else { return None };
        (holds(pod, "Ready") && pod["spec"]["containers"][0]["image"] == image).then_some(())
    });
    guide.follow("See");
}

/// Removes it, and makes its clients those of the API server.
pub(super) fn without_static_pod(world: &World<'_>) {
    let guide = upgrade::page(world);
    let before = World::heartbeat(&world.admin);
    guide.follow("Its clients");
    world.ready_since(&before);
    guide.follow("The static pod");
    weir_is_gone(world);
    guide.follow("The files of a node");
    world.kube_proxy_follows();
}

/// Likewise.
pub(super) fn without_daemon_set(world: &World<'_>) {
    let guide = upgrade::page(world);
    guide.follow("Its clients");
    guide.follow("The DaemonSet");
    weir_is_gone(world);
    guide.follow("The files of a node");
    world.kube_proxy_follows();
}

fn weir_is_gone(world: &World<'_>) {
    let () =
        world.admin.wait("all pods are gone", WEIR_PODS, |pods| pods["items"].as_array()?.is_empty().then_some(()));
}

/// Follows the page on the DaemonSet that runs.
pub(super) fn follow(world: &World<'_>) {
    let guide = page(world);
    for heading in
        ["See", "Ask why", "Turn one filter off", "Turn all filters off", "Roll a filter set back", "Roll Weir back"]
    {
        guide.follow(heading);
    }
    lose_the_cloud(&guide, CLOUD);
    world.admin.run(&["annotate", "service", "web", "openyurt.io/topologyKeys-"]);
}

/// Follows the sections on an outage: what prepares it, and those of this way of installing.
pub(super) fn lose_the_cloud(guide: &Guide, [lost, back]: [&str; 2]) {
    guide.follow("Prepare to lose the cloud");
    Link::Node.cut();
    guide.follow(lost);
    Link::Node.mend();
    guide.follow(back);
}

/// Installs the chart where nothing of Weir is left, and removes it.
pub(super) fn chart(world: &World<'_>) {
    world.readme().follow("Helm");
    world.weir_is_ready();
    world.approve(ACCOUNT);
    clients::point_at_weir(world);
    let page = page(world);
    page.follow("See");
    page.follow("Turn all filters off");
    lose_the_cloud(&page, CLOUD);
    page.follow("The same with the chart");
    let filters = world.admin.json(&["-n", "kube-system", "get", "configmap", "weir-filters"]).unwrap();
    for name in ["servicetopology", "masterservice", "inclusterconfig", "serviceenvupdater", "forwardkubesvctraffic"] {
        assert_eq!(filters["data"][format!("filter_{name}")], "", "{name} is off: {}", filters["data"]);
    }
    page.follow("Roll the release back");
    page.follow("Restore what kubectl has changed");
    let guide = upgrade::page(world);
    guide.follow("Release");
    world.kube_proxy_follows();
    guide.follow("Its clients");
    page.follow("Test and uninstall it");
    weir_is_gone(world);
    guide.follow("The files of a node");
    world.kube_proxy_follows();
    world.admin.run(&["annotate", "service", "web", "openyurt.io/topologyKeys-"]);
}
