//! Distribution of a request's checks over the slots that judge them.

use super::calls::Core;
use crate::algorithm::OnStoreError;
use crate::algorithm::hold::HoldEffect;
use crate::algorithm::judge::{Few, Hits, JudgedBy, Outcome};
use crate::algorithm::time::Timestamp;
use crate::algorithm::verdict::{Overall, Prior, Role, Verdict, combine};
use crate::store::{Check, StoreError};

/// The indices of the checks that one slot judges; behind a proxy that shards keys across several
/// servers, those of one key.
#[derive(Debug)]
pub(super) struct Group {
    /// Set if the slot is on the servers for limits of one second.
    pub(super) per_second: bool,
    pub(super) slot: u16,
    pub(super) checks: Few<usize>,
}

/// The outcome of a check; `None` if it has not been judged yet.
pub(super) type CheckOutcome = Option<Result<Outcome, StoreError>>;

impl Group {
    /// Returns the number of its charges.
    pub(super) fn charges(&self, checks: &[Check<'_>]) -> u64 {
        let is_charge = |number: &&usize| {
            checks.get(**number).is_some_and(|check| matches!(check.hits, Hits::Charge(_)))
        };
        u64::try_from(self.checks.iter().filter(is_charge).count()).unwrap_or(u64::MAX)
    }
}

/// Groups checks by slot, those of one second for `of_a_second` if present. Bans need no counter
/// and are in no group.
pub(super) fn groups(checks: &[Check<'_>], core: &Core, of_a_second: Option<&Core>) -> Vec<Group> {
    let location = |(number, check): (usize, &Check<'_>)| {
        let own = of_a_second.filter(|_| check.limit.is_of_a_second());
        let per_second = own.is_some();
        let core = own.unwrap_or(core);
        // Behind a proxy that shards keys, checks of one key are sorted next to each other.
        let key = if core.is_sharded() { check.key.hash() } else { 0 };
        (per_second, core.slot(&check.key), key, number)
    };
    let counted = checks.iter().enumerate().filter(|(_, check)| !check.is_ban());
    let mut locations: Few<(bool, u16, u64, usize)> = counted.map(location).collect();
    locations.sort_unstable();
    let key_of = |number: &usize| checks.get(*number).map(|check| &check.key);
    let mut groups: Vec<Group> = Vec::new();
    for (per_second, slot, key, number) in locations {
        let is_together = |group: &&mut Group| {
            let is_reached = key == 0 || group.checks.first().and_then(key_of) == key_of(&number);
            group.slot == slot && group.per_second == per_second && is_reached
        };
        match groups.last_mut().filter(is_together) {
            Some(group) => group.checks.push(number),
            None => groups.push(Group { per_second, slot, checks: Few::from_slice(&[number]) }),
        }
    }
    groups
}

/// Returns the outcome of a ban, for which no store is needed.
pub(super) fn of_ban(check: &Check<'_>, now: Timestamp) -> Option<Outcome> {
    let report = check.limit.report(&check.limit.unused(), Some(1), now).ok()?;
    Some(Outcome {
        allowed: matches!(check.hits, Hits::Refund(_)),
        report,
        by: JudgedBy::Store,
        hold: HoldEffect::Nothing,
    })
}

/// Replaces the reports of bans that the store was called for, to end slots taken before the ban.
pub(super) fn report_bans(checks: &[Check<'_>], judged: &mut [CheckOutcome]) {
    for (check, outcome) in checks.iter().zip(judged) {
        if let Some(Ok(outcome)) = outcome
            && check.limit.is_ban()
            && !check.is_ban()
            && let Ok(report) = check.limit.report(&check.limit.unused(), None, Timestamp::EPOCH)
        {
            outcome.report = report;
        }
    }
}

/// Returns the prior verdict for the slots that have yet to judge, from the checks that have been
/// judged: `outcomes`, with `None` for those that are open. With `locally`, a check that the store
/// cannot judge but this process may is still open too.
///
/// `Denied` if the request is not admitted even if all open checks allow: nothing more is to be
/// charged for it.
pub(super) fn prior_of(
    checks: &[Check<'_>],
    outcomes: &[CheckOutcome],
    prior: Prior,
    locally: bool,
) -> Prior {
    let verdicts = checks.iter().zip(outcomes).map(|(check, outcome)| {
        let verdict = match (outcome, check.hits) {
            (Some(outcome), _) if !(locally && is_left(check, outcome)) => {
                check.verdict(outcome.as_ref())
            }
            (Some(_) | None, Hits::Refund(_)) => Verdict::Refund,
            (Some(_) | None, Hits::Charge(_) | Hits::Peek(_)) => Verdict::Allowed,
        };
        (check.role, verdict)
    });
    if combine(prior, verdicts) == Overall::Admitted { prior } else { Prior::Denied }
}

/// Returns `true` if a quota vote that has been judged passes: no other vote matters then.
pub(super) fn has_passing_vote(checks: &[Check<'_>], outcomes: &[CheckOutcome]) -> bool {
    let passes = |(check, outcome): (&Check<'_>, &CheckOutcome)| {
        let verdict = outcome.as_ref().map(|outcome| check.verdict(outcome.as_ref()));
        match (check.role, verdict) {
            (Role::Quota, Some(verdict)) => {
                matches!(verdict, Verdict::Allowed | Verdict::Unknown(OnStoreError::Allow))
            }
            (Role::QuotaShadow, Some(verdict)) => verdict != Verdict::Refund,
            (Role::Enforce | Role::Shadow, _) | (Role::Quota | Role::QuotaShadow, None) => false,
        }
    };
    checks.iter().zip(outcomes).any(passes)
}

/// Returns `true` for an operation on holds that the store does not have, or did not reach: this
/// process may have taken them alone.
pub(super) fn may_have_local_holds(
    check: &Check<'_>,
    outcome: &Result<Outcome, StoreError>,
) -> bool {
    let is_missing = match outcome {
        Ok(outcome) => matches!(outcome.hold, HoldEffect::Nothing | HoldEffect::Unknown { .. }),
        Err(_) => true,
    };
    is_missing && check.is_on_hold() && check.limit.on_store_error() == OnStoreError::Local
}

/// Returns `true` if the store failed for a check that this process may decide.
pub(super) fn is_left(check: &Check<'_>, outcome: &Result<Outcome, StoreError>) -> bool {
    outcome.is_err() && check.limit.on_store_error() == OnStoreError::Local && !check.is_on_hold()
}
