//! File work and all else that may block is done in few places, so that no thread that serves waits for a file system.

use crate::source::{Place, assert_places};

/// Why these may: each works in a lane of `weir-process`, or on a thread of its own, or before anything is served.
const PLACES: &[Place] = &[
    (
        "std::fs",
        &[
            // The place of file work, and what runs in its lanes.
            "process/src/files.rs",
            "process/src/folder.rs",
            "process/src/trail.rs",
            "runtime/src/module/code.rs",
            "runtime/src/wasm/engine.rs",
            "runtime/src/module/code_in_memory.rs",
            "src/cache_directory.rs",
            "src/cache_directory/former.rs",
            "src/cache_directory/tidy.rs",
            "src/modules/cache.rs",
            "src/pool/answers.rs",
            "registry/src/layout.rs",
            // The watch cache, on the threads of `disk/cache.rs`.
            "store/src/disk/aside.rs",
            "store/src/disk/config.rs",
            "store/src/disk/copying.rs",
            "store/src/disk/predecessors.rs",
            "store/src/disk/recovery.rs",
            "store/src/disk/seal.rs",
            "store/src/disk/storage.rs",
            // Files of the kernel, in memory.
            "process/src/cgroup.rs",
            "process/src/child.rs",
            "src/admin/metrics.rs",
            // A child process; measurements; the test of the documents.
            "document/examples/speed.rs",
            "runtime/src/wasm/linear_cost.rs",
            "src/documents.rs",
        ],
    ),
    // The child process that pulls.
    ("tokio::fs", &["registry/src/client.rs"]),
    (
        "spawn_blocking",
        &[
            "process/src/files.rs",
            // Two threads for the watch cache: one reads, one writes.
            "store/src/disk/cache.rs",
            // Work of the processor.
            "runtime/src/module/load.rs",
            "src/modules.rs",
        ],
    ),
    ("block_in_place", &["runtime/src/wasm/long_work.rs"]),
    // A thread of its own counts the time of filters.
    ("thread::sleep", &["runtime/src/wasm/engine.rs"]),
];

/// Commands for people end with what they do.
const COMMANDS: &str = "src/cli/";

#[test]
fn nothing_that_serves_works_on_files() {
    assert_places(PLACES, |file| !file.starts_with(COMMANDS));
}
