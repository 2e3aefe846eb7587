//! What the API server said lately of the users of client certificates: a client asks for the same again and again, and each
//! review is a round trip. A right that is revoked is gone within [`ALLOWED`]; the server itself judges every request all
//! the same, as that of the user whom the daemon impersonates.
//!
//! Who asks while the same is being asked waits for that answer. Memory: [`MOST`] questions.

use std::collections::HashMap;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, timeout};

use crate::proxy::respond::Refusal;

/// How long a yes holds.
const ALLOWED: Duration = Duration::from_secs(10);
/// How long a no holds.
const DENIED: Duration = Duration::from_secs(5);
/// For an answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// Questions at a time.
const MOST: usize = 4096;

/// The answers of the last seconds.
#[derive(Debug, Default)]
pub(in crate::proxy) struct Reviews(Mutex<HashMap<String, Arc<Answer>>>);

/// The answer to one question; locked while it is asked.
type Answer = tokio::sync::Mutex<Option<(Said, Instant)>>;

#[derive(Debug, Clone)]
enum Said {
    Allowed,
    Denied,
    /// Only for those who have waited for it.
    Nothing(String),
}

impl Reviews {
    /// What was said to a question, or is said now. Cancel-safe: who waits then asks for itself.
    ///
    /// # Errors
    /// [`Refusal::Review`].
    pub(in crate::proxy) async fn answer(
        &self,
        question: String,
        ask: impl Future<Output = Result<bool, Refusal>>,
    ) -> Result<bool, Refusal> {
        let began = Instant::now();
        let answer = self.place(question);
        let mut answer = answer.lock().await;
        if let Some((said, at)) = &*answer
            && (*at > began || at.elapsed() < said.holds())
        {
            return said.clone().into();
        }
        let said = match timeout(PATIENCE, ask).await {
            Ok(Ok(true)) => Said::Allowed,
            Ok(Ok(false)) => Said::Denied,
            Ok(Err(Refusal::Review(reason))) => Said::Nothing(reason),
            Ok(Err(other)) => return Err(other),
            Err(_) => Said::Nothing(format!("no answer within {PATIENCE:?}")),
        };
        *answer = Some((said.clone(), Instant::now()));
        said.into()
    }

    fn place(&self, question: String) -> Arc<Answer> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() >= MOST && !kept.contains_key(&question) {
            kept.retain(|_, answer| match answer.try_lock() {
                Ok(answer) => answer.as_ref().is_some_and(|(said, at)| at.elapsed() < said.holds()),
                Err(_) => true,
            });
            if kept.len() >= MOST {
                kept.clear();
            }
        }
        kept.entry(question).or_default().clone()
    }
}

impl Said {
    fn holds(&self) -> Duration {
        match self {
            Self::Allowed => ALLOWED,
            Self::Denied => DENIED,
            Self::Nothing(_) => Duration::ZERO,
        }
    }
}

impl From<Said> for Result<bool, Refusal> {
    fn from(said: Said) -> Self {
        match said {
            Said::Allowed => Ok(true),
            Said::Denied => Ok(false),
            Said::Nothing(reason) => Err(Refusal::Review(reason)),
        }
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
        let (reviews, count) = (Reviews::default(), AtomicUsize::new(0));
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
        let (reviews, count) = (Reviews::default(), AtomicUsize::new(0));
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
        let (reviews, count) = (Reviews::default(), AtomicUsize::new(0));
        let kept = |reviews: &Reviews| reviews.0.lock().unwrap().len();
        for question in 0..MOST {
            reviews.place(question.to_string());
        }
        assert_eq!(kept(&reviews), MOST);
        ask(&reviews, "one more", &count, Ok(true)).await.unwrap();
        assert_eq!(kept(&reviews), 1, "what nobody answered goes first");
    }
}
