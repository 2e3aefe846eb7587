//! Permissions that are read from disk, granted and denied at the same time.

use super::*;
use crate::{Schedules, join};
use shuttle::future::block_on;
use shuttle::thread;

pub(crate) const ALL: Schedules = &[
    ("a_denial_outlasts_what_is_read_meanwhile", a_denial_outlasts_what_is_read_meanwhile),
    ("a_removed_row_stays_removed", a_removed_row_stays_removed),
    ("memory_and_disk_agree", memory_and_disk_agree),
];

const OWNER: Owner = Owner::Unaccepted;

/// A permission on disk, from before the start.
fn with_permission() -> Arc<Grants> {
    let disk = Arc::new(DiskCache::default());
    block_on(Grants::new(Some(disk.clone()), Arc::new(Outage)).allow(&OWNER, "a", None));
    Arc::new(Grants::new(Some(disk), Arc::new(Outage)))
}

fn answer(grants: &Grants) -> Option<bool> {
    block_on(grants.answer("a", None, false))
}

fn reads(grants: &Arc<Grants>) -> thread::JoinHandle<()> {
    let grants = grants.clone();
    thread::spawn(move || drop(block_on(grants.row("grant/a"))))
}

fn a_denial_outlasts_what_is_read_meanwhile() {
    let grants = with_permission();
    let read = reads(&grants);
    block_on(grants.deny(&OWNER, "a", None));
    assert_eq!(answer(&grants), Some(false), "a permission holds that was denied");
    join([read]);
    assert_eq!(answer(&grants), Some(false), "a permission holds that was denied");
}

fn a_removed_row_stays_removed() {
    let grants = with_permission();
    let read = reads(&grants);
    block_on(grants.remove("grant/a"));
    join([read]);
    assert_eq!(answer(&grants), None, "a row holds that was removed");
}

/// What the next process reads is what this one has.
fn memory_and_disk_agree() {
    let grants = with_permission();
    let denies = thread::spawn({
        let grants = grants.clone();
        move || block_on(grants.deny(&OWNER, "a", None))
    });
    block_on(grants.deny(&OWNER, "a", None));
    block_on(grants.allow(&OWNER, "a", None));
    join([denies]);
    let next = Grants::new(grants.disk.clone(), Arc::new(Outage));
    assert_eq!(answer(&next), answer(&grants), "memory and disk differ");
}
