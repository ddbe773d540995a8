//! Decision counters of rules: one set of series per rule, up to a bound. A reload removes the
//! series of rules that no longer exist.

use std::collections::HashSet;

use parking_lot::Mutex;
use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

/// Domain and rule label of the rules beyond the bound.
pub(super) const OTHER: &str = "other";

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RuleLabels {
    domain: String,
    rule: String,
    outcome: OutcomeLabel,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct NearLabels {
    domain: String,
    rule: String,
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
}

const OUTCOMES: [OutcomeLabel; 6] = [
    OutcomeLabel::allowed,
    OutcomeLabel::denied,
    OutcomeLabel::shadow_denied,
    OutcomeLabel::unlimited,
    OutcomeLabel::presumed_allowed,
    OutcomeLabel::presumed_denied,
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
    /// Allowed descriptors near the limit.
    pub near: Counter,
    /// `true` if no other rule shares these counters.
    pub is_own: bool,
}

/// The counters of all rules.
#[derive(Debug)]
pub(super) struct RuleFamilies {
    decisions: Family<RuleLabels, Counter>,
    near: Family<NearLabels, Counter>,
    /// Domains and rules that have series of their own.
    known: Mutex<HashSet<(String, String)>>,
    max: usize,
}

impl RuleFamilies {
    /// Creates the counters, with series of their own for at most `max` rules.
    pub(super) fn new(max: usize) -> Self {
        Self { decisions: Family::default(), near: Family::default(), known: Mutex::default(), max }
    }

    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register(
            "decisions",
            "Number of descriptors decided, by rule and outcome",
            self.decisions.clone(),
        );
        registry.register(
            "near_limit",
            "Number of allowed descriptors near their limit, by rule",
            self.near.clone(),
        );
    }

    /// Returns the counters of one rule. A reload keeps them.
    pub(super) fn of(&self, domain: &str, rule: &str) -> RuleMetrics {
        let name = (domain.to_owned(), rule.to_owned());
        let mut known = self.known.lock();
        let is_own = known.contains(&name) || (known.len() < self.max && known.insert(name));
        drop(known);
        let (domain, rule) = if is_own { (domain, rule) } else { (OTHER, OTHER) };
        let counter = |outcome| {
            let labels = RuleLabels { domain: domain.to_owned(), rule: rule.to_owned(), outcome };
            self.decisions.get_or_create(&labels).clone()
        };
        RuleMetrics {
            allowed: counter(OutcomeLabel::allowed),
            denied: counter(OutcomeLabel::denied),
            shadow_denied: counter(OutcomeLabel::shadow_denied),
            unlimited: counter(OutcomeLabel::unlimited),
            presumed_allowed: counter(OutcomeLabel::presumed_allowed),
            presumed_denied: counter(OutcomeLabel::presumed_denied),
            near: self
                .near
                .get_or_create(&NearLabels { domain: domain.to_owned(), rule: rule.to_owned() })
                .clone(),
            is_own,
        }
    }

    /// Removes the series of all rules except these. In-flight requests of an older policy then
    /// increment counters that are no longer exported.
    pub(super) fn keep(&self, rules: &HashSet<(&str, &str)>) {
        self.known.lock().retain(|(domain, rule)| {
            let is_kept = rules.contains(&(domain.as_str(), rule.as_str()));
            if !is_kept {
                for outcome in OUTCOMES {
                    self.decisions.remove(&RuleLabels {
                        domain: domain.clone(),
                        rule: rule.clone(),
                        outcome,
                    });
                }
                self.near.remove(&NearLabels { domain: domain.clone(), rule: rule.clone() });
            }
            is_kept
        });
    }
}
