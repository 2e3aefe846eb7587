//! The watch cache on disk as a part of the daemon: its settings and its tasks.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tracing::Instrument;
use weir_store::disk::{DiskCache, DiskConfig, DiskMetrics};
use weir_upstream::{Connectivity, Tasks};

use crate::admin::status::FilterStatus;
use crate::cache_directory::former_place;
use crate::config::ServeConfig;
use crate::time_file::TimeFile;

/// The longest time that commits may take when the daemon stops, that of requests included.
const FLUSH: Duration = Duration::from_secs(4);
/// The longest one before requests end, and the shortest after that.
const FIRST_FLUSH: Duration = Duration::from_secs(1);

/// The parts in which the time of being ready is counted.
const COUNTED: Duration = Duration::from_secs(60);

/// Starts the tasks of the cache; `None` if nothing is cached on disk.
pub(crate) fn open_disk(
    config: &ServeConfig,
    metrics: Arc<DiskMetrics>,
    (connectivity, status): (Connectivity, &Arc<FilterStatus>),
    tasks: &Tasks,
) -> Option<Arc<DiskCache>> {
    let flags = config.disk_cache.as_ref()?;
    let settings = DiskConfig::new(&flags.directory, &config.node_name).with_key_file(flags.key_file.clone());
    let mut settings = settings.with_key_dir(flags.key_dir.as_deref());
    settings.former = former_place(&flags.directory);
    settings.max_bytes = flags.size;
    settings.commit_interval = flags.commit_interval;
    settings.connectivity = Some(connectivity.clone());
    let disk = DiskCache::new(settings, metrics);
    tasks.spawn_until_stop(count_ready(disk.clone(), status.clone(), connectivity));
    let span = tracing::info_span!("cache");
    tasks.spawn_until_stop(disk.clone().run().instrument(span));
    Some(disk)
}

/// Counts the time in which the daemon is ready and an API server answers. Runs until it is dropped.
async fn count_ready(disk: Arc<DiskCache>, status: Arc<FilterStatus>, connectivity: Connectivity) {
    let mut reconnects = connectivity.reconnects();
    loop {
        let holds = || connectivity.is_working() && status.ready().is_ok();
        let held = holds();
        // However short: nobody may have asked before it was over.
        let had_outage = tokio::time::timeout(COUNTED, reconnects.next()).await.is_ok();
        if held && !had_outage && holds() {
            disk.count_ready(COUNTED);
        }
    }
}

/// Commits what has changed so far, if the disk is quick enough. Returns until when the last commit may take.
pub(crate) async fn flush_disk(disk: Option<&Arc<DiskCache>>) -> Instant {
    let until = Instant::now() + FLUSH;
    if let Some(disk) = disk
        && tokio::time::timeout(FIRST_FLUSH, disk.flush()).await.is_err()
    {
        tracing::warn!(file = disk.file(), timeout = ?FIRST_FLUSH, "the disk is slow: requests end before the last changes are on it");
    }
    until
}

/// Commits what has changed since the last commit, and saves the time of day.
pub(crate) async fn close_disk(disk: Option<Arc<DiskCache>>, time_file: Option<TimeFile>, until: Instant) {
    let until = until.max(Instant::now() + FIRST_FLUSH);
    let save = async {
        if let Some(file) = time_file {
            file.save().await;
        }
    };
    let file = disk.as_ref().map(|disk| disk.file());
    let close = async {
        if let Some(disk) = disk {
            disk.close().await;
        }
    };
    if tokio::time::timeout_at(until, async { tokio::join!(save, close) }).await.is_err() {
        tracing::warn!(file, timeout = ?FLUSH, "the disk is slow or hangs: the last changes were not committed to the watch cache on disk");
    }
}
