//! Checks that this process decides alone (`on_store_error: local`), since the store failed, and
//! the ends of holds that it took so.

use super::RedisStore;
use super::plan;
use super::request::CheckOutcomes;
use crate::algorithm::hold::HoldEffect;
use crate::algorithm::judge::{Few, JudgedBy, Outcome};
use crate::algorithm::verdict::{Prior, Role};
use crate::store::Check;
use crate::store::fallback::Fallback;

impl RedisStore {
    /// Decides in this process the checks that the store failed to judge and whose limit allows it.
    /// `prior` is that of the request, before all its checks.
    pub(super) fn fall_back(&self, checks: &[Check<'_>], judged: &mut CheckOutcomes, prior: Prior) {
        let Some(fallback) = &self.fallback else { return };
        self.change_local_holds(fallback, checks, judged);
        let wants = |(number, check): (usize, &Check<'_>)| {
            let outcome = judged.get(number).and_then(Option::as_ref);
            outcome.is_some_and(|outcome| plan::is_left(check, outcome)).then_some(number)
        };
        let numbers: Few<usize> = checks.iter().enumerate().filter_map(wants).collect();
        if numbers.is_empty() {
            return;
        }
        let prior = plan::prior_of(checks, judged, prior, true);
        // If another vote has passed, the votes that are decided here deny nothing.
        let is_let_pass = plan::has_passing_vote(checks, judged);
        let role = |role| if role == Role::Quota && is_let_pass { Role::QuotaShadow } else { role };
        let of_them = numbers.iter().filter_map(|number| checks.get(*number));
        let of_them: Few<Check<'_>> =
            of_them.map(|check| Check { role: role(check.role), ..*check }).collect();
        for (number, outcome) in numbers.iter().zip(fallback.decide(&of_them, prior)) {
            if let Some(place) = judged.get_mut(*number)
                && let Ok(outcome) = outcome
                && let Some(Err(error)) = *place
            {
                *place = Some(Ok(Outcome { by: JudgedBy::Share(error), ..outcome }));
            }
        }
    }

    /// Performs operations on holds that this process took alone while the store was down.
    fn change_local_holds(
        &self,
        fallback: &Fallback,
        checks: &[Check<'_>],
        judged: &mut CheckOutcomes,
    ) {
        let is_local = |(number, check): (usize, &Check<'_>)| {
            let outcome = judged.get(number).and_then(Option::as_ref)?;
            let may_be = plan::may_have_local_holds(check, outcome);
            (may_be && fallback.has_open_hold(check)).then_some(number)
        };
        let numbers: Few<usize> = checks.iter().enumerate().filter_map(is_local).collect();
        if numbers.is_empty() {
            return;
        }
        let of_them: Few<Check<'_>> =
            numbers.iter().filter_map(|number| checks.get(*number)).copied().collect();
        for (number, own) in numbers.iter().zip(fallback.change_holds(&of_them)) {
            let Some(outcome) = judged.get_mut(*number).and_then(Option::as_mut) else { continue };
            let Ok(own) = own else { continue };
            match outcome {
                // The counter in the store is reported; a cost without a hold there was charged.
                Ok(outcome) if outcome.hold == HoldEffect::Nothing => outcome.hold = own.hold,
                Ok(_) => {}
                Err(error) => *outcome = Ok(Outcome { by: JudgedBy::Share(*error), ..own }),
            }
        }
    }
}
