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
        let own = self.checks.iter().filter_map(|number| checks.get(*number));
        own.map(|check| u64::from(matches!(check.hits, Hits::Charge(_)))).sum()
    }

    /// Returns `true` if the check at a location is judged with those of this group.
    fn admits(&self, location: &CheckLocation, checks: &[Check<'_>]) -> bool {
        let first = self.checks.first().and_then(|first| checks.get(*first));
        let more = checks.get(location.check);
        let is_reached =
            location.key == 0 || first.map(|check| &check.key) == more.map(|check| &check.key);
        self.slot == location.slot && self.per_second == location.per_second && is_reached
    }
}

/// The location of a check's counter, in the order of the groups.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct CheckLocation {
    per_second: bool,
    slot: u16,
    /// Hash of the key behind a proxy that shards keys, so that checks of one key are next to each
    /// other; otherwise 0.
    key: u64,
    /// Index of the check.
    check: usize,
}

/// Groups checks by slot, those of one second for `of_a_second` if present. Bans need no counter
/// and are in no group.
pub(super) fn groups(checks: &[Check<'_>], core: &Core, of_a_second: Option<&Core>) -> Vec<Group> {
    let counted = checks.iter().enumerate().filter(|(_, check)| !check.is_ban());
    let locations = counted.map(|(number, check)| {
        let own = of_a_second.filter(|_| check.limit.is_of_a_second());
        let core = own.unwrap_or(core);
        CheckLocation {
            per_second: own.is_some(),
            slot: core.slot(&check.key),
            key: if core.is_sharded() { check.key.hash() } else { 0 },
            check: number,
        }
    });
    let mut locations: Few<CheckLocation> = locations.collect();
    locations.sort_unstable();
    let mut groups: Vec<Group> = Vec::new();
    for location in locations {
        match groups.last_mut().filter(|group| group.admits(&location, checks)) {
            Some(group) => group.checks.push(location.check),
            None => groups.push(Group {
                per_second: location.per_second,
                slot: location.slot,
                checks: Few::from_slice(&[location.check]),
            }),
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

/// Replaces the reports of bans that the store was called for, to end permits taken before the ban.
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
