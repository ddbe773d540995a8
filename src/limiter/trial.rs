//! Limits that are tried out: judged beside those that apply, in the same question to the store, and without a part in the answer.

use super::target::Target;
use crate::algorithm::Limit;
use crate::algorithm::judge::Outcome;
use crate::algorithm::verdict::Role;
use crate::descriptor::{KeyBuffer, KeyRange, Request};
use crate::policy::{Imposes, Policy, Rule};
use crate::store::{Check, Outcomes, StoreError};

/// A limit that is tried out on a descriptor, and the key of its counter.
pub(super) struct Trial<'a> {
    rule: &'a Rule,
    limit: &'a Limit,
    key: KeyRange,
    descriptor: usize,
}

/// What came of a limit that is tried out.
#[derive(Debug)]
pub struct Tried<'a> {
    rule: &'a Rule,
    descriptor: usize,
    outcome: Result<Outcome, StoreError>,
}

impl<'a> Trial<'a> {
    /// What is tried out on the descriptors of a request. `targets`: what they lead to; a limit that another replaces, and one
    /// that the request brings along, are not what a candidate is to follow.
    pub(super) fn all(
        policy: &'a Policy,
        request: &Request<'_>,
        targets: &[Target<'_>],
        keys: &mut KeyBuffer,
    ) -> Vec<Self> {
        if !policy.has_candidates() {
            return Vec::new();
        }
        let mut find = |(descriptor, target): (usize, &Target<'_>)| {
            let asked = request.descriptors.get(descriptor).filter(|asked| asked.limit.is_none())?;
            let host = policy.find(&asked.entries, keys)?;
            let is_replaced = matches!((host.imposes(), target), (Imposes::Limit(_), Target::Nothing));
            let rule = host.candidate().filter(|_| !is_replaced)?;
            let Imposes::Limit(limit) = rule.imposes() else { return None };
            Some(Self { rule, limit, key: keys.finish(rule.identity(), None), descriptor })
        };
        targets.iter().enumerate().filter_map(&mut find).collect()
    }

    /// The question about it.
    pub(super) fn check<'c>(
        &'c self,
        policy: &Policy,
        request: &'c Request<'_>,
        keys: &'c KeyBuffer,
    ) -> Option<Check<'c>> {
        let key = keys.key(request.domain, &self.key).in_one_slot(policy.in_one_slot());
        let hits = request.descriptors.get(self.descriptor)?.hits;
        let (limit, lease) = (self.limit, self.rule.lease().map(|lease| lease.of(self.limit)));
        Some(Check { key, limit, hits, role: Role::Shadow, recorded: &[], lease })
    }
}

impl<'a> Tried<'a> {
    /// Puts outcomes to what was tried out, in their order.
    pub(super) fn all(trials: Vec<Trial<'a>>, outcomes: &mut Outcomes, from: usize) -> Vec<Self> {
        if trials.is_empty() {
            return Vec::new();
        }
        let outcomes = outcomes.drain(from.min(outcomes.len())..);
        let tried = |(Trial { rule, descriptor, .. }, outcome)| Self { rule, descriptor, outcome };
        trials.into_iter().zip(outcomes).map(tried).collect()
    }

    /// The limit, as a rule that has the number and the path of the one it stands beside.
    pub fn rule(&self) -> &'a Rule {
        self.rule
    }

    /// Which of the request's descriptors it was tried on.
    pub fn descriptor(&self) -> usize {
        self.descriptor
    }

    /// Whether it would have denied; `None`: that is not known.
    pub fn would_deny(&self) -> Option<bool> {
        self.outcome.as_ref().ok().map(|outcome| !outcome.allowed)
    }
}
