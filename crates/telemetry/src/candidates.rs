//! Decisions that candidate limits would have made.

use std::collections::HashSet;

use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

use super::known_rules::{KnownRules, RuleLabels};

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    from: CandidateSource,
    domain: String,
    rule: String,
    outcome: CandidateOutcome,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelValue)]
#[allow(non_camel_case_types, reason = "the label's value, as Prometheus shows it")]
enum CandidateOutcome {
    allowed,
    denied,
    denied_already,
    unknown,
}

/// Origin of a candidate limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelValue)]
#[allow(non_camel_case_types, reason = "the label's value, as Prometheus shows it")]
pub enum CandidateSource {
    /// The candidate of a rule in force.
    rule,
    /// A rule of a candidate policy.
    policy,
}

impl CandidateSource {
    /// Both origins.
    pub const ALL: [Self; 2] = [Self::rule, Self::policy];

    /// Returns the suffix that marks a rule's path in denials that are not enforced.
    pub const fn mark(self) -> &'static str {
        match self {
            Self::rule => " (candidate)",
            Self::policy => " (candidate policy)",
        }
    }
}

const OUTCOMES: [CandidateOutcome; 4] = [
    CandidateOutcome::allowed,
    CandidateOutcome::denied,
    CandidateOutcome::denied_already,
    CandidateOutcome::unknown,
];

/// The counters of all candidate limits: one set of series per limit, up to a bound for each
/// origin.
#[derive(Debug)]
pub struct Candidates {
    decisions: Family<Labels, Counter>,
    /// The limits that have series of their own, by origin.
    known: [KnownRules; CandidateSource::ALL.len()],
}

/// The counters of one candidate limit: descriptors that matched it.
#[derive(Clone, Debug)]
pub struct CandidateMetrics {
    /// Within the limit.
    pub allowed: Counter,
    /// Over the limit, but admitted: the candidate would have denied it.
    pub denied: Counter,
    /// Over the limit, and denied without the candidate.
    pub denied_already: Counter,
    /// The store failed.
    pub unknown: Counter,
}

impl Candidates {
    /// Creates the counters, with series of their own for at most `max` limits of each origin.
    pub(super) fn new(max: usize) -> Self {
        Self {
            decisions: Family::default(),
            known: CandidateSource::ALL.map(|_| KnownRules::new(max)),
        }
    }

    pub(super) fn register(&self, registry: &mut Registry) {
        let help = "Number of descriptors evaluated by candidate limits, by rule and outcome";
        registry.register("candidate_decisions", help, self.decisions.clone());
    }

    /// Returns the counters of a rule's candidate limit. A reload keeps them.
    pub fn of_rule(&self, from: CandidateSource, domain: &str, rule: &str) -> CandidateMetrics {
        let (labels, _) = self.known(from).labels(domain, rule);
        let counter =
            |outcome| self.decisions.get_or_create(&Labels::new(from, &labels, outcome)).clone();
        CandidateMetrics {
            allowed: counter(CandidateOutcome::allowed),
            denied: counter(CandidateOutcome::denied),
            denied_already: counter(CandidateOutcome::denied_already),
            unknown: counter(CandidateOutcome::unknown),
        }
    }

    /// Removes the series of this origin, except those of `rules`.
    pub fn keep(&self, from: CandidateSource, rules: &HashSet<(&str, &str)>) {
        self.known(from).keep(rules, |labels| {
            for outcome in OUTCOMES {
                self.decisions.remove(&Labels::new(from, labels, outcome));
            }
        });
    }

    fn known(&self, from: CandidateSource) -> &KnownRules {
        let [rules, policies] = &self.known;
        match from {
            CandidateSource::rule => rules,
            CandidateSource::policy => policies,
        }
    }
}

impl Labels {
    fn new(from: CandidateSource, rule: &RuleLabels, outcome: CandidateOutcome) -> Self {
        Self { from, domain: rule.domain.clone(), rule: rule.rule.clone(), outcome }
    }
}
