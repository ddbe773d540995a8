//! A request's checks, dealt out to the slots that judge them.

use super::key::key_of;
use super::slot::slot_of;
use crate::algorithm::OnStoreError;
use crate::algorithm::judge::{Few, Hits, Outcome};
use crate::algorithm::time::Timestamp;
use crate::algorithm::verdict::{Prior, Role};
use crate::store::Check;

/// The checks, by their numbers, that one slot judges.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) slot: u16,
    pub(super) checks: Few<usize>,
}

/// Deals checks out. Bans need no counter and are in no group. `by_slot`: false where one node has all slots.
pub(super) fn groups(checks: &[Check<'_>], prefix: &[u8], by_slot: bool) -> Few<Group> {
    let mut groups: Few<Group> = Few::new();
    for (number, check) in checks.iter().enumerate().filter(|(_, check)| !check.limit.is_ban()) {
        let slot = if by_slot { slot_of(&key_of(prefix, &check.key)) } else { 0 };
        match groups.iter_mut().find(|group| group.slot == slot) {
            Some(group) => group.checks.push(number),
            None => groups.push(Group { slot, checks: Few::from_slice(&[number]) }),
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
