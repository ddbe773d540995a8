//! Decision counters of rules: one set of series per rule, up to a bound. A reload removes the
//! series of rules that no longer exist.

use std::collections::HashSet;
use std::sync::Arc;

use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

use super::undecided::{UndecidedCounters, UndecidedRules};
use crate::known_rules::{KnownRules, RuleLabels};

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DecisionLabels {
    domain: String,
    rule: String,
    outcome: OutcomeLabel,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelValue)]
#[allow(non_camel_case_types, reason = "the label's value, as Prometheus shows it")]
enum OutcomeLabel {
    allowed,
    denied,
    shadow_denied,
    unlimited,
    presumed_allowed,
    presumed_denied,
    failed,
}

const OUTCOMES: [OutcomeLabel; 7] = [
    OutcomeLabel::allowed,
    OutcomeLabel::denied,
    OutcomeLabel::shadow_denied,
    OutcomeLabel::unlimited,
    OutcomeLabel::presumed_allowed,
    OutcomeLabel::presumed_denied,
    OutcomeLabel::failed,
];

/// The counters of one rule: descriptors that matched it, by outcome.
#[derive(Debug)]
pub struct RuleMetrics {
    /// Within the limit.
    pub allowed: Counter,
    /// Over the limit.
    pub denied: Counter,
    /// Over the limit of a rule in shadow mode.
    pub shadow_denied: Counter,
    /// Matched an unlimited rule.
    pub unlimited: Counter,
    /// Allowed by `on_store_error` after a store error.
    pub presumed_allowed: Counter,
    /// Denied by `on_store_error` after a store error.
    pub presumed_denied: Counter,
    /// Without a decision after a store error.
    pub failed: Counter,
    /// Allowed descriptors near the limit.
    pub near: Counter,
    /// Store errors met, by kind and effect.
    pub undecided: Arc<UndecidedCounters>,
    /// `true` if no other rule shares these counters.
    pub is_own: bool,
}

/// The counters of all rules.
#[derive(Debug)]
pub(super) struct RuleFamilies {
    decisions: Family<DecisionLabels, Counter>,
    near: Family<RuleLabels, Counter>,
    pub(super) undecided: Arc<UndecidedRules>,
    known: KnownRules,
}

impl RuleFamilies {
    /// Creates the counters, with series of their own for at most `max` rules.
    pub(super) fn new(max: usize) -> Self {
        Self {
            decisions: Family::default(),
            near: Family::default(),
            undecided: Arc::default(),
            known: KnownRules::new(max),
        }
    }

    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register(
            "decisions",
            "Number of descriptors, by rule and outcome",
            self.decisions.clone(),
        );
        registry.register(
            "near_limit",
            "Number of allowed descriptors near their limit, by rule",
            self.near.clone(),
        );
        registry.register_collector(Box::new(Arc::clone(&self.undecided)));
    }

    /// Returns the counters of one rule. A reload keeps them.
    pub(super) fn of(&self, domain: &str, rule: &str) -> RuleMetrics {
        let (labels, is_own) = self.known.labels(domain, rule);
        let counter =
            |outcome| self.decisions.get_or_create(&DecisionLabels::new(&labels, outcome)).clone();
        RuleMetrics {
            allowed: counter(OutcomeLabel::allowed),
            denied: counter(OutcomeLabel::denied),
            shadow_denied: counter(OutcomeLabel::shadow_denied),
            unlimited: counter(OutcomeLabel::unlimited),
            presumed_allowed: counter(OutcomeLabel::presumed_allowed),
            presumed_denied: counter(OutcomeLabel::presumed_denied),
            failed: counter(OutcomeLabel::failed),
            near: self.near.get_or_create(&labels).clone(),
            undecided: self.undecided.of(&labels),
            is_own,
        }
    }

    /// Removes the series of all rules except these. In-flight requests of an older policy then
    /// increment counters that are no longer exported.
    pub(super) fn keep(&self, rules: &HashSet<(&str, &str)>) {
        self.known.keep(rules, |labels| {
            for outcome in OUTCOMES {
                self.decisions.remove(&DecisionLabels::new(labels, outcome));
            }
            self.near.remove(labels);
            self.undecided.remove(labels);
        });
    }
}

impl DecisionLabels {
    fn new(rule: &RuleLabels, outcome: OutcomeLabel) -> Self {
        Self { domain: rule.domain.clone(), rule: rule.rule.clone(), outcome }
    }
}
