//! What a process uses, as Linux tells it.

use std::path::Path;

/// Processor time that a process has used, in seconds: all its threads together, to the nanosecond (the ticks of
/// `/proc/<pid>/stat` are too coarse for a watch event).
pub(crate) fn processor(pid: u32) -> f64 {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    // A thread may end between the two looks.
    threads.filter_map(|thread| ran(&thread.ok()?.path().join("schedstat"))).sum()
}

/// Processor time that this thread has used, in seconds: what one core does, however busy the machine is. While the thread
/// runs it moves by the system's tick.
pub(crate) fn thread() -> f64 {
    ran("/proc/thread-self/schedstat".as_ref()).unwrap()
}

fn ran(schedstat: &Path) -> Option<f64> {
    let told = std::fs::read_to_string(schedstat).ok()?;
    told.split(' ').next()?.parse::<f64>().ok().map(|nanoseconds| nanoseconds / 1e9)
}

/// Memory that is resident, in MB.
pub(crate) fn resident(pid: u32) -> f64 {
    status(pid, "VmRSS")
}

/// The most memory that was ever resident, in MB.
pub(crate) fn peak(pid: u32) -> f64 {
    status(pid, "VmHWM")
}

fn status(pid: u32, line: &str) -> f64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let text = status.lines().find_map(|text| text.strip_prefix(line)?.strip_prefix(':')).unwrap();
    text.trim().trim_end_matches(" kB").parse::<f64>().unwrap() * 1024.0 / 1e6
}
