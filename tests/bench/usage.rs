//! The resource usage of a process on Linux.

use std::path::Path;

/// Returns the CPU seconds of all threads of a process, with nanosecond resolution. The ticks of `/proc/<pid>/stat` are
/// too coarse for a watch event.
pub(crate) fn processor(pid: u32) -> f64 {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    // A thread may end between the two reads.
    threads.filter_map(|thread| ran(&thread.ok()?.path().join("schedstat"))).sum()
}

/// Returns the CPU seconds of this thread. While the thread runs, the value advances by the system's tick.
pub(crate) fn thread() -> f64 {
    ran("/proc/thread-self/schedstat".as_ref()).unwrap()
}

fn ran(schedstat: &Path) -> Option<f64> {
    let schedstat = std::fs::read_to_string(schedstat).ok()?;
    schedstat.split(' ').next()?.parse::<f64>().ok().map(|nanoseconds| nanoseconds / 1e9)
}

/// Returns resident memory in MB.
pub(crate) fn resident(pid: u32) -> f64 {
    status(pid, "VmRSS")
}

/// Returns peak resident memory in MB.
pub(crate) fn peak(pid: u32) -> f64 {
    status(pid, "VmHWM")
}

fn status(pid: u32, line: &str) -> f64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let text = status.lines().find_map(|text| text.strip_prefix(line)?.strip_prefix(':')).unwrap();
    text.trim().trim_end_matches(" kB").parse::<f64>().unwrap() * 1024.0 / 1e6
}
