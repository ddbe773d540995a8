//! Requests of any kind: all slots that a request needs are called, and their charges are taken
//! back if it is not admitted.
//!
//! A request that has begun is finished. If its caller goes away while slots besides the one being
//! called take part in the decision, the rest runs in the background: it awaits the replies, and
//! takes the charges back unless the request is admitted. Slots that were not called yet are not
//! called any more, and the request is then not admitted.
//!
//! A reserve that is sent again until it is decided (`HoldAction::ReserveOnce`) is taken back only
//! if it is denied. If there is no decision, or its caller has gone away, its charges stay: the
//! next attempt completes or reverses them, and must not find one that is about to be taken back.

use std::pin::Pin;
use std::sync::Arc;

use futures_util::future::{BoxFuture, FutureExt as _, MaybeDone, join_all, maybe_done};
use tokio::time::{Instant, timeout_at};
use tollgate_core::algorithm::hold::HoldRequest;
use tollgate_core::algorithm::judge::{Few, Hits};
use tollgate_core::algorithm::verdict::{Overall, Prior, combine};
use tollgate_core::algorithm::{OnStoreError, Receipt};
use tollgate_lease::OwnedCheck;

use super::plan::{self, Group};
use super::take_back::TakenBack;
use crate::fallback::Fallback;
use crate::open_checks::{CheckOutcomes, StoreErrors, all_of, has_passing_vote, prior_of};
use crate::redis::RedisStore;
use crate::redis::script::decode::{CheckReplies, CheckReply, ScriptReply};
use crate::redis::script::encode::{Context, ScriptRequest};
use crate::{Check, Outcomes, StoreError};

/// A request whose caller waits for it.
struct PendingRequest<'a> {
    store: &'a RedisStore,
    checks: &'a [Check<'a>],
    prior: Prior,
    fallback: Option<&'a Fallback>,
    progress: RequestProgress,
}

/// The progress of a request.
#[derive(Default)]
struct RequestProgress {
    judged: CheckOutcomes,
    /// Slots that were called, and have not replied yet.
    calls: Vec<SlotCall>,
    /// Slots that have replied.
    answered: Vec<(Group, CheckReplies)>,
    /// Set if the only slot decides the request, so that its charges are final.
    is_decided_there: bool,
    /// Set if the caller has gone away.
    is_abandoned: bool,
}

/// A round of calls: limits of a second on separate servers come first.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Round {
    /// Another one follows.
    First,
    Last,
}

/// The call of one slot.
struct SlotCall {
    group: Group,
    reply: MaybeDone<BoxFuture<'static, Result<ScriptReply, StoreError>>>,
}

