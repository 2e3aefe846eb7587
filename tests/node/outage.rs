//! Failures of the machine: the link drops everything, the power is cut.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::cluster::restart;
use crate::machine::{remove_pod_cgroups, run};
use crate::runner::until;

/// A link to the control plane, by its interface in the control plane's namespace.
#[derive(Clone, Copy)]
pub(crate) enum Link {
    Node,
    Neighbour,
}

impl Link {
    /// The interface, and the table that drops its traffic.
    fn name(self) -> &'static str {
        match self {
            Self::Node => "node",
            Self::Neighbour => "neighbour",
        }
    }

    /// Drops everything in both directions: nothing answers.
    pub(crate) fn cut(self) {
        let name = self.name();
        cloud_nft(&format!("add table inet {name}"));
        for (hook, device) in [("input", "iifname"), ("forward", "iifname"), ("output", "oifname")] {
            cloud_nft(&format!("add chain inet {name} {hook} {{ type filter hook {hook} priority -300; }}"));
            cloud_nft(&format!("add rule inet {name} {hook} {device} \"{name}\" drop"));
        }
    }

    pub(crate) fn mend(self) {
        cloud_nft(&format!("delete table inet {}", self.name()));
    }
}

fn cloud_nft(command: &str) {
    run("nsenter", &["--net=/run/netns/cloud", "nft", command]);
}

/// The processes of this machine, and the first bytes of their command lines.
fn processes() -> Vec<(u32, String)> {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let processes = entries.filter_map(|entry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        let words = std::fs::read(entry.path().join("cmdline")).ok()?;
        Some((pid, words.split(|byte| *byte == 0).map(String::from_utf8_lossy).collect::<Vec<_>>().join(" ")))
    });
    processes.collect()
}

/// The processes whose command line begins with these words.
pub(crate) fn pids(words: &str) -> Vec<u32> {
    processes().into_iter().filter(|(_, line)| line.starts_with(words)).map(|(pid, _)| pid).collect()
}

/// Kills the processes whose command line begins with these words, and waits until others have replaced them.
pub(crate) fn replaced(words: &str) {
    let old = pids(words);
    assert!(!old.is_empty(), "{words} runs");
    old.iter().for_each(|pid| kill(*pid));
    running(words, &old);
}

/// Waits until a process runs that is none of these.
pub(crate) fn running(words: &str, old: &[u32]) {
    until(&format!("{words} runs again"), || match pids(words).iter().any(|pid| !old.contains(pid)) {
        true => Ok(()),
        false => Err(format!("{:?}", pids(words))),
    });
}

/// The networks of other machines.
const OTHERS: [&str; 2] = ["/run/netns/cloud", "/run/netns/neighbour"];

fn kill(pid: u32) {
    // It may have ended by itself.
    let _ = Command::new("kill").args(["-KILL", &pid.to_string()]).stderr(std::process::Stdio::null()).status();
}

/// Ends everything that a power cut ends, once kubelet and containerd are gone: containers, their mounts, networks and rules.
pub(crate) fn power_off(cgroup: &str) {
    pids("/usr/bin/containerd-shim").into_iter().for_each(kill);
    for tasks in find(&PathBuf::from("/sys/fs/cgroup"), cgroup) {
        let text = std::fs::read_to_string(tasks).unwrap_or_default();
        // Processes of other namespaces show as 0.
        text.lines().filter_map(|line| line.parse().ok()).filter(|pid| *pid > 1).for_each(kill);
    }
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
    let mounts = mounts.lines().filter_map(|line| line.split(' ').nth(1));
    let lost = |path: &&str| {
        path.starts_with("/run/containerd/")
            || path.starts_with("/var/lib/kubelet/pods/")
            || path.starts_with("/run/netns/cni")
    };
    for path in mounts.filter(lost) {
        let _ = Command::new("umount").args(["--lazy", path]).status();
    }
    for path in ["/run/containerd", "/var/lib/cni", "/run/netns"] {
        remove(&PathBuf::from(path));
    }
    let _ = Command::new("ip").args(["link", "delete", "cni0"]).status();
    run("nft", &["flush ruleset"]);
    // kubelet waits for the tasks of each cgroup that it finds, three seconds for one whose container is gone.
    remove_pod_cgroups(cgroup);
    restart();
}

/// Removes what is in a folder, other than the networks of other machines.
fn remove(folder: &PathBuf) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            let _ = std::fs::remove_dir_all(path);
        } else if !OTHERS.iter().any(|other| path == Path::new(other)) {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// The lists of processes below the cgroups of this name.
fn find(folder: &PathBuf, cgroup: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(find(&path, cgroup));
        } else if path.ends_with("cgroup.procs") && path.to_string_lossy().contains(cgroup) {
            found.push(path);
        }
    }
    found
}
