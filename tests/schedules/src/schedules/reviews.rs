//! Results that are replaced, forgotten and asked for at the same time, in moka's own cache.

use super::*;
use crate::{Schedules, join};
use shuttle::future::block_on;
use shuttle::thread;
use weir_process::sync::atomic::AtomicBool;

pub(crate) const ALL: Schedules = &[
    ("replaced_results_do_not_count", replaced_results_do_not_count),
    ("nothing_of_another_cluster_counts", nothing_of_another_cluster_counts),
];

fn key() -> ReviewKey {
    ReviewKey { owner: "u".into(), credential: "c".into(), name: "a".to_owned(), expires: None }
}

/// Errors expire at once: the next request replaces them.
fn replaced_results_do_not_count() {
    let cache = Arc::new(ReviewCache::for_reads());
    let clients = [0, 1, 2].map(|_| {
        let cache = cache.clone();
        thread::spawn(move || {
            let failed = async { Err(AccessError::Review("no".to_owned())) };
            assert!(block_on(cache.get_or_send(&key(), failed)).is_err());
        })
    });
    join(clients);
    block_on(async {
        cache.results.invalidate("a").await;
        cache.results.run_pending_tasks().await;
    });
    assert!(cache.shares.locked().is_empty(), "a result that was replaced counts for ever");
}

/// Two clients ask while another cluster takes over, which denies everything. The one that asks after all was forgotten never gets
/// what the first cluster has said.
fn nothing_of_another_cluster_counts() {
    let (cache, allows) = (Arc::new(ReviewCache::for_reads()), Arc::new(AtomicBool::new(true)));
    let ask = |cache: &Arc<ReviewCache>, allows: &Arc<AtomicBool>| {
        let (cache, allows) = (cache.clone(), allows.clone());
        move || {
            let send = async {
                let answer = allows.load(Ordering::Acquire);
                shuttle::future::yield_now().await;
                Ok(answer)
            };
            block_on(cache.get_or_send(&key(), send))
        }
    };
    let before = [0, 1].map(|_| thread::spawn(ask(&cache, &allows)));
    allows.store(false, Ordering::Release);
    cache.forget();
    let after = ask(&cache, &allows)();
    assert!(!matches!(after, Ok(true)), "the answer of another cluster counts");
    let _ = join(before);
}
