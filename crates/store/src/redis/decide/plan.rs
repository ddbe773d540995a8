//! Distribution of a request's checks over the slots that judge them.

use tollgate_core::algorithm::hold::HoldEffect;
use tollgate_core::algorithm::judge::{Few, Hits, JudgedBy, Outcome};
use tollgate_core::algorithm::time::Timestamp;

use crate::Check;
use crate::open_checks::CheckOutcome;
use crate::redis::calls::Core;

/// The indices of the checks that one slot judges; behind a proxy that shards keys across several
/// servers, those of one key.
#[derive(Debug)]
pub(super) struct Group {
    /// Set if the slot is on the servers for limits of one second.
    pub(super) per_second: bool,
    pub(super) slot: u16,
    pub(super) checks: Few<usize>,
}

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
