//! Decisions that candidate limits would have made.

use std::collections::HashSet;

use crate::count::Counter;
use crate::family::RuleFamily;
use crate::snapshot::{MetricSeries, MetricsSnapshot};

/// Origin of a candidate limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CandidateSource {
    /// The candidate of a rule in force.
    Rule,
    /// A rule of a candidate policy.
    Policy,
}

impl CandidateSource {
    /// Both origins.
    pub const ALL: [Self; 2] = [Self::Rule, Self::Policy];

    /// Returns the origin as a metric label.
    fn label(self) -> &'static str {
        match self {
            Self::Rule => "rule",
            Self::Policy => "policy",
        }
    }

    /// Returns the suffix that marks a rule's path in denials that are not enforced.
    pub const fn mark(self) -> &'static str {
        match self {
            Self::Rule => " (candidate)",
            Self::Policy => " (candidate policy)",
        }
    }
}

/// The counters of all candidate limits: one set of series per limit, up to a bound for each
/// origin.
#[derive(Debug)]
pub struct Candidates {
    rules: RuleFamily<CandidateMetrics>,
    policies: RuleFamily<CandidateMetrics>,
}

/// The counters of one candidate limit: descriptors that matched it.
#[derive(Clone, Debug, Default)]
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
            rules: RuleFamily::new(max, CandidateMetrics::default()),
            policies: RuleFamily::new(max, CandidateMetrics::default()),
        }
    }

    pub(super) fn collect(&self, out: &mut MetricsSnapshot) {
        let mut decisions = Vec::new();
        for from in CandidateSource::ALL {
            self.of_source(from).each(|domain, rule, metrics| {
                for (outcome, counter) in metrics.outcomes() {
                    let labels = [
                        ("from", from.label()),
                        ("domain", domain),
                        ("rule", rule),
                        ("outcome", outcome),
                    ];
                    let labels = labels.into_iter().collect();
                    decisions.push(MetricSeries { labels, value: counter.into() });
                }
            });
        }
        let help = "Number of descriptors evaluated by candidate limits, by rule and outcome.";
        out.counters("candidate_decisions", help, decisions);
    }

    /// Returns the counters of a rule's candidate limit. A reload keeps them.
    pub fn of_rule(&self, from: CandidateSource, domain: &str, rule: &str) -> CandidateMetrics {
        self.of_source(from).of(domain, rule)
    }

    /// Removes the series of this origin, except those of `rules`.
    pub fn keep(&self, from: CandidateSource, rules: &HashSet<(&str, &str)>) {
        self.of_source(from).keep(rules);
    }

    fn of_source(&self, from: CandidateSource) -> &RuleFamily<CandidateMetrics> {
        match from {
            CandidateSource::Rule => &self.rules,
            CandidateSource::Policy => &self.policies,
        }
    }
}

impl CandidateMetrics {
    /// Returns the counters with their labels.
    fn outcomes(&self) -> [(&'static str, &Counter); 4] {
        let Self { allowed, denied, denied_already, unknown } = self;
        [
            ("allowed", allowed),
            ("denied", denied),
            ("denied_already", denied_already),
            ("unknown", unknown),
        ]
    }
}
