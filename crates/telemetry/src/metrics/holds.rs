//! Metrics of holds: counters of each rule that keeps holds, bounded as those of decisions, and
//! counters of operations that reached no hold.

use std::collections::HashSet;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

use super::cost_ratio::{CostRatio, EstimateSummary};
use crate::known_rules::{KnownRules, RuleLabels};

/// The counters of one rule that keeps holds.
#[derive(Clone, Debug)]
pub struct HoldCounters {
    /// Holds and slots taken.
    pub reserved: Counter,
    /// Holds ended by a commit.
    pub committed: Counter,
    /// Holds and slots ended without a cost.
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
    counters: [(CounterName, Family<RuleLabels, Counter>); 9],
    cost_ratio: Family<RuleLabels, CostRatio>,
    known: KnownRules,
}

/// Name and help text of a counter.
type CounterName = (&'static str, &'static str);

/// The counters of rules, in the order of the fields of [`HoldCounters`].
const COUNTERS: [CounterName; 9] = [
    ("hold_reserved", "Number of holds and slots taken, by rule"),
    ("hold_committed", "Number of holds ended by a commit with their cost, by rule"),
    ("hold_settled", "Number of holds and slots ended without a cost, by rule"),
    ("hold_unknown", "Number of commits without a hold, whose cost was charged in full, by rule"),
    ("hold_unknown_hits", "Number of hits charged by commits without a hold, by rule"),
    ("hold_unrecorded", "Number of reserves that were charged but not recorded, by rule"),
    ("hold_ids_repeated", "Number of reserves with an ID that had an open hold, by rule"),
    ("hold_ids_refused", "Number of operations with an ID of an invalid length, by rule"),
    ("hold_overrun_hits", "Number of hits by which costs exceeded their holds, by rule"),
];

impl HoldMetrics {
    /// Creates the metrics, with series of their own for at most `max_rules` rules.
    pub(super) fn new(max_rules: usize) -> Self {
        Self {
            unsupported: Counter::default(),
            failed: Counter::default(),
            counters: COUNTERS.map(|name| (name, Family::default())),
            cost_ratio: Family::default(),
            known: KnownRules::new(max_rules),
        }
    }

    pub(super) fn register(&self, registry: &mut Registry) {
        for ((name, help), family) in &self.counters {
            registry.register(*name, *help, family.clone());
        }
        let ratio = "Cost of committed holds divided by their reserved hits, by rule";
        registry.register("hold_cost_ratio", ratio, self.cost_ratio.clone());
        let unsupported =
            "Number of operations on holds for descriptors whose rule does not support holds";
        registry.register("hold_unsupported", unsupported, self.unsupported.clone());
        let failed = "Number of commits and settles that failed in the store, so that their holds may stay open until their TTL";
        registry.register("hold_end_failures", failed, self.failed.clone());
    }

    /// Returns the counters of one rule. A reload keeps them. Rules beyond the bound share one set.
    pub fn of_rule(&self, domain: &str, rule: &str) -> HoldCounters {
        let (labels, _) = self.known.labels(domain, rule);
        let counters =
            self.counters.each_ref().map(|(_, family)| family.get_or_create(&labels).clone());
        let [
            reserved,
            committed,
            settled,
            unknown,
            unknown_hits,
            unrecorded,
            repeated,
            refused,
            overrun_hits,
        ] = counters;
        HoldCounters {
            reserved,
            committed,
            settled,
            unknown,
            unknown_hits,
            unrecorded,
            repeated,
            refused,
            overrun_hits,
            cost_ratio: self.cost_ratio.get_or_create(&labels).clone(),
        }
    }

    /// Returns a summary of the costs of a rule's holds relative to their reserved hits; `None` if
    /// there are no commits, or if the rule shares its series with others.
    pub fn estimate(&self, domain: &str, rule: &str) -> Option<EstimateSummary> {
        let labels = RuleLabels { domain: domain.to_owned(), rule: rule.to_owned() };
        self.cost_ratio.get(&labels)?.summary()
    }

    /// Removes the series of all rules except these.
    pub(super) fn keep(&self, rules: &HashSet<(&str, &str)>) {
        self.known.keep(rules, |labels| {
            self.cost_ratio.remove(labels);
            for (_, family) in &self.counters {
                family.remove(labels);
            }
        });
    }
}
