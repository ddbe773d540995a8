//! Metrics of holds: counters of each rule that keeps holds, bounded as those of decisions, and
//! counters of operations that reached no hold.

use super::cost_ratio::{CostRatio, EstimateSummary};
use crate::count::Counter;
use crate::family::RuleFamily;
use crate::snapshot::MetricsSnapshot;

/// The counters of one rule that keeps holds.
#[derive(Clone, Debug, Default)]
pub struct HoldCounters {
    /// Holds and permits taken.
    pub reserved: Counter,
    /// Holds ended by a commit.
    pub committed: Counter,
    /// Holds and permits ended without a cost.
    pub settled: Counter,
    /// Commits without a hold.
    pub unknown: Counter,
    /// Hits charged by commits without a hold.
    pub unknown_hits: Counter,
    /// Reserves that were charged and are not remembered.
    pub unrecorded: Counter,
    /// Reserves by an ID that had an open hold.
    pub repeated: Counter,
    /// Operations with an ID of an invalid length.
    pub refused: Counter,
    /// Hits by which costs exceeded their holds.
    pub overrun_hits: Counter,
    /// Cost of a committed hold, divided by its hits.
    pub cost_ratio: CostRatio,
}

/// The metrics of holds.
#[derive(Debug)]
pub struct HoldMetrics {
    /// Operations on holds of rules that keep none.
    pub unsupported: Counter,
    /// Operations on existing holds that failed in the store.
    pub failed: Counter,
    pub(super) rules: RuleFamily<HoldCounters>,
}

impl HoldMetrics {
    /// Creates the metrics, with series of their own for at most `max_rules` rules.
    pub(super) fn new(max_rules: usize) -> Self {
        Self {
            unsupported: Counter::default(),
            failed: Counter::default(),
            rules: RuleFamily::new(max_rules, HoldCounters::default()),
        }
    }

    pub(super) fn collect(&self, out: &mut MetricsSnapshot) {
        let rules = &self.rules;
        let help = "Number of holds and permits taken, by rule.";
        out.counters("hold_reserved", help, rules.series(|rule| &rule.reserved));
        let help = "Number of holds ended by a commit with their cost, by rule.";
        out.counters("hold_committed", help, rules.series(|rule| &rule.committed));
        let help = "Number of holds and permits ended without a cost, by rule.";
        out.counters("hold_settled", help, rules.series(|rule| &rule.settled));
        let help = "Number of commits without a hold, whose cost was charged in full, by rule.";
        out.counters("hold_unknown", help, rules.series(|rule| &rule.unknown));
        let help = "Number of hits charged by commits without a hold, by rule.";
        out.counters("hold_unknown_hits", help, rules.series(|rule| &rule.unknown_hits));
        let help = "Number of reserves that were charged but not recorded, by rule.";
        out.counters("hold_unrecorded", help, rules.series(|rule| &rule.unrecorded));
        let help = "Number of reserves with an ID that had an open hold, by rule.";
        out.counters("hold_ids_repeated", help, rules.series(|rule| &rule.repeated));
        let help = "Number of operations with an ID of an invalid length, by rule.";
        out.counters("hold_ids_refused", help, rules.series(|rule| &rule.refused));
        let help = "Number of hits by which costs exceeded their holds, by rule.";
        out.counters("hold_overrun_hits", help, rules.series(|rule| &rule.overrun_hits));
        let help = "Cost of committed holds divided by their reserved hits, by rule.";
        out.histograms("hold_cost_ratio", help, rules.series(|rule| &rule.cost_ratio));
        let help =
            "Number of operations on holds for descriptors whose rule does not support holds.";
        out.counter("hold_unsupported", help, &self.unsupported);
        let help = "Number of commits and settles that failed in the store, so that their holds may stay open until their TTL.";
        out.counter("hold_end_failures", help, &self.failed);
    }

    /// Returns the counters of one rule. A reload keeps them. Rules beyond the bound share one set.
    pub fn of_rule(&self, domain: &str, rule: &str) -> HoldCounters {
        self.rules.of(domain, rule)
    }

    /// Returns a summary of the costs of a rule's holds relative to their reserved hits; `None` if
    /// there are no commits, or if the rule shares its series with others.
    pub fn estimate(&self, domain: &str, rule: &str) -> Option<EstimateSummary> {
        self.rules.own(domain, rule)?.cost_ratio.summary()
    }
}
