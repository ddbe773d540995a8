//! A request of any kind: all slots that it needs are asked, and what they charged is taken back where it is not admitted.
//!
//! A request that is begun is finished. If its caller goes away while others than the slot under way have a say in it, the rest goes
//! on in the background: replies are awaited, and charges taken back unless it is admitted. A slot that had not been asked is not
//! asked any more, and the request is then not admitted.

use std::pin::Pin;
use std::sync::Arc;

use futures_util::future::{BoxFuture, FutureExt as _, MaybeDone, join_all, maybe_done};
use tokio::time::Instant;

use super::RedisStore;
use super::answer::{Answer, Answers};
use super::plan::{self, Group};
use super::question::{Context, Question, Undo, Wanted};
use crate::algorithm::judge::{Few, Hits};
use crate::algorithm::verdict::{Overall, Prior, Role, combine};
use crate::algorithm::{Charge, OnStoreError, Receipt};
use crate::store::owned::OwnedCheck;
use crate::store::{Check, Outcomes, StoreError};

/// What has become of each check.
pub(super) type Judged = Few<plan::Judged>;

/// A request whose caller waits for it.
struct PendingRequest<'a> {
    store: &'a RedisStore,
    checks: &'a [Check<'a>],
    prior: Prior,
    progress: Progress,
}

/// How far a request has come.
#[derive(Default)]
struct Progress {
    judged: Judged,
    /// Slots that have been asked, and not answered yet.
    calls: Vec<SlotCall>,
    /// Slots that have answered.
    answered: Few<(Group, Answers)>,
    /// Whether the only slot decides the request, so that what it charges stands.
    is_decided_there: bool,
}

/// The part of one slot.
struct SlotCall {
    group: Group,
    reply: MaybeDone<BoxFuture<'static, Result<Answers, StoreError>>>,
}

