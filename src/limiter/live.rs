//! The policies in force, and how they are installed.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::{ArcSwapOption, Guard};
use parking_lot::Mutex;

use super::count::RuleCounters;
use crate::policy::{PolicySet, Rule};
use crate::store::StoreError;
use crate::telemetry::candidates::{CandidateMetrics, CandidateSource};
use crate::telemetry::journal::rates::CounterSnapshot;
use crate::telemetry::metrics::Metrics;

/// The active policies, shared by all limiters of a process.
pub struct InForce {
    pub(super) live: ArcSwapOption<Live>,
    /// Candidate policy set; kept also before any policy is active.
    pub(super) candidates: Mutex<Option<Arc<CountedPolicies>>>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) generations: AtomicU64,
}

/// An active policy set, with the candidate set beside it.
#[derive(Clone, Debug)]
pub struct Live {
    pub(super) in_force: Arc<CountedPolicies>,
    pub(super) candidates: Option<Arc<CountedPolicies>>,
    pub(super) version: Arc<str>,
    pub(super) generation: u64,
}

/// A policy set, with the counters of its rules.
#[derive(Debug)]
pub(super) struct CountedPolicies {
    pub(super) policies: PolicySet,
    pub(super) counters: RuleCounters,
}

/// A snapshot of the active policies, held for the duration of one request.
pub type Snapshot = Guard<Option<Arc<Live>>>;

impl InForce {
    /// Creates an instance without policies.
    pub fn new(metrics: Arc<Metrics>) -> Arc<Self> {
        StoreError::ALL.iter().for_each(|error| metrics.store.show_store_error(error.kind()));
        let live = ArcSwapOption::empty();
        let candidates = Mutex::default();
        Arc::new(Self { live, candidates, metrics, generations: AtomicU64::new(0) })
    }

    /// Activates a policy set for every request that begins from now on.
    pub fn install(&self, policies: PolicySet) {
        let rules: HashSet<_> = policies.rules().map(|rule| (rule.domain(), rule.path())).collect();
        self.metrics.keep_rules(&rules);
        let with_candidates = policies.rules().filter(|rule| rule.candidate().is_some());
        self.metrics.candidates.keep(
            CandidateSource::Rule,
            &with_candidates.map(|rule| (rule.domain(), rule.path())).collect(),
        );
        drop(rules);
        let counters = RuleCounters::of(&policies, &self.metrics);
        let generation = self.generations.fetch_add(1, Ordering::Relaxed);
        let version = policies.version().into();
        let in_force = Arc::new(CountedPolicies { policies, counters });
        let candidates = self.candidates.lock();
        self.live.store(Some(Arc::new(Live {
            in_force,
            candidates: candidates.clone(),
            version,
            generation,
        })));
    }

    /// Evaluates a candidate policy set beside the active one, in place of the previous candidate.
    /// Its counters must be separate, as by
    /// [`CompileOptions::are_candidates`](crate::policy::CompileOptions::are_candidates).
    pub fn try_out(&self, policies: PolicySet) {
        let rules: HashSet<_> = policies.rules().map(|rule| (rule.domain(), rule.path())).collect();
        self.metrics.candidates.keep(CandidateSource::Policy, &rules);
        drop(rules);
        let counters = RuleCounters::of_candidates(&policies, &self.metrics);
        let mut candidates = self.candidates.lock();
        *candidates = Some(Arc::new(CountedPolicies { policies, counters }));
        if let Some(live) = self.live.load_full() {
            self.live
                .store(Some(Arc::new(Live { candidates: candidates.clone(), ..(*live).clone() })));
        }
    }

    /// Returns the active policies.
    pub fn snapshot(&self) -> Snapshot {
        self.live.load()
    }

    /// Returns the estimated memory of the active and candidate policies, in bytes.
    pub fn memory(&self) -> usize {
        let in_force = self.live.load().as_ref().map_or(0, |live| live.in_force.policies.memory());
        let on_trial =
            self.candidates.lock().as_ref().map_or(0, |candidates| candidates.policies.memory());
        in_force + on_trial
    }
}

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
        let beside = beside.map(|rule| (CandidateSource::Rule, rule, &self.in_force.counters));
        let sets = self.candidates.iter();
        let set = sets.flat_map(|set| {
            set.policies.rules().map(|rule| (CandidateSource::Policy, rule, &set.counters))
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
