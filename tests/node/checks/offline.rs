//! The node without its control plane: the link drops everything. kubelet, kube-proxy and CoreDNS read from Weir's cache.

use std::process::Command;
use std::time::Instant;

use super::World;
use super::local_status::{address, create_service, handed_over, record, services_lead_to_new_addresses};
use crate::cluster::{rules, start_containerd_again};
use crate::outage::{Link, pids, power_off, replaced, running};
use crate::runner::until;
use crate::systemd;

/// The containers by their command lines.
const KUBE_PROXY: &str = "/usr/local/bin/kube-proxy";
const COREDNS: &str = "/coredns";
pub(super) const WEB: &str = "/bin/busybox httpd";
const WEIR: &str = "/usr/local/bin/weir serve";

/// A Service that is deleted while the link is cut.
const DELETED: &str = "default/gone/tcp";

/// Before the link is cut, kubelet has run through Weir for a while.
pub(super) fn cut(world: &World<'_>) {
    create_service(world);
    let admin = &world.admin;
    admin.run(&["create", "service", "clusterip", "gone", "--tcp=80:8080"]);
    admin.run(&["set", "selector", "service", "gone", "app=web"]);
    until("kube-proxy serves it", || if rules().contains(DELETED) { Ok(()) } else { Err(rules()) });
    committed(world);
    Link::Node.cut();
    until("Weir knows that the API server is gone", || {
        let metrics = metrics()?;
        let down = metrics.lines().any(|line| line.starts_with("weir_server_up{") && line.ends_with(" 0"));
        if down { Ok(()) } else { Err(metrics) }
    });
}

/// Waits until Weir has written its whole state to disk.
fn committed(_: &World<'_>) {
    let commits = || -> Result<f64, String> {
        let metrics = metrics()?;
        let line = metrics.lines().find(|line| line.starts_with("weir_cache_commits_total")).ok_or("no commits")?;
        line.rsplit(' ').next().and_then(|number| number.parse().ok()).ok_or_else(|| line.to_owned())
    };
    let before = until("Weir's metrics", commits);
    until("Weir commits", || match commits()? {
        now if now > before => Ok(()),
        now => Err(format!("{now} commits")),
    });
}

pub(crate) fn metrics() -> Result<String, String> {
    get("http://127.0.0.1:10267/metrics")
}

fn get(url: &str) -> Result<String, String> {
    let output = Command::new("busybox").args(["wget", "-q", "-O", "-", url]).output();
    let output = output.map_err(|error| error.to_string())?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}

/// kubelet reads Secrets, ConfigMaps and tokens again for each container that it starts.
pub(super) fn crashed_containers(_: &World<'_>) {
    for container in [WEB, COREDNS, KUBE_PROXY] {
        replaced(container);
    }
    rules_are_written();
}

pub(super) fn restarted_kubelet(_: &World<'_>) {
    systemd::control(&["restart", "kubelet"]);
    replaced(WEB);
}

/// kubelet, containerd, Weir and all containers end at once, and start without the API server. Pods get other addresses.
pub(super) fn power_cycle(world: &mut World<'_>) {
    let containers = [WEIR, KUBE_PROXY, COREDNS, WEB];
    let old: Vec<_> = containers.iter().map(|container| pids(container)).collect();
    let old_address = address();
    systemd::kill("kubelet");
    drop(world.containerd.take());
    power_off(&world.machine.cgroup);
    assert!(!rules_text().contains("goto"), "the rules are gone");
    world.containerd = Some(start_containerd_again(world.machine));
    let started = Instant::now();
    systemd::control(&["restart", "kubelet"]);
    for (container, old) in containers.iter().zip(&old) {
        running(container, old);
    }
    println!("    all containers ran {:.1} s after kubelet's start", started.elapsed().as_secs_f64());
    rules_are_written();
    services_lead_to_new_addresses(&old_address, started);
    world.record = Some(record(world));
}

fn rules_are_written() {
    until("kube-proxy has written its rules", || match rules_text() {
        text if text.contains("default/web/tcp/http") => Ok(()),
        text => Err(text),
    });
}

fn rules_text() -> String {
    let output = Command::new("nft").args(["list", "table", "ip", "kube-proxy"]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.lines().filter(|line| line.contains("goto")).collect::<Vec<_>>().join("\n")
}

/// What was deleted meanwhile is gone everywhere, and the node is Ready again.
pub(super) fn mended(world: &mut World<'_>) {
    let cloud = world.admin.in_cloud();
    // The times have whole seconds: one taken here may be that of kubelet's next report, the last for five minutes.
    let before = World::heartbeat(&cloud);
    cloud.run(&["delete", "service", "gone"]);
    Link::Node.mend();
    world.ready_since(&before);
    until("a Service that was deleted meanwhile is gone", || match rules_text() {
        text if text.contains(DELETED) => Err(text),
        text if text.contains("default/web/tcp/http") => Ok(()),
        text => Err(text),
    });
    let record = world.record.take().expect("the power cycle starts a record");
    handed_over(world, record);
    world.kube_proxy_follows();
}
