//! Loans: the counter of a descriptor from which hits are lent, and what is counted and recorded of
//! the hits that clients hold.

use std::collections::HashMap;

use super::target::DescriptorTarget;
use super::{Limiter, Live};
use crate::algorithm::Limit;
use crate::algorithm::judge::Hits;
use crate::algorithm::lease::Lease;
use crate::algorithm::time::{Micros, Timestamp};
use crate::algorithm::verdict::Role;
use crate::descriptor::{Descriptor, KeyBuffer, Keyed, OwnedKey};
use crate::policy::{NoLoan, Policy, PolicySet, Rule};
use crate::store::{Check, Store};
use crate::telemetry::journal::{DenialEvent, DenialReason};
use crate::telemetry::metrics::{LoanCounters, Metrics, RuleMetrics};

const SECOND: Micros = Micros::from_secs(1);

/// The counter of a descriptor, by the limit of its rule.
#[derive(Debug)]
pub struct LoanTarget<'a> {
    rule: &'a Rule,
    limit: &'a Limit,
    key: OwnedKey,
    keyed: Option<&'a Keyed>,
    /// Counters of the rule's loans, if it lends.
    loans: Option<&'a LoanCounters>,
    pub(super) decisions: Option<&'a RuleMetrics>,
}

/// The counters of the rules that lend, by [`Rule::id`].
#[derive(Debug, Default)]
pub(super) struct RuleLoans(HashMap<usize, LoanCounters>);

impl RuleLoans {
    /// Looks up the counters that exchanges will increment.
    pub(super) fn of(policies: &PolicySet, metrics: &Metrics) -> Self {
        let lending = policies.rules().filter(|rule| rule.loan().is_ok());
        let counters =
            lending.map(|rule| (rule.id(), metrics.loans.of_rule(rule.domain(), rule.path())));
        Self(counters.collect())
    }

    fn of_rule(&self, rule: &Rule) -> Option<&LoanCounters> {
        self.0.get(&rule.id())
    }
}

impl<S: Store> Limiter<S> {
    /// Returns the counter of a descriptor; `None` if no rule imposes a limit on it.
    pub fn loan_target<'a>(
        &self,
        live: &'a Live,
        domain: &str,
        descriptor: &Descriptor<'_>,
    ) -> Option<LoanTarget<'a>> {
        let policy = live.in_force.policies.find(domain)?;
        let mut keys = KeyBuffer::default();
        let target = DescriptorTarget::find(policy, descriptor, &mut keys, None);
        let keyed = target.keyed();
        let (rule, limit, range) = target.of_rule()?;
        let key = keys.key(domain, &range).in_one_slot(Policy::in_one_slot(policy));
        let counters = &live.in_force.counters;
        Some(LoanTarget {
            rule,
            limit,
            key: key.into(),
            keyed,
            loans: counters.loans().of_rule(rule),
            decisions: counters.of_rule(rule),
        })
    }

    /// Records a denial that a client will repeat to its own callers.
    pub fn record_loan_denial(
        &self,
        live: &Live,
        target: &LoanTarget<'_>,
        descriptor: &Descriptor<'_>,
        retry_after: Micros,
    ) {
        if !self.recorder.is_on() {
            return;
        }
        let denial = DenialEvent {
            domain: target.rule.domain(),
            rule: target.rule.path(),
            version: &live.version,
            why: DenialReason::NoRoom,
            hits: 1,
            retry_after: Some(retry_after),
            recorded: &[],
        };
        Keyed::show(target.keyed, &descriptor.entries, |entries| {
            self.recorder.note(&denial, entries);
        });
    }
}

impl<'a> LoanTarget<'a> {
    /// Returns the rule.
    pub fn rule(&self) -> &'a Rule {
        self.rule
    }

    /// Returns the limit.
    pub fn limit(&self) -> &'a Limit {
        self.limit
    }

    /// Returns the key of the counter.
    pub fn key(&self) -> &OwnedKey {
        &self.key
    }

    /// Returns the bounds of the blocks that clients may hold.
    ///
    /// # Errors
    /// The reason why they may not.
    pub fn lease(&self) -> Result<Lease, NoLoan> {
        self.rule.loan().map(|(_, lease)| lease)
    }

    /// Returns a check of the counter, to which a loan gives the hits.
    pub fn check(&self) -> Check<'_> {
        Check {
            key: self.key.within(self.rule.domain()),
            limit: self.limit,
            hits: Hits::Peek(0),
            role: Role::Enforce,
            recorded: &[],
            lease: None,
            hold: None,
        }
    }

    /// Counts hits that are lent to a client until `end`.
    pub fn count_lent(&self, hits: u64, end: Timestamp) {
        if let Some(loans) = self.loans {
            loans.lent.inc_by(hits);
            loans.held.lend(end.index(SECOND), hits);
        }
    }

    /// Counts what a client reports of a loan that ends at `end`. Hits that it used count as
    /// decisions, too: the client has made them.
    pub fn count_returned(&self, used: u64, unused: u64, end: Timestamp) {
        if let Some(loans) = self.loans {
            loans.used.inc_by(used);
            loans.unused.inc_by(unused);
            loans.held.take_back(end.index(SECOND), used.saturating_add(unused));
        }
        if let Some(decisions) = self.decisions {
            decisions.allowed.inc_by(used);
        }
    }
}
