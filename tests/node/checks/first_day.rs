//! `deploy/first-day.md`, and the installations of `deploy/README.md`, word by word.

use weir_tests::built;

use super::{WEIR_PODS, World};
use crate::SERVER_NAME;
use crate::guide::Guide;
use crate::outage::Link;

/// Follows the page on the DaemonSet that runs.
pub(super) fn follow(world: &World<'_>) {
    std::fs::copy(built::weir(), "/usr/local/bin/weir").unwrap();
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
    Guide::of("first-day.md", &admin).follow("The same with the chart");
    let () = world.admin.wait("the pod is gone", WEIR_PODS, |pods| pods["items"].as_array()?.is_empty().then_some(()));
    world.admin.run(&["annotate", "service", "web", "openyurt.io/topologyKeys-"]);
}
