//! Limits that are tried out: judged beside those that apply, in the same question to the store, and without a part in the answer.
//!
//! A limit is tried out beside a rule that is in force, or with a whole set of policies.

use super::Live;
use super::target::{Target, drop_replaced};
use crate::algorithm::Limit;
use crate::algorithm::judge::{Few, Outcome};
use crate::algorithm::time::Micros;
use crate::algorithm::verdict::Role;
use crate::descriptor::{Descriptor, KeyBuffer, KeyRange, Keyed, Request};
use crate::policy::{Imposes, Policy, Rule};
use crate::store::{Check, Outcomes, StoreError};
use crate::telemetry::candidates::CandidateMetrics;

/// A rule that is tried out, to whom it is told.
#[derive(Debug)]
pub(super) struct Candidate {
    pub(super) metrics: CandidateMetrics,
    /// What the journal calls it.
    pub(super) name: Box<str>,
}

/// A limit that is tried out on a descriptor, and the key of its counter.
pub(super) struct Trial<'a> {
    rule: &'a Rule,
    limit: &'a Limit,
    candidate: &'a Candidate,
    key: KeyRange,
    /// What hashes the values, by it or by the limit that applies.
    keyed: Option<&'a Keyed>,
    in_one_slot: bool,
    descriptor: usize,
}

/// What came of a limit that is tried out.
#[derive(Debug)]
pub struct Tried<'a> {
    rule: &'a Rule,
    candidate: &'a Candidate,
    descriptor: usize,
    keyed: Option<&'a Keyed>,
    outcome: Result<Outcome, StoreError>,
}

impl<'a> Trial<'a> {
    /// What is tried out on the descriptors of a request. `targets`: what they lead to in the policies in force.
    pub(super) fn all(
        live: &'a Live,
        request: &Request<'_>,
        targets: &[Target<'a>],
        keys: &mut KeyBuffer,
    ) -> Vec<Self> {
        let mut trials = Vec::new();
        let in_force = live.in_force.policies.find(request.domain);
        if let Some(policy) = in_force.filter(|policy| policy.has_candidates()) {
            trials.extend(Self::beside(live, policy, request, targets, keys));
        }
        if let Some(candidates) = &live.candidates
            && let Some(policy) = candidates.policies.find(request.domain)
        {
            // Where the rule in force hashes values, so does what is tried out instead of it, be it replaced in this request or not.
            let find = |descriptor: &Descriptor<'_>| {
                let applying = in_force.and_then(|policy| policy.keyed_for(policy.find(&descriptor.entries, keys)?));
                Target::find(policy, descriptor, keys, applying)
            };
            let mut tried: Few<Target<'a>> = request.descriptors.iter().map(find).collect();
            drop_replaced(&mut tried);
            let trial = |(descriptor, target): (usize, Target<'a>)| {
                let keyed = target.keyed();
                let (rule, limit, key) = target.of_rule()?;
                let candidate = candidates.counters.of_candidate(rule)?;
                Some(Self { rule, limit, candidate, key, keyed, in_one_slot: policy.in_one_slot(), descriptor })
            };
            trials.extend(tried.into_iter().enumerate().filter_map(trial));
        }
        trials
    }

    /// The candidates of the rules that are hit. A limit that another replaces, and one that the request brings along, are not
    /// what a candidate is to follow.
    fn beside(
        live: &'a Live,
        policy: &'a Policy,
        request: &Request<'_>,
        targets: &[Target<'a>],
        keys: &mut KeyBuffer,
    ) -> impl Iterator<Item = Self> {
        targets.iter().enumerate().filter_map(move |(descriptor, target)| {
            let asked = request.descriptors.get(descriptor).filter(|asked| asked.limit.is_none())?;
            let host = policy.find(&asked.entries, keys)?;
            let is_replaced = matches!((host.imposes(), target), (Imposes::Limit(_), Target::Nothing));
            let rule = host.candidate().filter(|_| !is_replaced)?;
            let Imposes::Limit(limit) = rule.imposes() else { return None };
            let candidate = live.in_force.counters.of_candidate(rule)?;
            // Where the limit beside it hashes values, so does it.
            let (key, keyed) = (policy.finish(rule, keys, None), policy.keyed_for(rule));
            Some(Self { rule, limit, candidate, key, keyed, in_one_slot: policy.in_one_slot(), descriptor })
        })
    }

    /// The question about it.
    pub(super) fn check<'c>(&'c self, request: &'c Request<'_>, keys: &'c KeyBuffer) -> Option<Check<'c>> {
        let key = keys.key(request.domain, &self.key).in_one_slot(self.in_one_slot);
        let hits = request.descriptors.get(self.descriptor)?.hits;
        let (limit, lease) = (self.limit, self.rule.lease().map(|lease| lease.of(self.limit)));
        Some(Check { key, limit, hits, role: Role::Shadow, recorded: &[], lease })
    }
}

impl<'a> Tried<'a> {
    /// Puts outcomes to what was tried out, in their order. `from`: where they begin.
    pub(super) fn all(trials: Vec<Trial<'a>>, outcomes: &mut Outcomes, from: usize) -> Vec<Self> {
        if trials.is_empty() {
            return Vec::new();
        }
        let outcomes = outcomes.drain(from.min(outcomes.len())..);
        let tried = |(Trial { rule, candidate, descriptor, keyed, .. }, outcome)| Self {
            rule,
            candidate,
            descriptor,
            keyed,
            outcome,
        };
        trials.into_iter().zip(outcomes).map(tried).collect()
    }

    /// The rule that is tried out; one beside a rule in force has its number and its path.
    pub fn rule(&self) -> &'a Rule {
        self.rule
    }

    /// Which of the request's descriptors it was tried on.
    pub fn descriptor(&self) -> usize {
        self.descriptor
    }

    /// What hashes the values of the descriptor where people read them; `None`: they may be read.
    pub fn keyed(&self) -> Option<&'a Keyed> {
        self.keyed
    }

    /// Whether it would have denied; `None`: that is not known.
    pub fn would_deny(&self) -> Option<bool> {
        self.outcome.as_ref().ok().map(|outcome| !outcome.allowed)
    }

    /// What the journal calls it.
    pub(super) fn name(&self) -> &'a str {
        &self.candidate.name
    }

    /// The time until the hits would have room; `None`: never, or not known.
    pub(super) fn wait(&self) -> Option<Micros> {
        self.outcome.as_ref().ok()?.report.retry_after
    }

    /// Counts it. `is_over_limit`: the request is denied without it.
    pub(super) fn count(&self, is_over_limit: bool) {
        let CandidateMetrics { allowed, denied, denied_already, unknown } = &self.candidate.metrics;
        match (self.would_deny(), is_over_limit) {
            (None, _) => unknown,
            (Some(false), _) => allowed,
            (Some(true), false) => denied,
            (Some(true), true) => denied_already,
        }
        .inc();
    }
}
