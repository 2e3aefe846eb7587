//! Files that an earlier release has left: of an older form beside the present file, or in the former cache directory.
//!
//! They are only read, and stay for a day of being ready (see [`super::aside`]), so that a roll-back finds them. The thread that
//! writes copies into the present file what that lacks; until then it is read where it is. A file that has changed since, because
//! the older release ran again, is looked through once more: the later version of each store counts. Values have no version, and
//! what was removed must not come back: only a file without any content takes them over.
//!
//! Memory: see [`super::copying`].

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::Arc;

use super::aside::{EARLIER, online};
use super::config::DiskConfig;
use super::copying::{CopiedStores, CopyError, copy_stores, copy_values};
use super::database::{Database, open_storage};
use super::error::DiskError;
use super::metrics::DiskMetrics;
use super::recovery::{Opened, check, rows};
use super::seal::CacheKey;

/// Notes in the present file that a file is being taken over by it for the first time.
const BEGUN: &str = "begun";
/// Notes that its values are there.
const VALUES: &str = "values";

/// A file that has something which the present one may lack.
pub(super) struct Predecessor {
    pub(super) config: DiskConfig,
    /// What changes with the file.
    stamp: String,
    /// Whether the present file has, or had, nothing else.
    pub(super) is_first: bool,
}

/// The files that are to be taken over, the newest form first. `own`: the present file, if there is one.
pub(super) fn pending(config: &DiskConfig, own: Option<&Database>) -> Vec<Predecessor> {
    let predecessors = config.predecessors().into_iter().filter_map(|config| Some((stamp(&config.path)?, config)));
    let pending = predecessors.filter_map(|(stamp, config)| {
        let known = own.and_then(|own| own.meta(&place(&config.path)).ok().flatten());
        let is_first = known.as_deref() == Some(BEGUN) || own.is_none_or(has_nothing);
        (known.as_ref() != Some(&stamp)).then_some(Predecessor { config, stamp, is_first })
    });
    pending.collect()
}

/// Whether a file has no content of a cluster.
fn has_nothing(database: &Database) -> bool {
    database.stores().is_ok_and(|stores| stores.is_empty()) && database.values(0).is_ok_and(|values| values.is_empty())
}

/// Copies what the open file lacks into it.
///
/// # Errors
/// The open file cannot be written, and is closed. Unreadable parts of another one are reported and left.
pub(super) fn take_over(
    opened: Opened,
    config: &DiskConfig,
    metrics: &Arc<DiskMetrics>,
    cluster: Option<&str>,
    key: Option<&CacheKey>,
) -> Result<Opened, DiskError> {
    let pending = pending(config, Some(&opened.database));
    if pending.is_empty() {
        return Ok(opened);
    }
    let cluster = cluster.or(opened.cluster.as_deref());
    let taken = pending.iter().try_for_each(|it| it.take_over(&opened.database, metrics, cluster, key));
    match taken.and_then(|()| rows(&opened.database)) {
        Ok((rows, cluster, damaged)) => Ok(Opened { rows, cluster, damaged, ..opened }),
        Err(error) => {
            opened.database.close();
            Err(error)
        }
    }
}

impl Predecessor {
    fn take_over(
        &self,
        own: &Database,
        metrics: &Arc<DiskMetrics>,
        cluster: Option<&str>,
        key: Option<&CacheKey>,
    ) -> Result<(), DiskError> {
        let file = self.config.file_name();
        let former = match self.open(metrics, cluster) {
            Ok(former) => former,
            Err(error) => {
                tracing::info!(file, %error, "nothing is taken over from the watch cache of an earlier release");
                return Ok(());
            }
        };
        let copied = self.copy(&former, own, key);
        former.close();
        let stores = match copied {
            Ok(copied) => copied.stores,
            Err(CopyError::Write(error)) => return Err(error),
            Err(CopyError::Read(error)) => {
                tracing::warn!(file, %error, "the watch cache of an earlier release cannot be read, it is taken over at the next start");
                return Ok(());
            }
        };
        own.write(|batch| {
            batch.put_meta(&place(&self.config.path), &self.stamp)?;
            // Its day begins.
            EARLIER.iter().try_for_each(|reason| batch.put_meta(&online(reason), "0"))
        })?;
        tracing::info!(
            file,
            stores,
            "took over from the watch cache of an earlier release, which stays for a day of being online"
        );
        Ok(())
    }

    /// Opens and verifies the file, without a change of it.
    fn open(&self, metrics: &Arc<DiskMetrics>, cluster: Option<&str>) -> Result<Database, DiskError> {
        let database = Database::open(open_storage(&*self.config.readable)?, metrics.clone(), true)?;
        match check(&database, &self.config, cluster) {
            Ok(_) => Ok(database),
            Err(error) => {
                database.close();
                Err(error)
            }
        }
    }

    /// Opens the file to read from it beside the thread that writes.
    pub(super) fn open_unverified(&self, cluster: Option<&str>) -> Result<Database, DiskError> {
        let database = open_storage(&*self.config.readable).and_then(Database::open_unverified)?;
        check(&database, &self.config, cluster).map(|_| database)
    }

    fn copy(&self, former: &Database, own: &Database, key: Option<&CacheKey>) -> Result<CopiedStores, CopyError> {
        // Objects without a cluster would pass for the next one's.
        let cluster = match own.meta("cluster").map_err(CopyError::Write)? {
            None => former.meta("cluster").map_err(CopyError::Read)?,
            Some(_) => None,
        };
        let begun = own.write(|batch| {
            if self.is_first {
                batch.put_meta(&place(&self.config.path), BEGUN)?;
            }
            cluster.iter().try_for_each(|cluster| batch.put_meta("cluster", cluster))
        });
        begun.map_err(CopyError::Write)?;
        if self.is_first {
            copy_values(former, own)?;
            // Values that are removed or replaced from now on must not come back.
            let copied = own.write(|batch| batch.put_meta(&place(&self.config.path), VALUES));
            copied.map_err(CopyError::Write)?;
        }
        copy_stores(former, own, key)
    }
}

/// The name under which the present file notes what it has taken over from another one.
fn place(path: &Path) -> String {
    format!("taken/{}", path.display())
}

/// What changes with a file; `None` if there is none.
fn stamp(path: &Path) -> Option<String> {
    let found = std::fs::symlink_metadata(path).ok().filter(std::fs::Metadata::is_file)?;
    Some(format!("{}.{}-{}-{}", found.mtime(), found.mtime_nsec(), found.len(), found.ino()))
}
