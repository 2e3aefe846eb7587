//! The memory of the daemon's cgroup: its limit, and how much of it a child may use. Beyond the limit of a pod, the kernel would end
//! the daemon together with the child.

use std::fs;
use std::path::{Path, PathBuf};

use crate::child::ChildLimits;

/// What is left for the daemon.
const RESERVE: u64 = 64 << 20;
/// The least that is worth a try. A small module in Rust takes 60 MB.
const MIN: u64 = 96 << 20;
/// The limit is a multiple of this, so that a repeated attempt fails with the same message.
const STEP: u64 = 32 << 20;

impl ChildLimits {
    /// The memory in bytes that a child may take: what the cgroup of this process has left, at most `most`.
    #[must_use]
    pub fn memory_left(most: u64) -> u64 {
        let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let left = folders(&own).iter().filter_map(|folder| left_in(folder)).min();
        left.map_or(most, |left| (left.saturating_sub(RESERVE) / STEP * STEP).clamp(MIN, most))
    }
}

/// The memory limit of the cgroup that this process is in; `None` without one.
#[must_use]
pub fn memory_limit() -> Option<u64> {
    let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let limit = |folder: &PathBuf| {
        let read = |name: &str| fs::read_to_string(folder.join(name)).ok();
        let limit = read("memory.max").or_else(|| read("memory.limit_in_bytes"))?;
        // Version 1 writes a huge number where there is none.
        limit.trim().parse::<u64>().ok().filter(|limit| *limit < 1 << 60)
    };
    folders(&own).iter().filter_map(limit).min()
}

/// The folders of the memory controller that apply to this process, in version 2 and 1. In a container the root of the mount
/// is the container's own.
fn folders(own: &str) -> Vec<PathBuf> {
    let mut folders = Vec::new();
    for line in own.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { continue };
        let mount = match controllers {
            "" => Path::new("/sys/fs/cgroup"),
            controllers if controllers.split(',').any(|name| name == "memory") => Path::new("/sys/fs/cgroup/memory"),
            _ => continue,
        };
        // Each ancestor has a limit of its own.
        let below = mount.join(path.trim_start_matches('/'));
        folders.extend(below.ancestors().take_while(|folder| folder.starts_with(mount)).map(Path::to_owned));
    }
    folders
}

/// The bytes that are left in one cgroup. `None` without a limit.
fn left_in(folder: &Path) -> Option<u64> {
    let read = |name: &str| fs::read_to_string(folder.join(name)).ok();
    let (limit, used) = match read("memory.max") {
        Some(limit) => (limit, read("memory.current")?),
        None => (read("memory.limit_in_bytes")?, read("memory.usage_in_bytes")?),
    };
    left(&limit, &used, &read("memory.stat").unwrap_or_default())
}

fn left(limit: &str, used: &str, statistics: &str) -> Option<u64> {
    let limit: u64 = limit.trim().parse().ok()?;
    let used: u64 = used.trim().parse().ok()?;
    // The kernel gives this up before it ends a process.
    let files = statistics.lines().find_map(|line| line.strip_prefix("inactive_file ")?.parse::<u64>().ok());
    Some(limit.saturating_sub(used.saturating_sub(files.unwrap_or_default())))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MI: u64 = 1 << 20;

    #[test]
    fn the_cgroup_says_what_is_left() {
        let bytes = |mebibytes: u64| (mebibytes * MI).to_string();
        assert_eq!(left(&bytes(512), &bytes(100), "anon 5\ninactive_file 1048576\n"), Some(413 * MI));
        assert_eq!(left(&bytes(512), &bytes(600), ""), Some(0));
        assert_eq!(left("max\n", &bytes(1), ""), None, "no limit");
        assert!(left("9223372036854771712\n", &bytes(1), "").is_some_and(|left| left > 1 << 60), "none in version 1");
    }

    #[test]
    fn all_cgroups_above_the_process_count() {
        let texts = |own: &str| folders(own).iter().map(|path| path.display().to_string()).collect::<Vec<_>>();
        assert_eq!(texts("0::/a/b\n"), ["/sys/fs/cgroup/a/b", "/sys/fs/cgroup/a", "/sys/fs/cgroup"]);
        assert_eq!(texts("5:cpu,memory:/a\n4:pids:/a\n"), ["/sys/fs/cgroup/memory/a", "/sys/fs/cgroup/memory"]);
        assert_eq!(texts("junk\n"), Vec::<String>::new());
    }

    #[test]
    fn a_child_gets_no_more_than_it_may() {
        assert!((MIN..=ADDRESSES).contains(&ChildLimits::memory_left(ADDRESSES)));
        const ADDRESSES: u64 = 3 << 30;
    }
}
