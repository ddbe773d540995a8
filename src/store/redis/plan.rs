//! A request's checks, dealt out to the slots that judge them.

use super::calls::Core;
use crate::algorithm::OnStoreError;
use crate::algorithm::judge::{Few, Hits, Outcome};
use crate::algorithm::time::Timestamp;
use crate::algorithm::verdict::{Prior, Role};
use crate::store::Check;

/// The checks, by their numbers, that one slot judges.
#[derive(Debug)]
pub(super) struct Group {
    /// Whether it is a slot of the servers for limits of one second.
    pub(super) per_second: bool,
    pub(super) slot: u16,
    pub(super) checks: Few<usize>,
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
    Some(Outcome { allowed: matches!(check.hits, Hits::Refund(_)), report, remembered: false })
}

/// What is known before somebody else is asked, from the checks that have been judged: `outcomes`, `None` where nobody has yet.
/// `locally`: what the store cannot judge and this process may is still open.
pub(super) fn prior_of(
    checks: &[Check<'_>],
    outcomes: &[Option<Result<Outcome, crate::store::StoreError>>],
    prior: Prior,
    locally: bool,
) -> Prior {
    let mut prior = prior;
    for (check, outcome) in checks.iter().zip(outcomes) {
        let stops = match outcome {
            Some(Ok(outcome)) => check.role == Role::Enforce && !outcome.allowed && prior == Prior::Open,
            // The call will fail or be denied, whatever else is found: not to be charged for.
            Some(Err(_)) => {
                let fails = match check.limit.on_store_error() {
                    OnStoreError::Error => true,
                    OnStoreError::Local => !locally,
                    OnStoreError::Allow | OnStoreError::Deny => false,
                };
                fails && matches!(check.role, Role::Enforce | Role::Quota) && !matches!(check.hits, Hits::Refund(_))
            }
            None => false,
        };
        if stops {
            prior = Prior::Denied;
        }
    }
    prior
}
