//! What speaks against the objects of a store: who reads them may not read them any more, they differ from the API server's, or
//! nobody knows whether its history is still the one that they are of.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tokio::sync::watch;

use super::compare::Difference;

/// Whether the objects of a store may be served, and whether they must be listed again.
#[derive(Debug, Default)]
pub(crate) struct Trust {
    /// The API server has answered 401 or 403, and nothing else since.
    refused: AtomicBool,
    doubt: watch::Sender<Option<Doubt>>,
    /// The last change of the cluster by which the objects turned out to be another one's.
    cluster_change: AtomicU64,
    question: watch::Sender<Question>,
    /// By what a list has shown that the history of the objects had ended, until that is reported.
    ended: watch::Sender<Option<Difference>>,
}

/// Whether the version of a store is a place in the API server's present history. A restore of etcd begins another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) enum Continuity {
    /// It was, and the connection has held since.
    #[default]
    Known,
    /// A connection was lost, and there was one again at once. The API server's newest version decides.
    Lost,
    /// The objects come from disk, or the API server was away. A list of names, uids and versions decides.
    Unknown,
}

/// What is in question of a store's history. Each question has a number: an answer to one says nothing of those that came later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Question {
    pub(crate) continuity: Continuity,
    number: u64,
}

impl Question {
    /// Whether it takes a list of names, uids and versions to answer it.
    pub(crate) fn is_of_outage(self) -> bool {
        self.continuity == Continuity::Unknown
    }
}

/// Why the objects must be listed again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Doubt {
    /// The source is behind, or nothing is certain of it.
    Stale,
    /// An object differs. The highest version that one of both sides has of it.
    Different(u64),
}

/// The questions of a store's history from now on.
pub(crate) struct Questions(watch::Receiver<Question>);

impl Questions {
    /// Resolves with the next question. Cancel safe.
    pub(crate) async fn next(&mut self) {
        loop {
            if self.0.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
            if self.0.borrow_and_update().continuity != Continuity::Known {
                return;
            }
        }
    }
}

impl Trust {
    /// Notes what the API server has answered a list or a watch. Returns whether that is new.
    pub(crate) fn set_refused(&self, refused: bool) -> bool {
        self.refused.swap(refused, Ordering::AcqRel) != refused
    }

    pub(crate) fn is_refused(&self) -> bool {
        self.refused.load(Ordering::Acquire)
    }

    /// Requests that all objects be listed again from the API server.
    pub(crate) fn doubt(&self, doubt: Doubt) {
        self.doubt.send_if_modified(|present| {
            let is_new = present.is_none();
            present.get_or_insert(doubt);
            is_new
        });
    }

    /// Records that the objects are of another cluster since this change of it. Returns whether that is new.
    pub(crate) fn note_cluster_change(&self, change: u64) -> bool {
        self.cluster_change.fetch_max(change, Ordering::AcqRel) < change
    }

    /// The last such change.
    pub(crate) fn cluster_change(&self) -> u64 {
        self.cluster_change.load(Ordering::Acquire)
    }

    /// The doubt that was not settled yet.
    pub(crate) fn doubted(&self) -> Option<Doubt> {
        *self.doubt.borrow()
    }

    /// Records that the objects were listed again, by a request sent after this change of the cluster and before the next one.
    pub(crate) fn settle(&self, cluster_change: u64) {
        self.doubt.send_if_modified(|doubt| self.cluster_change() == cluster_change && doubt.take().is_some());
    }

    /// Notes why the history may be another one. What asks for more stays. Each connection that was lost is a question of its own:
    /// another cluster may answer after each.
    pub(crate) fn question(&self, continuity: Continuity) {
        self.question.send_modify(|present| {
            *present = Question { continuity: continuity.max(present.continuity), number: present.number + 1 };
        });
    }

    /// Notes that the API server has answered a question. One that came meanwhile stays.
    pub(crate) fn answer(&self, asked: Question) {
        self.question.send_if_modified(|present| {
            let is_answered = *present == asked;
            if is_answered {
                present.continuity = Continuity::Known;
            }
            is_answered
        });
    }

    /// Returns a receiver that is notified each time the history comes into question.
    pub(crate) fn questions(&self) -> Questions {
        Questions(self.question.subscribe())
    }

    /// The present question.
    pub(crate) fn asked(&self) -> Question {
        *self.question.borrow()
    }

    pub(crate) fn continuity(&self) -> Continuity {
        self.asked().continuity
    }

    /// Resolves with a question that nobody has answered yet. Cancel safe.
    pub(crate) async fn until_questioned(&self) {
        // The sender lives as long as `self`.
        let _ = self.question.subscribe().wait_for(|present| present.continuity != Continuity::Known).await;
    }

    /// Notes that a list is of another history than the objects that it has replaced.
    pub(crate) fn end_history(&self, difference: Difference) {
        self.ended.send_replace(Some(difference));
    }

    /// Takes the difference by which a list has shown another history, once there is one. Cancel safe.
    pub(crate) async fn until_ended(&self) -> Difference {
        let mut ended = self.ended.subscribe();
        loop {
            // The sender lives as long as `self`.
            let _ = ended.wait_for(Option::is_some).await;
            let mut found = None;
            self.ended.send_if_modified(|ended| {
                found = ended.take();
                false
            });
            if let Some(found) = found {
                return found;
            }
        }
    }

    /// Resolves when the objects must be listed again. Cancel safe.
    pub(crate) async fn until_doubted(&self) {
        // The sender lives as long as `self`.
        let _ = self.doubt.subscribe().wait_for(Option::is_some).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_settles_no_doubt_that_came_after_it_was_asked_for() {
        let trust = Trust::default();
        let note_cluster_change = |change| {
            let is_new = trust.note_cluster_change(change);
            trust.doubt(Doubt::Stale);
            is_new
        };
        assert!(note_cluster_change(1) && !note_cluster_change(1));
        let asked = trust.cluster_change();
        assert!(note_cluster_change(2));
        trust.settle(asked);
        assert_eq!(trust.doubted(), Some(Doubt::Stale));
        trust.settle(trust.cluster_change());
        assert_eq!(trust.doubted(), None);
    }

    #[test]
    fn an_answer_settles_no_question_that_came_after_it_was_asked_for() {
        let trust = Trust::default();
        let mut questions = trust.questions();
        let mut is_notified = || questions.0.has_changed().unwrap() && questions.0.borrow_and_update().number > 0;
        trust.question(Continuity::Unknown);
        assert!(is_notified());
        let asked = trust.asked();
        trust.question(Continuity::Lost);
        assert!(is_notified(), "each lost connection is a question");
        trust.answer(asked);
        assert_eq!(trust.continuity(), Continuity::Unknown);
        trust.answer(trust.asked());
        assert_eq!(trust.continuity(), Continuity::Known);
    }
}
