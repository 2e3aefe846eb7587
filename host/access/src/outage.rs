//! The present outage: since when no API server can be reached, and how long Weir has run in it.
//!
//! Both are in files of the cache directory, for a start during the outage: one unanswered probe confirms it then, instead of
//! three, and `--offline-grace` goes on. The grace counts the time that the machine has run, so that no clock and no power cut
//! ends it. Another file has the time until which an API server has answered: a link may be lost while nothing runs.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, SystemTime};

use rustix::time::{ClockId, clock_gettime};
use weir_process::files::{self, remove_now, replace_now};
use weir_upstream::{Upstream, clock};

use weir_process::read_time;

/// The file of the beginning: one line with a time such as `2026-11-23T03:00:00.5Z`. It exists during an outage.
const SINCE: &str = "offline-since";
/// The file of the time in it: one line with seconds.
const RUNNING: &str = "offline-seconds";
/// The file of the last time that an API server answered.
const ONLINE: &str = "online-until";
/// How often that is written at most. Flash wears.
const ONLINE_TICK: Duration = Duration::from_secs(600);
/// How soon after the start.
const FIRST_TICK: Duration = Duration::from_secs(5);
/// How often the time in an outage is written. So much of it is lost by a crash.
const TICK: Duration = Duration::from_secs(60);
const MIN_TICK: Duration = Duration::from_millis(100);

/// The outage, and how long clients keep in it what the API server has said of them.
#[derive(Debug)]
pub struct Outage {
    upstream: Arc<Upstream>,
    grace: Duration,
    counted: Mutex<Option<Counted>>,
    /// Until when an earlier process was answered.
    earlier: OnceLock<SystemTime>,
}

/// The running time of the present outage.
#[derive(Debug, Clone, Copy)]
struct Counted {
    /// What earlier processes have counted.
    before: Duration,
    /// Since when this one counts.
    from: Duration,
}

/// What is known of the present outage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutageStatus {
    /// When it began.
    pub since: SystemTime,
    /// How long Weir has run in it.
    pub running: Duration,
    /// How long permissions of clients still hold.
    pub left: Duration,
}

impl OutageStatus {
    /// When the permissions of clients have ended.
    pub fn ended(&self, grace: Duration) -> Option<SystemTime> {
        self.left.is_zero().then(|| clock::now().checked_sub(self.running.saturating_sub(grace))).flatten()
    }
}

impl Outage {
    /// The names of its files in the cache directory.
    pub const FILES: [&str; 3] = [SINCE, RUNNING, ONLINE];

    /// The outage of these API servers. Clients keep their permissions for `grace`.
    pub fn new(upstream: Arc<Upstream>, grace: Duration) -> Arc<Self> {
        Arc::new(Self { upstream, grace, counted: Mutex::default(), earlier: OnceLock::new() })
    }

    /// How long permissions hold.
    pub fn grace(&self) -> Duration {
        self.grace
    }

    /// The present outage; `None` while an API server can be reached.
    pub fn status(&self) -> Option<OutageStatus> {
        let mut counted = self.counted();
        let Some(since) = self.upstream.offline_since() else {
            *counted = None;
            return None;
        };
        let earlier = self.earlier.get().filter(|_| !self.upstream.connectivity().has_worked());
        let since = earlier.map_or(since, |at| since.min(*at));
        let now = running_time();
        let Counted { before, from } = *counted.get_or_insert(Counted { before: Duration::ZERO, from: now });
        let running = before + now.saturating_sub(from);
        Some(OutageStatus { since, running, left: self.grace.saturating_sub(running) })
    }

    /// Whether what the API server has said holds now, which would hold until `expires` if it could be asked again. In an outage,
    /// that is what held when it began, until the grace ends.
    pub(crate) fn holds(&self, expires: SystemTime) -> bool {
        let at = match self.status() {
            Some(OutageStatus { left: Duration::ZERO, .. }) => return false,
            Some(outage) => outage.since,
            None => clock::now(),
        };
        // One that ends much later was written by a clock that was years ahead.
        expires > at && expires <= at + 2 * self.grace
    }

    /// Continues the outage of the directory's files, then keeps them up to date. Runs until it is dropped.
    pub async fn run(self: Arc<Self>, directory: PathBuf) {
        let files = OutageFiles::new(&directory);
        if let Some((since, before)) = files.read().await {
            self.resume(since, before).await;
        }
        if let Some(at) = files.read_online().await {
            let _ = self.earlier.set(at);
        }
        loop {
            let is_reachable = self.upstream.is_reachable();
            let outage = self.status().filter(|_| !is_reachable);
            files.write(outage).await;
            let tick = match outage {
                Some(_) => TICK.min(self.grace / 8),
                None if self.upstream.connectivity().is_working() => {
                    files.write_online().await;
                    // Permissions since it was written may end a grace after the next time: see `holds`.
                    ONLINE_TICK.min(self.grace / 2)
                }
                None => FIRST_TICK.min(self.grace / 2),
            };
            // An error means that nothing has changed for a while.
            let _ = tokio::time::timeout(tick.max(MIN_TICK), self.upstream.reachable_changed(is_reachable)).await;
        }
    }

    /// Continues an outage that began at this time, of which so much has been counted.
    #[doc(hidden)]
    pub async fn resume(&self, since: SystemTime, before: Duration) {
        let from = running_time();
        self.upstream.resume_outage(since).await;
        *self.counted() = Some(Counted { before, from });
    }