impl RedisStore {
    /// Judges any request.
    pub(super) fn decide_all(
        &self,
        checks: &[Check<'_>],
        prior: Prior,
        deadline: Instant,
        fallback: Option<&Fallback>,
    ) -> impl Future<Output = Outcomes> + Send {
        async move {
            let progress = RequestProgress::default();
            let mut request = PendingRequest { store: self, checks, prior, fallback, progress };
            request.call_all(deadline).await;
            let progress = std::mem::take(&mut request.progress);
            let (outcomes, taken_back) = self.conclude(checks, prior, fallback, progress);
            if !taken_back.is_empty() {
                // At the deadline, the reply does not wait any longer.
                let _ = timeout_at(deadline, join_all(taken_back)).await;
            }
            outcomes
        }
    }

    /// Calls one slot.
    pub(super) fn call_group(
        &self,
        checks: &[Check<'_>],
        group: &Group,
        context: Context,
        deadline: Instant,
    ) -> impl Future<Output = Result<ScriptReply, StoreError>> + Send + use<> {
        let core = Arc::clone(self.core_of(group));
        let of_group: Few<&Check<'_>> =
            group.checks.iter().filter_map(|number| checks.get(*number)).collect();
        let of_group = of_group.into_iter();
        let given = core.given_time();
        let request =
            Arc::new(ScriptRequest::several(&core.prefix, of_group, context, given, core.now()));
        let slot = group.slot;
        let charges = group.charges(checks);
        async move { core.run_charging(slot, request, charges, deadline).await }
    }

    /// Decides what the store left to this process, and takes back the charges if the request is
    /// not admitted. Also returns the take-backs of holds, which the reply should wait for.
    fn conclude(
        &self,
        checks: &[Check<'_>],
        prior: Prior,
        fallback: Option<&Fallback>,
        progress: RequestProgress,
    ) -> (Outcomes, Vec<TakenBack>) {
        let RequestProgress { mut judged, answered, is_abandoned, .. } = progress;
        let mut taken_back = Vec::new();
        // Called after all slots have replied: a charge of the fallback is not taken back.
        if let Some(fallback) = fallback {
            fallback.decide_left(checks, &mut judged, prior);
        }
        let verdicts = checks.iter().zip(&judged).map(|(check, outcome)| {
            let outcome = outcome.as_ref().map_or(Err(&StoreError::Unavailable), Result::as_ref);
            (check.role, check.verdict(outcome))
        });
        let overall = combine(prior, verdicts);
        let will_be_retried = (overall == Overall::Failed || is_abandoned)
            && checks.iter().filter_map(|check| check.hold).any(HoldRequest::is_retried);
        if overall != Overall::Admitted && !will_be_retried {
            for (group, answers) in answered {
                taken_back.extend(self.take_back(checks, &group, answers, &mut judged));
            }
        }
        plan::report_bans(checks, &mut judged);
        (all_of(judged), taken_back)
    }

    /// Takes back the charges of a slot, and replaces its outcomes in `judged` by those without the
    /// charges.
    fn take_back(
        &self,
        checks: &[Check<'_>],
        group: &Group,
        answers: CheckReplies,
        judged: &mut CheckOutcomes,
    ) -> Option<TakenBack> {
        let mut charges: Few<(&Check<'_>, Receipt, _)> = Few::new();
        for (number, answer) in group.checks.iter().zip(answers) {
            let Some(check) = checks.get(*number) else { continue };
            let Some(place) = judged.get_mut(*number) else { continue };
            let receipt = to_undo(check, &answer);
            if let Some(outcome) = answer.if_denied {
                *place = Some(Ok(*outcome));
            }
            charges.extend(receipt.map(|receipt| (check, receipt, answer.undo)));
        }
        self.take_back_later(group, charges)
    }

    /// Finishes a request whose caller has gone away.
    async fn finish(
        self,
        checks: Vec<OwnedCheck>,
        prior: Prior,
        fallback: Option<Fallback>,
        mut progress: RequestProgress,
    ) {
        let holds: Few<Option<HoldRequest<'_>>> = checks.iter().map(OwnedCheck::hold).collect();
        let checks = checks.iter().zip(&holds).map(|(check, hold)| check.check_with(hold.as_ref()));
        let checks: Few<Check<'_>> = checks.collect();
        progress.is_abandoned = true;
        progress.wait_for_replies().await;
        let all_asked = progress.judged.iter().all(Option::is_some);
        let prior = if all_asked { prior } else { Prior::Denied };
        self.conclude(&checks, prior, fallback.as_ref(), progress);
    }
}

impl PendingRequest<'_> {
    /// Calls all slots that are not down.
    async fn call_all(&mut self, deadline: Instant) {
        let Self { store, checks, .. } = *self;
        let groups = plan::groups(checks, &store.core, store.per_second.as_deref());
        if !store.has_begun() {
            Box::pin(store.begin(&groups, deadline)).await;
        }
        let (first, last) = self.rounds(groups);
        // Limits of a second on separate servers are judged first, in half of the time: the other
        // servers then know the result, and their charges are final.
        if !first.is_empty() {
            if last.is_empty() {
                return self.call(first, Round::Last, deadline).await;
            }
            self.call(first, Round::First, halfway(deadline)).await;
        }
        if !last.is_empty() {
            self.call(last, Round::Last, deadline).await;
        }
    }

    /// Judges bans, and returns the slots to call first and those to call after them; a slot whose
    /// server is down fails.
    fn rounds(&mut self, mut groups: Vec<Group>) -> (Vec<Group>, Vec<Group>) {
        let Self { store, checks, .. } = *self;
        let now = store.core.now();
        let bans = checks
            .iter()
            .map(|check| if check.is_ban() { plan::of_ban(check, now).map(Ok) } else { None });
        self.progress.judged = bans.collect();
        groups.retain(|group| {
            let is_down = store.core_of(group).is_down(group.slot);
            if is_down {
                self.progress.fail(group, &StoreError::Unavailable);
                store.core_of(group).routes.doubt();
            }
            !is_down
        });
        let first = groups.extract_if(.., |group| group.per_second).collect();
        (first, groups)
    }

    /// Returns the context of a round of calls.
    fn context(&self, groups: &[Group], round: Round) -> Context {
        let checks = self.checks;
        let judged = &self.progress.judged;
        // The only call of the last round decides the request, unless a vote has passed, or this
        // process decides a check after it.
        let is_partial = round == Round::First
            || groups.len() > 1
            || has_passing_vote(checks, judged)
            || judged.iter().any(|outcome| matches!(outcome, Some(Err(_))));
        let has_fallback = self.fallback.is_some();
        let errors = if has_fallback { StoreErrors::Open } else { StoreErrors::Final };
        Context { prior: prior_of(checks, judged, self.prior, errors), is_partial, has_fallback }
    }

    /// Calls some slots concurrently.
    async fn call(&mut self, groups: Vec<Group>, round: Round, deadline: Instant) {
        let context = self.context(&groups, round);
        let mut modes = self.checks.iter().map(|check| check.limit.on_store_error());
        let may_fall_back = context.has_fallback && modes.any(|mode| mode == OnStoreError::Local);
        self.progress.is_decided_there =
            !context.is_partial && self.progress.answered.is_empty() && !may_fall_back;
        let calls = groups.into_iter().map(|group| {
            let reply = self.store.call_group(self.checks, &group, context, deadline);
            SlotCall { group, reply: maybe_done(reply.boxed()) }
        });
        self.progress.calls = calls.collect();
        self.progress.wait_for_replies().await;
    }
}

impl Drop for PendingRequest<'_> {
    fn drop(&mut self) {
        let progress = std::mem::take(&mut self.progress);
        let has_called = !(progress.calls.is_empty() && progress.answered.is_empty());
        if !has_called || progress.is_decided_there {
            return;
        }
        let charges = progress.answered.iter().map(|(group, _)| group.charges(self.checks)).sum();
        let checks = self.checks.iter().map(OwnedCheck::of).collect();
        let finishing =
            self.store.clone().finish(checks, self.prior, self.fallback.cloned(), progress);
        if !self.store.background.spawn(finishing) {
            self.store.core.metrics.take_backs_lost.inc_by(charges);
        }
    }
}

impl RequestProgress {
    /// Waits for the replies of all slots that were called.
    async fn wait_for_replies(&mut self) {
        match self.calls.as_mut_slice() {
            [only] => (&mut only.reply).await,
            calls => drop(join_all(calls.iter_mut().map(|call| &mut call.reply)).await),
        }
        for SlotCall { group, mut reply } in std::mem::take(&mut self.calls) {
            match Pin::new(&mut reply).take_output() {
                Some(Ok(ScriptReply::Judged(answers))) => {
                    for (number, answer) in group.checks.iter().zip(&answers) {
                        if let Some(place) = self.judged.get_mut(*number) {
                            *place = Some(answer.outcome);
                        }
                    }
                    self.answered.push((group, answers));
                }
                Some(Ok(
                    ScriptReply::Amended(_) | ScriptReply::Alone | ScriptReply::Beyond { .. },
                )) => self.fail(&group, &StoreError::Refused),
                Some(Err(error)) => self.fail(&group, &error),
                None => {}
            }
        }
    }

    /// Sets an error as the outcome of all checks of a group.
    fn fail(&mut self, group: &Group, error: &StoreError) {
        for number in &group.checks {
            if let Some(place) = self.judged.get_mut(*number) {
                *place = Some(Err(*error));
            }
        }
    }
}

/// Returns the instant halfway to a deadline.
fn halfway(deadline: Instant) -> Instant {
    let now = Instant::now();
    now.checked_add(deadline.saturating_duration_since(now).div_f64(2.0)).unwrap_or(now)
}

/// Returns the receipt of a charge that is due only if the request is admitted.
fn to_undo(check: &Check<'_>, answer: &CheckReply) -> Option<Receipt> {
    let allowed = answer.outcome.as_ref().is_ok_and(|outcome| outcome.allowed);
    let conditional = check.limit.charge_mode().is_revocable() && allowed;
    match (check.hits, answer.written) {
        (Hits::Charge(hits), Some(at)) if conditional => {
            Some(Receipt { at, hits: hits.into(), of_grant: answer.of_grant })
        }
        (Hits::Charge(_) | Hits::Peek(_) | Hits::Refund(_), _) => None,
    }
}
