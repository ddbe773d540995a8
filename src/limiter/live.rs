//! An active policy set, as its readers see it.

use super::{CountedPolicies, Live};
use crate::journal::rates::CounterSnapshot;
use crate::policy::{PolicySet, Rule};
use crate::telemetry::candidates::{CandidateMetrics, CandidateSource};

impl Live {
    /// Returns the policies.
    pub fn policies(&self) -> &PolicySet {
        &self.in_force.policies
    }

    /// Returns a number unique to each installation of a policy set, even of an identical one.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Returns the candidates with their metrics: first the rules beside active ones, which have
    /// the same paths, then those of the candidate policy set.
    pub fn candidates(&self) -> impl Iterator<Item = (CandidateSource, &Rule, &CandidateMetrics)> {
        let beside = self.in_force.policies.rules().filter_map(Rule::candidate);
        let beside = beside.map(|rule| (CandidateSource::rule, rule, &self.in_force.counters));
        let sets = self.candidates.iter();
        let set = sets.flat_map(|set| {
            set.policies.rules().map(|rule| (CandidateSource::policy, rule, &set.counters))
        });
        beside.chain(set).filter_map(|(from, rule, counters)| {
            Some((from, rule, &counters.of_candidate(rule)?.metrics))
        })
    }

    /// Returns the counts of each rule, in rule ID order; zeros for rules that share a series.
    pub fn samples(&self) -> impl Iterator<Item = CounterSnapshot<'_>> + Clone {
        let CountedPolicies { policies, counters } = &*self.in_force;
        let rules = policies.rules().zip(counters.of_rules());
        rules.map(|(rule, counts)| CounterSnapshot {
            domain: rule.domain(),
            rule: rule.path(),
            counts,
        })
    }
}