    fn counted(&self) -> MutexGuard<'_, Option<Counted>> {
        self.counted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The time since the machine has booted, with the time that it was suspended.
fn running_time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::Boottime)).unwrap_or_default()
}

/// The files.
#[derive(Debug, Clone)]
struct OutageFiles {
    since: PathBuf,
    running: PathBuf,
    online: PathBuf,
}

impl OutageFiles {
    fn new(directory: &Path) -> Self {
        Self { since: directory.join(SINCE), running: directory.join(RUNNING), online: directory.join(ONLINE) }
    }

    /// Unreadable content counts as none.
    async fn read(&self) -> Option<(SystemTime, Duration)> {
        let since: SystemTime = read_time::<jiff::Timestamp>(&self.since).await?.into();
        let seconds = read_time(&self.running).await;
        Some((since.min(clock::now()), Duration::from_secs(seconds.unwrap_or_default())))
    }

    async fn read_online(&self) -> Option<SystemTime> {
        let until: SystemTime = read_time::<jiff::Timestamp>(&self.online).await?.into();
        Some(until.min(clock::now()))
    }

    async fn write_online(&self) {
        let Ok(now) = jiff::Timestamp::try_from(clock::now()) else { return };
        if let Err(error) = files::replace(&self.online, format!("{now:.0}\n").into_bytes()).await {
            tracing::debug!(file = %self.online.display(), %error, "the time of being online cannot be kept on disk");
        }
    }

    async fn write(&self, outage: Option<OutageStatus>) {
        let since = outage.and_then(|outage| jiff::Timestamp::try_from(outage.since).ok());
        let running = outage.map(|outage| outage.running.as_secs());
        let files = self.clone();
        let write = move || replace(&files.running, running).and_then(|()| replace(&files.since, since));
        if let Err(error) = files::writing(files::folder_of(&self.since), write).await {
            tracing::debug!(file = %self.since.display(), %error, "the time of the outage cannot be kept on disk");
        }
    }
}

/// Writes a file of one line, or removes it.
fn replace(path: &Path, line: Option<impl std::fmt::Display>) -> std::io::Result<()> {
    match line {
        Some(line) => replace_now(path, format!("{line}\n").as_bytes()),
        None => remove_now(path),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use weir_upstream::UpstreamConfig;

    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    #[tokio::test]
    async fn the_files_exist_during_an_outage_alone() {
        let folder = tempfile::tempdir().unwrap();
        let files = OutageFiles::new(folder.path());
        assert_eq!(files.read().await, None);
        let since: SystemTime = "2020-01-02T03:04:05Z".parse::<jiff::Timestamp>().unwrap().into();
        let outage = OutageStatus { since, running: HOUR, left: HOUR };
        files.write(Some(outage)).await;
        assert_eq!(files.read().await, Some((since, HOUR)));
        std::fs::remove_file(folder.path().join(RUNNING)).unwrap();
        assert_eq!(files.read().await, Some((since, Duration::ZERO)), "an older release wrote one file");
        files.write(None).await;
        files.write(None).await;
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        files.write(Some(OutageStatus { since: clock::now() + HOUR, ..outage })).await;
        assert!(files.read().await.unwrap().0 <= clock::now(), "an outage does not begin in the future");
        std::fs::write(folder.path().join(SINCE), "soon").unwrap();
        assert_eq!(files.read().await, None);
    }

    /// No outage, as far as is known.
    pub(crate) fn online(grace: Duration) -> Arc<Outage> {
        let config = UpstreamConfig::new(kube::Config::new("http://127.0.0.1:1".parse().unwrap()));
        Outage::new(Arc::new(Upstream::new(&config, Arc::default()).unwrap()), grace)
    }

    /// An outage that began at this time, of which so much has been counted.
    pub(crate) async fn counted(since: SystemTime, running: Duration, grace: Duration) -> Arc<Outage> {
        let outage = online(grace);
        outage.resume(since, running).await;
        outage
    }

    #[tokio::test]
    async fn an_outage_that_began_while_nothing_ran_began_when_an_api_server_answered_last() {
        let (folder, now) = (tempfile::tempdir().unwrap(), clock::now());
        let files = OutageFiles::new(folder.path());
        assert_eq!(files.read_online().await, None);
        files.write_online().await;
        assert!(files.read_online().await.is_some_and(|until| until + HOUR > now));
        let outage = counted(now - HOUR, Duration::ZERO, 24 * HOUR).await;
        let since = || outage.status().unwrap().since;
        outage.earlier.set(now - 10 * HOUR).unwrap();
        assert_eq!(since(), now - 10 * HOUR);
        assert!(outage.holds(now - 9 * HOUR) && !outage.holds(now - 11 * HOUR), "what held then");
        outage.upstream.connectivity().record_success();
        assert_eq!(since(), now - HOUR, "what is served is of this process");
    }

    #[tokio::test]
    async fn the_grace_counts_the_time_that_weir_has_run_and_no_clock() {
        let now = clock::now();
        // The clock says that months have passed. The machine was off, or the clock is wrong.
        let began = now - 2000 * HOUR;
        let outage = counted(began, 23 * HOUR, 24 * HOUR).await;
        assert!(outage.holds(began + HOUR) && !outage.holds(began), "what held when it began");
        assert!(!outage.holds(began + 49 * HOUR), "no clock gave that");
        let status = outage.status().unwrap();
        assert!(status.left <= HOUR && status.left > HOUR / 2, "{status:?}");
        assert!(!counted(began, 24 * HOUR, 24 * HOUR).await.holds(began + HOUR), "the grace has ended");
    }
}
