//! Operations on holds: which of a request's reach the store, and how their effects are counted.

use std::collections::{HashMap, HashSet};

use parking_lot::Mutex;
use tracing::warn;

use super::status::Status;
use crate::algorithm::hold::{HoldAction, HoldEffect, HoldRequest};
use crate::descriptor::Descriptor;
use crate::policy::{PolicySet, Rule};
use crate::store::Check;
use crate::telemetry::metrics::{HoldCounters, Metrics};

/// The counters of operations on holds, of the rules of a policy set.
#[derive(Debug, Default)]
pub(super) struct HoldOperations {
    /// Counters of the rules that keep holds, by [`Rule::id`].
    rules: HashMap<usize, HoldCounters>,
    /// Rules without holds that a warning was logged for; `None` for no rule.
    warned: Mutex<HashSet<Option<usize>>>,
}

impl HoldOperations {
    /// Looks up the counters that requests will increment.
    pub(super) fn of(policies: &PolicySet, metrics: &Metrics) -> Self {
        let mut rules = HashMap::new();
        for rule in policies.rules() {
            if rule.limit().is_some_and(|limit| limit.hold().is_some()) {
                rules.insert(rule.id(), metrics.holds.of_rule(rule.domain(), rule.path()));
            }
        }
        Self { rules, warned: Mutex::default() }
    }

    /// Counts the operation of a descriptor.
    pub(super) fn count(
        &self,
        status: &Status<'_>,
        hold: &HoldRequest<'_>,
        domain: &str,
        metrics: &Metrics,
    ) {
        if status.hold().is_none() {
            metrics.holds.unsupported.inc();
            self.warn_once(status.rule(), domain);
            return;
        }
        let Some(counters) = status.rule().and_then(|rule| self.rules.get(&rule.id())) else {
            return;
        };
        match status.hold_effect() {
            _ if !hold.is_valid() => {
                counters.refused.inc();
            }
            Some(effect) => count_effect(counters, effect),
            None if hold.is_on_existing() => {
                metrics.holds.failed.inc();
            }
            None => {}
        }
    }

    /// Warns once per rule that its limit keeps no holds.
    fn warn_once(&self, rule: Option<&Rule>, domain: &str) {
        if self.warned.lock().insert(rule.map(Rule::id)) {
            let rule = rule.map_or("(no limit)", Rule::path);
            warn!(
                domain,
                rule,
                "reserve, commit or settle for a rule without holds; set `hold` in its rate_limit: until then a \
                 reserve is a plain charge, a commit and a settle do nothing"
            );
        }
    }
}

fn count_effect(counters: &HoldCounters, effect: HoldEffect) {
    match effect {
        HoldEffect::Nothing
        | HoldEffect::Held
        | HoldEffect::Conflict
        | HoldEffect::Extended
        | HoldEffect::Open { .. } => {}
        HoldEffect::Reserved { repeated } => {
            counters.reserved.inc();
            counters.repeated.inc_by(repeated.into());
        }
        HoldEffect::Unrecorded => {
            counters.unrecorded.inc();
        }
        HoldEffect::Committed { reserved, cost } => {
            counters.committed.inc();
            counters.overrun_hits.inc_by(cost.saturating_sub(reserved).into());
            counters.cost_ratio.observe(f64::from(cost) / f64::from(reserved.max(1)));
        }
        HoldEffect::Unknown { cost } => {
            counters.unknown.inc();
            counters.unknown_hits.inc_by(cost.into());
        }
        HoldEffect::Settled => {
            counters.settled.inc();
        }
    }
}

/// Returns `true` if a descriptor has no limit, and is there for the limits of the request that
/// record its entries: calls of `HoldService` have one operation for all descriptors.
pub(super) fn is_only_recorded(
    statuses: &[Status<'_>],
    status: &Status<'_>,
    descriptor: &Descriptor<'_>,
) -> bool {
    let mut keys = statuses.iter().filter_map(Status::rule).flat_map(Rule::record);
    status.target().limit().is_none()
        && keys.any(|key| descriptor.entries.iter().any(|entry| *entry.key == **key))
}

/// Turns each settle of an ID that the same request commits at the same counter into nothing.
pub(super) fn drop_superseded(checks: &mut [Check<'_>]) {
    if checks.iter().filter(|check| check.is_on_hold()).nth(1).is_none() {
        return;
    }
    for index in 0..checks.len() {
        let is_superseded = checks.get(index).is_some_and(|settle| {
            matches!(settle.hold, Some(HoldRequest { action: HoldAction::Settle, .. }))
                && checks.iter().any(|commit| commits(commit, settle))
        });
        if is_superseded && let Some(settle) = checks.get_mut(index) {
            settle.hold = None;
        }
    }
}

/// Returns `true` if `commit` is a commit of the ID of `settle` at its counter.
fn commits(commit: &Check<'_>, settle: &Check<'_>) -> bool {
    let Some(HoldRequest { id, action: HoldAction::Commit(_), .. }) = commit.hold else {
        return false;
    };
    settle.hold.is_some_and(|hold| hold.id == *id) && commit.key == settle.key
}
