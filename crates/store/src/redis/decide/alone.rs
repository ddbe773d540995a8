//! Requests that consist of a single check, nearly all of those that limiters are asked.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use tokio::time::Instant;
use tollgate_core::algorithm::hold::HoldEffect;
use tollgate_core::algorithm::judge::{Few, Hits, Outcome};
use tollgate_core::algorithm::verdict::Prior;

use super::plan::Group;
use crate::redis::RedisStore;
use crate::redis::script::encode::ScriptRequest;
use crate::{Check, Outcomes, StoreError};

impl RedisStore {
    /// Decides the only check of a request. Returns `None` if its server is down, or if its limit
    /// is a ban.
    pub(super) fn decide_alone(
        &self,
        check: &Check<'_>,
        prior: Prior,
        deadline: Instant,
    ) -> impl Future<Output = Option<Result<Outcome, StoreError>>> + Send {
        async move {
            if check.limit.is_ban() {
                return None;
            }
            let per_second = check.limit.is_of_a_second();
            let core = self.core_for(per_second);
            let slot = core.slot(&check.key);
            if !self.has_begun() {
                self.begin_alone(per_second, slot, deadline).await;
            }
            let request =
                ScriptRequest::alone(&core.prefix, check, prior, core.given_time(), core.now());
            if core.is_down(slot) {
                return None;
            }
            let charges = u64::from(matches!(check.hits, Hits::Charge(_)));
            let reply = core.run_charging(slot, Arc::new(request), charges, deadline).await;
            Some(reply.and_then(|reply| {
                let answer = reply.judged().and_then(|mut answers| answers.pop());
                answer.ok_or(StoreError::Refused)?.outcome
            }))
        }
    }

    /// Waits until a connection to the server of a slot was attempted. Boxed, since it is only
    /// needed at startup.
    fn begin_alone(&self, per_second: bool, slot: u16, deadline: Instant) -> BoxFuture<'_, ()> {
        let group = Group { per_second, slot, checks: Few::from_slice(&[0]) };
        Box::pin(async move { self.begin(&[group], deadline).await })
    }
}

/// Returns the check that a request consists of: its only one, or a commit beside the settle of its
/// ID, which does nothing.
pub(super) fn only_change<'a, 'c>(checks: &'a [Check<'c>]) -> Option<&'a Check<'c>> {
    match checks {
        [check] => Some(check),
        [commit, settle] | [settle, commit] if supersedes(commit, settle) => Some(commit),
        _ => None,
    }
}

/// Returns `true` if `commit` changes a hold of the counter of which `settle` only wants a report.
fn supersedes(commit: &Check<'_>, settle: &Check<'_>) -> bool {
    commit.is_on_hold()
        && settle.hold.is_none()
        && settle.hits == Hits::Refund(0)
        && std::ptr::eq(commit.limit, settle.limit)
        && commit.key == settle.key
}

/// Returns the outcomes of a request's checks, given that of its [`only_change`].
pub(super) fn outcomes_of(checks: &[Check<'_>], outcome: Result<Outcome, StoreError>) -> Outcomes {
    if let [_] = checks {
        return Outcomes::from_iter([outcome]);
    }
    let outcomes = checks.iter().map(|check| match outcome {
        Ok(outcome) if !check.is_on_hold() => Ok(Outcome { hold: HoldEffect::Nothing, ..outcome }),
        outcome => outcome,
    });
    outcomes.collect()
}
