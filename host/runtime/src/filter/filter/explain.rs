//! Explains what one filter makes of one document, on an instance that remembers nothing: its reads are complete.

use weir_document::Document;

use super::FilterState;
use crate::filter::explanation::{Decision, FilterExplanation};
use crate::filter::outcome::Failure;
use crate::{Steps, Verdict};
use weir_spec::{FailurePolicy, Mode};

impl FilterState {
    pub(super) async fn explain(&self, document: Document, guarded: bool) -> FilterExplanation {
        let before = self.guard(document.clone(), guarded);
        let is_suspended = self.breaker.is_open();
        let (verdict, steps) = match self.pool.fresh().await {
            Ok(mut checkout) => checkout.instance().explain(before).await,
            Err(fault) => (Err(fault), Steps::default()),
        };
        let decision = match verdict {
            Ok(Verdict::Hide) => Decision::Hide,
            Ok(Verdict::Keep) => Decision::Keep,
            Ok(Verdict::Edit(object)) => Decision::Edit(object),
            Err(fault) => {
                Decision::Fail(Failure { filter: self.name.clone(), class: fault.class, message: fault.message.into() })
            }
        };
        let applies = is_suspended || matches!(decision, Decision::Fail(_));
        let failure_policy = applies.then_some(self.failure_policy).filter(|_| self.mode == Mode::Enforce);
        let after = match (failure_policy, &decision) {
            _ if self.mode == Mode::Observe => Some(document),
            (Some(FailurePolicy::Ignore), _) | (None, Decision::Keep) => Some(document),
            (None, Decision::Edit(edited)) => Some(edited.clone()),
            _ => None,
        };
        FilterExplanation {
            filter: self.name.clone(),
            digest: Some(self.digest),
            mode: self.mode,
            decision,
            failure_policy,
            is_suspended,
            steps,
            after,
        }
    }
}
