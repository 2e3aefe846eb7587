//! The systemd unit, installed from an archive, with kubelet as its client. `systemd.rs` is in the place of systemd.

use weir_tests::built;

use super::{ACCOUNT, World, first_day, rules, upgrade};
use crate::guide::FOLDER;
use crate::images;
use crate::machine::run;

pub(super) fn follow(world: &World<'_>) {
    let modules = built::modules();
    archive(&built::weir(), &modules, "weir-0.1.0-x86_64-linux");
    let (program, modules) = images::previous();
    archive(&program, &modules, "weir-0.2.0-x86_64-linux");
    run("tar", &["-C", FOLDER, "-xzf", &format!("{FOLDER}/weir-0.2.0-x86_64-linux.tar.gz")]);

    let installing = world.readme();
    installing.follow("Permissions and filters");
    installing.follow("Weir's own credential");
    installing.follow("systemd");
    world.approve(ACCOUNT);
    let before = World::heartbeat(&world.admin);
    installing.follow("kubelet");
    world.ready_since(&before);
    let (page, upgrading) = (first_day::page(world), upgrade::page(world));
    world.admin.run(&["annotate", "service", "web", "openyurt.io/topologyKeys=openyurt.io/nodepool"]);
    page.follow("With a unit");
    page.follow("Turn filters off, and roll back");
    rules::readmes_line_answers(world);
    first_day::lose_the_cloud(&page, ["Lose the cloud with a unit", "Get the cloud back with a unit"]);
    let requests = world.requests();
    upgrading.follow("Unit");
    page.follow("With a unit");
    assert_eq!(world.requests(), requests, "the certificate and the rest of the disk are kept");
    world.admin.run(&["annotate", "service", "web", "openyurt.io/topologyKeys-"]);
    let before = World::heartbeat(&world.admin);
    upgrading.follow("Its clients");
    world.ready_since(&before);
    upgrading.follow("The unit");
    upgrading.follow("The files of a node");
}

/// Packs an archive as `make dist` does, beside the documents.
fn archive(program: &std::path::Path, modules: &std::path::Path, name: &str) {
    let script = built::workspace().join("deploy/release/archive.sh");
    let words =
        [script.as_path(), program, modules, name.as_ref(), FOLDER.as_ref()].map(|word| word.display().to_string());
    run("sh", &words.each_ref().map(String::as_str));
}
