//! Whether a store that goes on where it was, from disk or after an outage, does so in the API server's present history.

use std::time::Duration;

use weir_upstream::jitter;

use super::{StoreCheck, Verdict, different};
use crate::cache::compare::{Continuation, Difference, continuation};
use crate::cache::trust::{Continuity, Question};
use crate::resource_client::RequestError;

impl StoreCheck {
    /// Resolves a while after it is in question whether the store goes on in the API server's history, if the API server can be
    /// asked. Cancel safe.
    pub(super) async fn until_questioned(&self, pause: Duration) -> Question {
        let mut state = self.store.state();
        loop {
            self.store.trust().until_questioned().await;
            if let Some(delegated) = &self.delegated {
                delegated.until_delegated().await;
            }
            tokio::time::sleep(jitter(pause)).await;
            let asked = self.store.trust().asked();
            if asked.continuity != Continuity::Known && self.is_comparable() {
                return asked;
            }
            // Its other waits end with the state, or in a moment.
            let _ = tokio::time::timeout(pause, state.changed()).await;
        }
    }

    /// Asks the API server whether its history goes on from the store. Returns whether it has said so, or not.
    pub(super) async fn confirm(&self, asked: Question) -> bool {
        let Ok(_turn) = self.config.turn.acquire().await else { return false };
        let before = self.server.received.bytes();
        let verdict = match asked.continuity {
            Continuity::Unknown => match self.continues().await {
                Ok(Verdict::Different(..)) => self.continues().await,
                first => first,
            },
            Continuity::Known | Continuity::Lost => self.reached().await,
        };
        let verdict = verdict.unwrap_or_else(|error| self.unanswered(&error));
        if verdict == Verdict::Same {
            self.store.confirm_history(asked);
        }
        let is_answered = matches!(verdict, Verdict::Same | Verdict::Different(..));
        self.conclude(verdict, self.server.received.bytes().saturating_sub(before), true);
        is_answered
    }

    /// Whether the API server has reached the version of the store.
    async fn reached(&self) -> Result<Verdict, RequestError> {
        let before = self.store.snapshot();
        let newest = self.server.first().await?.version;
        Ok(match newest < before.version {
            true => different(Difference::Ahead { version: before.version, newest }, &before.objects),
            false => Verdict::Same,
        })
    }

    /// Whether what the API server has from before the version of the store is what the store has.
    async fn continues(&self) -> Result<Verdict, RequestError> {
        let stored = self.store.snapshot();
        let served = match self.server.all(stored.version).await {
            Err(RequestError::UnknownVersion) => return self.reached().await,
            served => served?,
        };
        if served.has_more {
            return Ok(Verdict::Unclear("the list has pages"));
        }
        match continuation(&stored, &served.prints) {
            Continuation::Same => Ok(Verdict::Same),
            Continuation::Other(found) => Ok(different(found, &stored.objects)),
            Continuation::Unsure => self.compare().await,
        }
    }
}
