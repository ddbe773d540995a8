//! A request's checks, dealt out to the slots that judge them.

use super::calls::Core;
use crate::algorithm::OnStoreError;
use crate::algorithm::judge::{Few, Hits, JudgedBy, Outcome};
use crate::algorithm::time::Timestamp;
use crate::algorithm::verdict::{Prior, Role};
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
pub(super) fn prior_of(checks: &[Check<'_>], outcomes: &[Judged], prior: Prior, locally: bool) -> Prior {
    let judged = || checks.iter().zip(outcomes);
    let denies = |(check, outcome): (&Check<'_>, &Judged)| {
        check.role == Role::Quota && verdict(check, outcome, locally) == Known::Denies
    };
    let votes = || judged().filter(|(check, _)| is_vote(check));
    let all_deny = votes().next().is_some() && votes().all(denies);
    let stops = judged().any(|(check, outcome)| match verdict(check, outcome, locally) {
        // The call will fail, whatever else is found: not to be charged for.
        Known::Fails => matches!(check.role, Role::Enforce | Role::Quota),
        Known::Denies => prior == Prior::Open && check.role == Role::Enforce,
        Known::Allows | Known::Open => false,
    });
    if stops || (all_deny && prior == Prior::Open) { Prior::Denied } else { prior }
}

/// Whether a vote that has been judged lets pass: then no other vote decides.
pub(super) fn has_passing_vote(checks: &[Check<'_>], outcomes: &[Judged], locally: bool) -> bool {
    let passes = |(check, outcome): (&Check<'_>, &Judged)| match check.role {
        Role::QuotaShadow => outcome.is_some(),
        Role::Quota => verdict(check, outcome, locally) == Known::Allows,
        Role::Enforce | Role::Shadow => false,
    };
    checks.iter().zip(outcomes).filter(|(check, _)| is_vote(check)).any(passes)
}

fn is_vote(check: &Check<'_>) -> bool {
    matches!(check.role, Role::Quota | Role::QuotaShadow) && !matches!(check.hits, Hits::Refund(_))
}

/// What is known of one check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Known {
    Open,
    Allows,
    Denies,
    Fails,
}

fn verdict(check: &Check<'_>, outcome: &Judged, locally: bool) -> Known {
    match outcome {
        None => Known::Open,
        Some(_) if matches!(check.hits, Hits::Refund(_)) => Known::Allows,
        Some(Ok(outcome)) if outcome.allowed => Known::Allows,
        Some(Ok(_)) => Known::Denies,
        Some(Err(_)) => match check.limit.on_store_error() {
            OnStoreError::Error => Known::Fails,
            OnStoreError::Local if locally => Known::Open,
            OnStoreError::Local => Known::Fails,
            OnStoreError::Allow => Known::Allows,
            OnStoreError::Deny => Known::Denies,
        },
    }
}
