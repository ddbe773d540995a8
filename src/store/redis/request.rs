//! A request of any kind: all slots that it needs are asked, and what they charged is taken back where it is not admitted.

use tokio::time::Instant;

use super::RedisStore;
use super::answer::{Answer, Answers};
use super::calls::UnderWay;
use super::plan::{self, Group};
use super::question::{Question, Undo, Wanted};
use crate::algorithm::judge::{Few, Hits};
use crate::algorithm::verdict::{Overall, Prior, combine};
use crate::algorithm::{Charge, Receipt};
use crate::store::{Check, Outcomes, StoreError};

/// What has become of each check.
pub(super) type Judged = Few<plan::Judged>;

impl RedisStore {
    /// Judges any request.
    pub(super) async fn decide_all(&self, checks: &[Check<'_>], prior: Prior, deadline: Instant) -> Outcomes {
        let (mut judged, known) = self.ask_all(checks, prior, deadline).await;
        let verdicts = checks.iter().zip(&judged).map(|(check, outcome)| {
            let outcome = outcome.as_ref().map_or(Err(&StoreError::Unavailable), Result::as_ref);
            (check.role, check.verdict(outcome))
        });
        if combine(prior, verdicts) != Overall::Admitted {
            for (group, answers) in known {
                let mut undo: Few<(&Check<'_>, Receipt, Undo)> = Few::new();
                for (number, answer) in group.checks.iter().zip(answers) {
                    let (Some(check), Some(place)) = (checks.get(*number), judged.get_mut(*number)) else { continue };
                    let receipt = to_undo(check, &answer);
                    let otherwise = answer.otherwise.map(|otherwise| *otherwise);
                    if let Some(outcome) = otherwise.as_ref().and_then(|otherwise| otherwise.outcome) {
                        *place = Some(Ok(outcome));
                    }
                    let how = otherwise.map(|otherwise| otherwise.undo).unwrap_or_default();
                    undo.extend(receipt.map(|receipt| (check, receipt, how)));
                }
                self.take_backs.add(self.core_of(&group), group.slot, undo);
            }
        }
        all_of(judged)
    }

    /// Asks the slots that can be asked, and puts what they say to `judged`.
    async fn ask_all(&self, checks: &[Check<'_>], prior: Prior, deadline: Instant) -> (Judged, Few<(Group, Answers)>) {
        let now = self.core.now();
        let mut judged: Judged = checks
            .iter()
            .map(|check| check.limit.is_ban().then(|| plan::of_ban(check, now)).flatten().map(Ok))
            .collect();
        let groups = plan::groups(checks, &self.core, self.per_second.as_deref());
        self.begin(&groups, deadline).await;
        let (down, up): (Few<Group>, Few<Group>) =
            groups.into_iter().partition(|group| self.core_of(group).is_down(group.slot));
        for group in &down {
            fail(group, &mut judged, &StoreError::Unavailable);
            self.core_of(group).routes.doubt();
        }
        // Limits of a second on servers of their own are asked first, in half of the time: the others then know the rest of
        // the request, and what they charge stands.
        let (first, last): (Few<Group>, Few<Group>) = up.into_iter().partition(|group| group.per_second);
        let until = if last.is_empty() { deadline } else { halfway(deadline) };
        let (more, mut known) = (!last.is_empty(), Few::new());
        for (groups, more, until) in [(first, more, until), (last, false, deadline)] {
            if groups.is_empty() {
                continue;
            }
            // Alone and last it decides, but for a vote that has let pass, and for what this process decides after it.
            let is_partial = more
                || groups.len() > 1
                || plan::has_passing_vote(checks, &judged)
                || judged.iter().any(|outcome| matches!(outcome, Some(Err(_))));
            let prior = plan::prior_of(checks, &judged, prior, self.fallback.is_some());
            known.extend(self.ask_at_once(checks, groups, (prior, is_partial), until, &mut judged).await);
        }
        // When all others have spoken: what it charges is not taken back.
        self.fall_back(checks, &mut judged, prior).await;
        (judged, known)
    }

    /// Asks some slots at the same time. `as_if`: what is known before, and whether there is more than these.
    pub(super) async fn ask_at_once(
        &self,
        checks: &[Check<'_>],
        groups: Few<Group>,
        as_if: (Prior, bool),
        deadline: Instant,
        judged: &mut Judged,
    ) -> Few<(Group, Answers)> {
        let mut asked = groups.iter().map(|group| self.ask_group(checks, group, as_if, deadline));
        let charges = groups.iter().map(|group| group.charges(checks)).fold(0, u64::saturating_add);
        let under_way = UnderWay::new(&self.core, charges);
        let answers = match (asked.len(), asked.next()) {
            (1, Some(only)) => vec![only.await],
            (_, first) => futures_util::future::join_all(first.into_iter().chain(asked)).await,
        };
        under_way.answered();
        let mut known = Few::new();
        for (group, answer) in groups.into_iter().zip(answers) {
            match answer {
                Ok(answers) => {
                    for (number, answer) in group.checks.iter().zip(&answers) {
                        if let Some(place) = judged.get_mut(*number) {
                            *place = Some(answer.outcome.clone());
                        }
                    }
                    known.push((group, answers));
                }
                Err(error) => {
                    self.core.count_unknown(group.charges(checks), &error);
                    fail(&group, judged, &error);
                }
            }
        }
        known
    }

    /// Asks one slot.
    async fn ask_group(
        &self,
        checks: &[Check<'_>],
        group: &Group,
        (prior, is_partial): (Prior, bool),
        deadline: Instant,
    ) -> Result<Answers, StoreError> {
        let core = self.core_of(group);
        let mut question = Question::new(prior, is_partial, core.given());
        let of_group = group.checks.iter().filter_map(|number| checks.get(*number));
        of_group.for_each(|check| question.add(&core.prefix, check, Wanted::Hits(check.hits), core.now()));
        core.ask(group.slot, question, deadline).await?.judged().ok_or(StoreError::Refused)
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
        let of_them: Few<Check<'_>> = numbers.iter().filter_map(|number| checks.get(*number).copied()).collect();
        for (number, outcome) in numbers.iter().zip(fallback.decide(&of_them, prior).await) {
            if let Some(place) = judged.get_mut(*number) {
                *place = Some(outcome);
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

/// Puts an error to all checks of a group.
fn fail(group: &Group, judged: &mut Judged, error: &StoreError) {
    for number in &group.checks {
        if let Some(place) = judged.get_mut(*number) {
            *place = Some(Err(error.clone()));
        }
    }
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
