//! A request's checks, dealt out to the slots that judge them.

use super::calls::Core;
use crate::algorithm::OnStoreError;
use crate::algorithm::judge::{Few, Hits, JudgedBy, Outcome};
use crate::algorithm::time::Timestamp;
use crate::algorithm::verdict::{Overall, Prior, Role, Verdict, combine};
use crate::store::{Check, StoreError};

/// The checks, by their numbers, that one slot judges.
#[derive(Debug)]
pub(super) struct Group {
    /// Whether it is a slot of the servers for limits of one second.
    pub(super) per_second: bool,
    pub(super) slot: u16,
    pub(super) checks: Few<usize>,
}

/// What has become of a check; `None` where nobody has judged it yet.
pub(super) type Judged = Option<Result<Outcome, StoreError>>;

impl Group {
    /// How many charges it makes.
    pub(super) fn charges(&self, checks: &[Check<'_>]) -> u64 {
        let is_charge =
            |number: &&usize| checks.get(**number).is_some_and(|check| matches!(check.hits, Hits::Charge(_)));
        u64::try_from(self.checks.iter().filter(is_charge).count()).unwrap_or(u64::MAX)
    }
}

/// Deals checks out, those of one second to `of_a_second` where there is one. Bans need no counter and are in no group.
pub(super) fn groups(checks: &[Check<'_>], core: &Core, of_a_second: Option<&Core>) -> Few<Group> {
    let mut groups: Few<Group> = Few::new();
    for (number, check) in checks.iter().enumerate().filter(|(_, check)| !check.limit.is_ban()) {
        let own = of_a_second.filter(|_| check.limit.is_of_a_second());
        let (per_second, slot) = (own.is_some(), own.unwrap_or(core).slot(&check.key));
        match groups.iter_mut().find(|group| group.slot == slot && group.per_second == per_second) {
            Some(group) => group.checks.push(number),
            None => groups.push(Group { per_second, slot, checks: Few::from_slice(&[number]) }),
        }
    }
    groups
}

/// What a ban says, for which nobody needs to be asked.
pub(super) fn of_ban(check: &Check<'_>, now: Timestamp) -> Option<Outcome> {
    let report = check.limit.report(&check.limit.unused(), Some(1), now).ok()?;
    Some(Outcome { allowed: matches!(check.hits, Hits::Refund(_)), report, by: JudgedBy::Store })
}

/// What is known before somebody else is asked, from the checks that have been judged: `outcomes`, `None` where nobody has yet.
/// `locally`: what the store cannot judge and this process may is still open.
///
/// Denied, where the request is not admitted even if all that is open allows: then nothing more is to be charged for it.
pub(super) fn prior_of(checks: &[Check<'_>], outcomes: &[Judged], prior: Prior, locally: bool) -> Prior {
    let verdicts = checks.iter().zip(outcomes).map(|(check, outcome)| {
        let verdict = match (outcome, check.hits) {
            (Some(outcome), _) if !(locally && is_left(check, outcome)) => check.verdict(outcome.as_ref()),
            (Some(_) | None, Hits::Refund(_)) => Verdict::Refund,
            (Some(_) | None, Hits::Charge(_) | Hits::Peek(_)) => Verdict::Allowed,
        };
        (check.role, verdict)
    });
    if combine(prior, verdicts) == Overall::Admitted { prior } else { Prior::Denied }
}

/// Whether a vote that has been judged lets pass: then no other vote decides.
pub(super) fn has_passing_vote(checks: &[Check<'_>], outcomes: &[Judged]) -> bool {
    let passes = |(check, outcome): (&Check<'_>, &Judged)| {
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

/// Whether the store failed for a check that this process may decide.
pub(super) fn is_left(check: &Check<'_>, outcome: &Result<Outcome, StoreError>) -> bool {
    outcome.is_err() && check.limit.on_store_error() == OnStoreError::Local
}
