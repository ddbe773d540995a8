//! Candidate limits: judged beside the active ones, in the same call to the store, without an
//! effect on the response.
//!
//! A candidate belongs to an active rule, or is part of a candidate policy set.

use super::Live;
use super::modes::Modes;
use super::status::{Status, Statuses, drop_replaced};
use super::target::{DescriptorTarget, operation};
use crate::algorithm::Limit;
use crate::algorithm::judge::Outcome;
use crate::algorithm::time::Micros;
use crate::algorithm::verdict::Role;
use crate::descriptor::{KeyBuffer, KeyRange, Keyed, Request};
use crate::policy::{Policy, Rule};
use crate::store::{Check, Outcomes, StoreError};
use crate::telemetry::candidates::CandidateMetrics;

/// The metrics and the journal name of a candidate rule.
#[derive(Debug)]
pub(super) struct Candidate {
    pub(super) metrics: CandidateMetrics,
    /// Name of the rule in the journal.
    pub(super) name: Box<str>,
}

/// A candidate limit on one descriptor, and its counter key.
pub(super) struct CandidateCheck<'a> {
    rule: &'a Rule,
    limit: &'a Limit,
    candidate: &'a Candidate,
    key: KeyRange,
    /// Hasher for the values, if the candidate or the active limit hashes them.
    keyed: Option<&'a Keyed>,
    in_one_slot: bool,
    descriptor: usize,
}

/// The outcome of a candidate limit.
#[derive(Debug)]
pub struct CandidateOutcome<'a> {
    rule: &'a Rule,
    candidate: &'a Candidate,
    descriptor: usize,
    keyed: Option<&'a Keyed>,
    outcome: Result<Outcome, StoreError>,
}

impl<'a> CandidateCheck<'a> {
    /// Returns the candidates for a request's descriptors. `statuses`: those of the active
    /// policies.
    pub(super) fn all(
        live: &'a Live,
        request: &Request<'_>,
        statuses: &[Status<'a>],
        keys: &mut KeyBuffer,
    ) -> Vec<Self> {
        let mut checks = Vec::new();
        let in_force = live.in_force.policies.find(request.domain);
        if let Some(policy) = in_force.filter(|policy| policy.has_candidates()) {
            checks.extend(Self::beside(live, policy, request, statuses, keys));
        }
        if let Some(set) = &live.candidates
            && let Some(policy) = set.policies.find(request.domain)
        {
            let matched = matched(policy, in_force, request, keys).into_iter().enumerate();
            checks.extend(matched.filter_map(|(descriptor, status)| {
                let target = status.into_target();
                let keyed = target.keyed();
                let (rule, limit, key) = target.of_rule()?;
                let candidate = set.counters.of_candidate(rule)?;
                let in_one_slot = policy.in_one_slot();
                Some(Self { rule, limit, candidate, key, keyed, in_one_slot, descriptor })
            }));
        }
        checks
    }

    /// Returns the candidates beside the matched rules. Skips replaced limits and those that the
    /// request sets, because a candidate is not meant to succeed these.
    fn beside(
        live: &'a Live,
        policy: &'a Policy,
        request: &Request<'_>,
        statuses: &[Status<'a>],
        keys: &mut KeyBuffer,
    ) -> impl Iterator<Item = Self> {
        statuses.iter().enumerate().filter_map(move |(descriptor, status)| {
            let requested = request
                .descriptors
                .get(descriptor)
                .filter(|requested| requested.limit.is_none())?;
            let host = policy.find(&requested.entries, keys)?;
            let is_replaced =
                host.limit().is_some() && matches!(status.target(), DescriptorTarget::Nothing);
            let rule = host.candidate().filter(|_| !is_replaced)?;
            let limit = rule.limit()?;
            let candidate = live.in_force.counters.of_candidate(rule)?;
            // If the limit beside it hashes values, so does the candidate.
            let key = policy.finish(rule, keys, None);
            let keyed = policy.keyed_for(rule);
            let in_one_slot = policy.in_one_slot();
            Some(Self { rule, limit, candidate, key, keyed, in_one_slot, descriptor })
        })
    }

    /// Returns the check of the candidate for the store.
    pub(super) fn check<'c>(
        &'c self,
        request: &'c Request<'_>,
        keys: &'c KeyBuffer,
    ) -> Option<Check<'c>> {
        let key = keys.key(request.domain, &self.key).in_one_slot(self.in_one_slot);
        let descriptor = request.descriptors.get(self.descriptor)?;
        let limit = self.limit;
        let lease = self.rule.lease().map(|lease| lease.of(self.limit));
        Some(Check {
            key,
            limit,
            hits: descriptor.hits,
            role: Role::Shadow,
            recorded: &[],
            lease,
            hold: operation(descriptor, limit),
        })
    }
}

/// Matches a request to the policy of a candidate set.
fn matched<'a>(
    policy: &'a Policy,
    in_force: Option<&'a Policy>,
    request: &Request<'_>,
    keys: &mut KeyBuffer,
) -> Statuses<'a> {
    let mut matched = Statuses::new();
    for descriptor in &request.descriptors {
        // If the active rule hashes values, so does the candidate for it, even if the request
        // replaces that rule.
        let applying =
            in_force.and_then(|policy| policy.keyed_for(policy.find(&descriptor.entries, keys)?));
        let target = DescriptorTarget::find(policy, descriptor, keys, applying);
        matched.push(Status::of(target, Modes::default()));
    }
    drop_replaced(&mut matched);
    matched
}

impl<'a> CandidateOutcome<'a> {
    /// Assigns the outcomes, beginning at index `from`, to the candidates in order.
    pub(super) fn all(
        candidates: Vec<CandidateCheck<'a>>,
        outcomes: &mut Outcomes,
        from: usize,
    ) -> Vec<Self> {
        if candidates.is_empty() {
            return Vec::new();
        }
        let outcomes = outcomes.drain(from.min(outcomes.len())..);
        let results = candidates.into_iter().zip(outcomes).map(|(check, outcome)| {
            let CandidateCheck { rule, candidate, descriptor, keyed, .. } = check;
            Self { rule, candidate, descriptor, keyed, outcome }
        });
        results.collect()
    }

    /// Returns the candidate rule; one beside an active rule has the same ID and path.
    pub fn rule(&self) -> &'a Rule {
        self.rule
    }

    /// Returns the index of the descriptor.
    pub fn descriptor(&self) -> usize {
        self.descriptor
    }

    /// Returns the hasher for displayed values of the descriptor; `None` if they may be shown.
    pub fn keyed(&self) -> Option<&'a Keyed> {
        self.keyed
    }

    /// Returns `true` if it would have denied; `None` if unknown.
    pub fn would_deny(&self) -> Option<bool> {
        self.outcome.as_ref().ok().map(|outcome| !outcome.allowed)
    }

    /// Returns the name of the rule in the journal.
    pub(super) fn name(&self) -> &'a str {
        &self.candidate.name
    }

    /// Returns the time until the hits fit; `None`: never, or unknown.
    pub(super) fn wait(&self) -> Option<Micros> {
        self.outcome.as_ref().ok()?.report.retry_after
    }

    /// Counts the outcome. `is_over_limit`: the request is denied without the candidate.
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
