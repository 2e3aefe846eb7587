//! The resource usage of a process on Linux.

use std::path::Path;
use std::time::{Duration, Instant};

/// Returns the CPU seconds of all threads of a process, with nanosecond resolution. The ticks of `/proc/<pid>/stat` are
/// too coarse for a watch event.
pub(crate) fn processor(pid: u32) -> f64 {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    // A thread may end between the two reads.
    threads.filter_map(|thread| ran(&thread.ok()?.path().join("schedstat"))).sum()
}

/// Returns the CPU seconds of a process when it does nothing more: what it does after its response counts too. Blocks.
pub(crate) fn processor_at_rest(pid: u32) -> f64 {
    const QUIET: f64 = 0.002;
    let began = Instant::now();
    let mut before = processor(pid);
    loop {
        std::thread::sleep(Duration::from_millis(100));
        let now = processor(pid);
        if now - before < QUIET || began.elapsed() > Duration::from_secs(30) {
            return now;
        }
        before = now;
    }
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

/// Returns the bytes that a process has had written to disks.
pub(crate) fn written(pid: u32) -> f64 {
    let counts = std::fs::read_to_string(format!("/proc/{pid}/io")).unwrap();
    let count = counts.lines().find_map(|line| line.strip_prefix("write_bytes: ")).unwrap();
    count.parse().unwrap()
}

fn status(pid: u32, line: &str) -> f64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let text = status.lines().find_map(|text| text.strip_prefix(line)?.strip_prefix(':')).unwrap();
    text.trim().trim_end_matches(" kB").parse::<f64>().unwrap() * 1024.0 / 1e6
}
