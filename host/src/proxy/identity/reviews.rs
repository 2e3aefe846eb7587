//! The API server's latest answers about the users of client certificates. A client asks for the same again and again, and
//! each review is a round trip. A revoked right is gone within [`ALLOWED`]; the server authorizes every request itself all
//! the same, as that of the user whom the daemon impersonates.
//!
//! Requests that need the same answer at the same time share one review. Memory: at most [`CAPACITY`] answers.

use std::future::Future;
use std::time::Duration;

use moka::future::Cache;
use tokio::time::{Instant, timeout};

use crate::proxy::respond::Refusal;

/// How long a request of a client certificate's user that is allowed counts as allowed. The API server decides again.
const ALLOWED: Duration = Duration::from_secs(10);
/// How long a read from a view that is allowed counts as allowed. Nobody decides again.
const ALLOWED_READ: Duration = Duration::from_secs(300);
/// How long what was allowed stays allowed while the API server gives no answer.
const OFFLINE_GRACE: Duration = Duration::from_secs(24 * 3600);
/// How long a request that is denied counts as denied.
const DENIED: Duration = Duration::from_secs(5);
/// How long the API server may take to answer.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The number of answers that are kept.
const CAPACITY: u64 = 4096;

/// The answers of the last seconds, by question.
#[derive(Debug)]
pub(in crate::proxy) struct Reviews {
    answers: Cache<String, Answer>,
    allowed: Duration,
    /// Questions that were allowed. They stay so while the API server gives no answer.
    granted: Cache<String, ()>,
}

/// An answer, or the reason why there is none, which only those get who have waited for it.
#[derive(Debug, Clone)]
struct Answer {
    allowed: Result<bool, String>,
    expires: Instant,
}

impl Reviews {
    /// For the users of client certificates.
    pub(in crate::proxy) fn of_certificates() -> Self {
        Self::new(ALLOWED)
    }

    /// For reads from views.
    pub(in crate::proxy) fn of_reads() -> Self {
        Self::new(ALLOWED_READ)
    }

    fn new(allowed: Duration) -> Self {
        // Each answer says when it expires; the cache drops those that nobody asks for again.
        Self {
            answers: Cache::builder().max_capacity(CAPACITY).time_to_live(allowed).build(),
            allowed,
            granted: Cache::builder().max_capacity(CAPACITY).time_to_live(OFFLINE_GRACE).build(),
        }
    }

    /// Whether a question was allowed within the offline grace period.
    pub(in crate::proxy) fn is_granted(&self, question: &str) -> bool {
        self.granted.contains_key(question)
    }

    /// Returns the answer that is known, or asks. Cancel-safe: another request that waits for the answer then asks.
    ///
    /// # Errors
    /// [`Refusal::Review`].
    pub(in crate::proxy) async fn answer(
        &self,
        question: String,
        ask: impl Future<Output = Result<bool, Refusal>>,
    ) -> Result<bool, Refusal> {
        let is_expired = |answer: &Answer| answer.expires <= Instant::now();
        let asked = Answer::to(ask, self.allowed);
        let answer = self.answers.entry(question.clone()).or_insert_with_if(asked, is_expired).await.into_value();
        match answer.allowed {
            Ok(true) => {
                self.granted.insert(question, ()).await;
                Ok(true)
            }
            Ok(false) => {
                self.granted.invalidate(&question).await;
                Ok(false)
            }
            Err(_) if self.granted.contains_key(&question) => Ok(true),
            Err(reason) => Err(Refusal::Review(reason)),
        }
    }
}

impl Answer {
    async fn to(ask: impl Future<Output = Result<bool, Refusal>>, allows: Duration) -> Self {
        let allowed = match timeout(TIMEOUT, ask).await {
            Ok(Ok(allowed)) => Ok(allowed),
            Ok(Err(Refusal::Review(reason))) => Err(reason),
            Ok(Err(other)) => Err(other.to_string()),
            Err(_) => Err(format!("no answer within {TIMEOUT:?}")),
        };
        let holds = match allowed {
            Ok(true) => allows,
            Ok(false) => DENIED,
            Err(_) => Duration::ZERO,
        };
        Self { allowed, expires: Instant::now() + holds }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// Asks, and counts how often that reached the server.
    async fn ask(
        reviews: &Reviews,
        question: &str,
        count: &AtomicUsize,
        says: Result<bool, &str>,
    ) -> Result<bool, String> {
        let asked = async {
            count.fetch_add(1, Ordering::Relaxed);
            tokio::time::sleep(Duration::from_secs(1)).await;
            says.map_err(|reason| Refusal::Review(reason.to_owned()))
        };
        reviews.answer(question.to_owned(), asked).await.map_err(|refusal| refusal.to_string())
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_holds_for_a_time_and_for_its_question_only() {
        let (reviews, count) = (Reviews::of_certificates(), AtomicUsize::new(0));
        for (question, said, holds) in [("a", true, ALLOWED), ("b", false, DENIED)] {
            count.store(0, Ordering::Relaxed);
            for _ in 0..100 {
                assert_eq!(ask(&reviews, question, &count, Ok(said)).await, Ok(said));
            }
            assert_eq!(count.load(Ordering::Relaxed), 1);
            tokio::time::advance(holds - Duration::from_millis(10)).await;
            assert_eq!(ask(&reviews, question, &count, Ok(!said)).await, Ok(said));
            tokio::time::advance(Duration::from_millis(10)).await;
            assert_eq!(ask(&reviews, question, &count, Ok(!said)).await, Ok(!said), "it has changed");
            assert_eq!(count.load(Ordering::Relaxed), 2);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn who_asks_the_same_meanwhile_shares_the_answer_and_a_failure_is_not_kept() {
        let (reviews, count) = (Reviews::of_certificates(), AtomicUsize::new(0));
        let both =
            || async { tokio::join!(ask(&reviews, "a", &count, Err("no")), ask(&reviews, "a", &count, Err("no"))) };
        let (first, second) = both().await;
        assert!(first.is_err() && first == second, "{first:?} {second:?}");
        assert_eq!(count.load(Ordering::Relaxed), 1);
        assert_eq!(ask(&reviews, "a", &count, Ok(true)).await, Ok(true));
        assert_eq!(count.load(Ordering::Relaxed), 2);
        let slow = reviews.answer("b".to_owned(), std::future::pending()).await;
        assert!(slow.unwrap_err().to_string().contains("no answer within 10s"));
    }

    #[tokio::test(start_paused = true)]
    async fn no_more_than_so_many_are_kept() {
        let reviews = Reviews::of_certificates();
        for question in 0..CAPACITY + 100 {
            assert_eq!(reviews.answer(question.to_string(), async { Ok(true) }).await.ok(), Some(true));
        }
        reviews.answers.run_pending_tasks().await;
        assert!(reviews.answers.entry_count() <= CAPACITY, "{}", reviews.answers.entry_count());
    }
}
