//! The pods whose tolerations are to be set: new ones at once, others at a bounded rate, and none for a while if the API server
//! permits or answers nothing.

use std::collections::{BTreeSet, VecDeque};
use std::num::NonZeroU32;
use std::time::Duration;

use tokio::time::Instant;

use super::pod::PodKey;

/// The pause of a pod whose patch was refused.
const RETRY: Duration = Duration::from_secs(60);
/// The first and the longest pause of all pods.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Pods that wait, each once.
#[derive(Debug)]
pub(super) struct Queue {
    urgent: VecDeque<PodKey>,
    others: BTreeSet<PodKey>,
    failed: VecDeque<(Instant, PodKey)>,
    interval: Duration,
    next: Instant,
    /// The last pause of all pods; zero after a success.
    pause: Duration,
    paused_until: Instant,
}

impl Queue {
    pub(super) fn new(rate: NonZeroU32) -> Self {
        let interval = Duration::from_secs(1) / rate.get();
        Self {
            urgent: VecDeque::new(),
            others: BTreeSet::new(),
            failed: VecDeque::new(),
            interval,
            next: Instant::now(),
            pause: Duration::ZERO,
            paused_until: Instant::now(),
        }
    }

    /// A pod that must not wait: it is new.
    pub(super) fn push_urgent(&mut self, key: PodKey) {
        self.others.remove(&key);
        if !self.urgent.contains(&key) {
            self.urgent.push_back(key);
        }
    }

    /// A pod that may wait.
    pub(super) fn push(&mut self, key: PodKey) {
        if !self.urgent.contains(&key) {
            self.others.insert(key);
        }
    }

    /// A pod that is tried again later.
    pub(super) fn push_failed(&mut self, key: PodKey) {
        self.failed.push_back((Instant::now() + RETRY, key));
    }

    /// A pod whose patch would have failed for any other pod, too. All wait, longer each time.
    pub(super) fn pause(&mut self, key: PodKey) {
        self.push_urgent(key);
        self.pause = (self.pause * 2).clamp(FIRST_PAUSE, LONGEST_PAUSE);
        self.paused_until = Instant::now() + self.pause;
    }

    /// A patch succeeded.
    pub(super) fn resume(&mut self) {
        self.pause = Duration::ZERO;
    }

    pub(super) fn len(&self) -> usize {
        self.urgent.len() + self.others.len() + self.failed.len()
    }

    /// Waits for the next pod whose turn it is. Cancel safe.
    pub(super) async fn pop(&mut self) -> PodKey {
        loop {
            tokio::time::sleep_until(self.paused_until).await;
            if let Some(key) = self.urgent.pop_front() {
                return key;
            }
            let now = Instant::now();
            while let Some((_, key)) = self.failed.pop_front_if(|(at, _)| *at <= now) {
                self.others.insert(key);
            }
            if self.next <= now
                && let Some(key) = self.others.pop_first()
            {
                self.next = now + self.interval;
                return key;
            }
            let wake = match (self.others.is_empty(), self.failed.front()) {
                (false, _) => self.next,
                (true, Some((at, _))) => *at,
                (true, None) => std::future::pending().await,
            };
            tokio::time::sleep_until(wake).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> PodKey {
        PodKey { namespace: "n".to_owned(), name: name.to_owned() }
    }

    #[tokio::test(start_paused = true)]
    async fn new_pods_come_first_and_others_at_the_rate() {
        let mut queue = Queue::new(NonZeroU32::new(10).unwrap());
        let begun = Instant::now();
        for at in 0..20 {
            queue.push(key(&format!("{at:02}")));
        }
        for _ in 0..10 {
            queue.pop().await;
        }
        queue.push_urgent(key("new"));
        queue.push_urgent(key("15"));
        assert_eq!((queue.pop().await.name, queue.pop().await.name), ("new".to_owned(), "15".to_owned()));
        assert!(begun.elapsed() < Duration::from_secs(1), "new ones did not wait");
        while queue.len() > 0 {
            queue.pop().await;
        }
        assert!((1800..2000).contains(&begun.elapsed().as_millis()), "{:?}", begun.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn a_failed_pod_is_tried_again_later() {
        let mut queue = Queue::new(NonZeroU32::new(10).unwrap());
        let begun = Instant::now();
        queue.push_failed(key("a"));
        assert_eq!(queue.pop().await, key("a"));
        assert!(begun.elapsed() >= RETRY);
    }

    #[tokio::test(start_paused = true)]
    async fn without_the_api_server_all_pods_wait() {
        let mut queue = Queue::new(NonZeroU32::new(20).unwrap());
        let begun = Instant::now();
        for at in 0..1000 {
            queue.push(key(&format!("{at:03}")));
        }
        let mut attempts = 0;
        while begun.elapsed() < Duration::from_secs(3600) {
            let key = queue.pop().await;
            queue.pause(key);
            attempts += 1;
        }
        assert!((120..130).contains(&attempts), "{attempts} in an hour");
        assert_eq!(queue.len(), 1000, "none is lost");
        let mended = Instant::now();
        for _ in 0..1000 {
            queue.pop().await;
            queue.resume();
        }
        assert!(mended.elapsed() < Duration::from_secs(30 + 51), "{:?}", mended.elapsed());
    }
}