impl RedisStore {
    /// Judges any request.
    pub(super) async fn decide_all(&self, checks: &[Check<'_>], prior: Prior, deadline: Instant) -> Outcomes {
        let mut request = PendingRequest { store: self, checks, prior, progress: Progress::default() };
        request.ask_all(deadline).await;
        let progress = std::mem::take(&mut request.progress);
        self.conclude(checks, prior, progress).await
    }

    /// Asks one slot.
    pub(super) fn ask_group(
        &self,
        checks: &[Check<'_>],
        group: &Group,
        context: Context,
        deadline: Instant,
    ) -> impl Future<Output = Result<Answers, StoreError>> + Send + use<> {
        let core = Arc::clone(self.core_of(group));
        let mut question = Question::new(context, core.given());
        let of_group = group.checks.iter().filter_map(|number| checks.get(*number));
        of_group.for_each(|check| question.add(&core.prefix, check, Wanted::Hits(check.hits), core.now()));
        let (slot, charges) = (group.slot, group.charges(checks));
        async move {
            let said = core.ask_to_charge(slot, question, charges, deadline).await?;
            said.judged().ok_or(StoreError::Refused)
        }
    }

    /// Decides what the store left to this process, and takes back what was charged where the request is not admitted.
    async fn conclude(&self, checks: &[Check<'_>], prior: Prior, progress: Progress) -> Outcomes {
        let Progress { mut judged, answered, .. } = progress;
        // When all others have spoken: what it charges is not taken back.
        self.fall_back(checks, &mut judged, prior).await;
        let verdicts = checks.iter().zip(&judged).map(|(check, outcome)| {
            let outcome = outcome.as_ref().map_or(Err(&StoreError::Unavailable), Result::as_ref);
            (check.role, check.verdict(outcome))
        });
        if combine(prior, verdicts) != Overall::Admitted {
            answered.into_iter().for_each(|(group, answers)| self.take_back(checks, &group, answers, &mut judged));
        }
        all_of(judged)
    }

    /// Takes back what a slot charged, and puts its counters without that to `judged`.
    fn take_back(&self, checks: &[Check<'_>], group: &Group, answers: Answers, judged: &mut Judged) {
        let mut charges: Few<(&Check<'_>, Receipt, Undo)> = Few::new();
        for (number, answer) in group.checks.iter().zip(answers) {
            let (Some(check), Some(place)) = (checks.get(*number), judged.get_mut(*number)) else { continue };
            let receipt = to_undo(check, &answer);
            let otherwise = answer.otherwise.map(|otherwise| *otherwise);
            if let Some(outcome) = otherwise.as_ref().and_then(|otherwise| otherwise.outcome) {
                *place = Some(Ok(outcome));
            }
            let undo = otherwise.map(|otherwise| otherwise.undo).unwrap_or_default();
            charges.extend(receipt.map(|receipt| (check, receipt, undo)));
        }
        self.undo(group, charges);
    }

    /// Decides in this process what could not be judged and whose limit says so. `prior`: of the request, before all checks.
    pub(super) async fn fall_back(&self, checks: &[Check<'_>], judged: &mut Judged, prior: Prior) {
        let Some(fallback) = &self.fallback else { return };
        let wants = |(number, check): (usize, &Check<'_>)| {
            let outcome = judged.get(number).and_then(Option::as_ref);
            outcome.is_some_and(|outcome| plan::is_left(check, outcome)).then_some(number)
        };
        let numbers: Few<usize> = checks.iter().enumerate().filter_map(wants).collect();
        if numbers.is_empty() {
            return;
        }
        let prior = plan::prior_of(checks, judged, prior, true);
        // If another vote has let pass, those that are decided here deny nothing.
        let is_let_pass = plan::has_passing_vote(checks, judged);
        let role = |role| if role == Role::Quota && is_let_pass { Role::QuotaShadow } else { role };
        let of_them = numbers.iter().filter_map(|number| checks.get(*number));
        let of_them: Few<Check<'_>> = of_them.map(|check| Check { role: role(check.role), ..*check }).collect();
        for (number, outcome) in numbers.iter().zip(fallback.decide(&of_them, prior).await) {
            if let (Some(place), Ok(outcome)) = (judged.get_mut(*number), outcome)
                && let Some(Err(error)) = place.replace(Ok(outcome))
            {
                // Outcomes do not tell of it any more.
                self.core.metrics.store_error(error.kind());
            }
        }
    }

    /// Finishes a request whose caller has gone away.
    async fn finish(self, checks: Vec<OwnedCheck>, prior: Prior, mut progress: Progress) {
        let checks: Few<Check<'_>> = checks.iter().map(OwnedCheck::check).collect();
        progress.hear().await;
        let all_asked = progress.judged.iter().all(Option::is_some);
        self.conclude(&checks, if all_asked { prior } else { Prior::Denied }, progress).await;
    }
}

impl PendingRequest<'_> {
    /// Asks the slots that can be asked.
    async fn ask_all(&mut self, deadline: Instant) {
        let Self { store, checks, prior, .. } = *self;
        let now = store.core.now();
        let of_ban = |check: &Check<'_>| check.limit.is_ban().then(|| plan::of_ban(check, now)).flatten().map(Ok);
        self.progress.judged = checks.iter().map(of_ban).collect();
        let groups = plan::groups(checks, &store.core, store.per_second.as_deref());
        store.begin(&groups, deadline).await;
        let (down, up): (Few<Group>, Few<Group>) =
            groups.into_iter().partition(|group| store.core_of(group).is_down(group.slot));
        for group in &down {
            self.progress.fail(group, &StoreError::Unavailable);
            store.core_of(group).routes.doubt();
        }
        // Limits of a second on servers of their own are asked first, in half of the time: the others then know the rest of
        // the request, and what they charge stands.
        let (first, last): (Few<Group>, Few<Group>) = up.into_iter().partition(|group| group.per_second);
        let more = !last.is_empty();
        let until = if more { halfway(deadline) } else { deadline };
        for (groups, more, until) in [(first, more, until), (last, false, deadline)] {
            if groups.is_empty() {
                continue;
            }
            let judged = &self.progress.judged;
            // Alone and last it decides, but for a vote that has let pass, and for what this process decides after it.
            let is_partial = more
                || groups.len() > 1
                || plan::has_passing_vote(checks, judged)
                || judged.iter().any(|outcome| matches!(outcome, Some(Err(_))));
            let has_fallback = store.fallback.is_some();
            let prior = plan::prior_of(checks, judged, prior, has_fallback);
            self.ask(groups, Context { prior, is_partial, has_fallback }, until).await;
        }
    }

    /// Asks some slots at the same time.
    async fn ask(&mut self, groups: Few<Group>, context: Context, deadline: Instant) {
        let is_local = |check: &Check<'_>| check.limit.on_store_error() == OnStoreError::Local;
        let may_fall_back = context.has_fallback && self.checks.iter().any(is_local);
        self.progress.is_decided_there = !context.is_partial && self.progress.answered.is_empty() && !may_fall_back;
        let call = |group: Group| {
            let reply = self.store.ask_group(self.checks, &group, context, deadline);
            SlotCall { group, reply: maybe_done(reply.boxed()) }
        };
        self.progress.calls = groups.into_iter().map(call).collect();
        self.progress.hear().await;
    }
}

impl Drop for PendingRequest<'_> {
    fn drop(&mut self) {
        let progress = std::mem::take(&mut self.progress);
        let has_asked = !(progress.calls.is_empty() && progress.answered.is_empty());
        if !has_asked || progress.is_decided_there {
            return;
        }
        let charges = progress.answered.iter().map(|(group, _)| group.charges(self.checks)).sum();
        let checks = self.checks.iter().map(OwnedCheck::of).collect();
        let finishing = self.store.clone().finish(checks, self.prior, progress);
        if !self.store.background.spawn(finishing) {
            self.store.core.metrics.take_backs_lost.inc_by(charges);
        }
    }
}

impl Progress {
    /// Waits for the replies of all slots that have been asked.
    async fn hear(&mut self) {
        match self.calls.as_mut_slice() {
            [only] => (&mut only.reply).await,
            calls => drop(join_all(calls.iter_mut().map(|call| &mut call.reply)).await),
        }
        for SlotCall { group, mut reply } in std::mem::take(&mut self.calls) {
            match Pin::new(&mut reply).take_output() {
                Some(Ok(answers)) => {
                    for (number, answer) in group.checks.iter().zip(&answers) {
                        if let Some(place) = self.judged.get_mut(*number) {
                            *place = Some(answer.outcome.clone());
                        }
                    }
                    self.answered.push((group, answers));
                }
                Some(Err(error)) => self.fail(&group, &error),
                None => {}
            }
        }
    }

    /// Puts an error to all checks of a group.
    fn fail(&mut self, group: &Group, error: &StoreError) {
        for number in &group.checks {
            if let Some(place) = self.judged.get_mut(*number) {
                *place = Some(Err(error.clone()));
            }
        }
    }
}

/// What has become of each check, of which all have been asked about.
pub(super) fn all_of(judged: Judged) -> Outcomes {
    judged.into_iter().map(|outcome| outcome.unwrap_or(Err(StoreError::Unavailable))).collect()
}

/// The instant between now and another.
fn halfway(deadline: Instant) -> Instant {
    let now = Instant::now();
    now.checked_add(deadline.saturating_duration_since(now).div_f64(2.0)).unwrap_or(now)
}

/// The receipt of a charge that only an admitted request makes.
fn to_undo(check: &Check<'_>, answer: &Answer) -> Option<Receipt> {
    let allowed = answer.outcome.as_ref().is_ok_and(|outcome| outcome.allowed);
    let conditional = matches!(check.limit.charge_mode(), Charge::Admitted | Charge::Blamed) && allowed;
    match (check.hits, answer.written) {
        (Hits::Charge(hits), Some(at)) if conditional => {
            Some(Receipt { at, hits: hits.into(), of_grant: answer.of_grant })
        }
        (Hits::Charge(_) | Hits::Peek(_) | Hits::Refund(_), _) => None,
    }
}
