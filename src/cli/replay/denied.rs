//! Denied requests of some traffic, by one or two policy sets: per rule, with the keys that were
//! denied most.

use std::collections::BTreeMap;

use super::order::{TimeOrder, TimeSpan};
use super::top::TopKeys;
use crate::algorithm::time::Timestamp;
use crate::descriptor::{Descriptor, Keyed, Request};
use crate::limiter::{Decision, Status};
use crate::telemetry::journal::key;

/// Denied requests, by the domain and path of the rules that denied them.
#[derive(Debug, Default)]
pub(super) struct Denied {
    requests: u64,
    rules: BTreeMap<(String, String), DeniedRule>,
}

/// Denials by a rule: their keys, and the time of the first and the last.
#[derive(Debug)]
pub(super) struct DeniedRule {
    pub(super) top: TopKeys,
    pub(super) span: TimeSpan,
}

/// The decisions of two policy sets on the same traffic, or of one alone.
#[derive(Debug, Default)]
pub(super) struct Comparison {
    pub(super) requests: u64,
    pub(super) order: TimeOrder,
    pub(super) denied: [u64; 2],
    /// Requests without a rule.
    pub(super) unmatched: [u64; 2],
    /// Denied by the first and not by the second, or by the only one.
    pub(super) old: Denied,
    /// Denied by the second alone.
    pub(super) new: Denied,
    /// Admitted, but denied if the candidate limits of the first applied.
    pub(super) candidates: Denied,
}

impl Denied {
    /// Returns the number of requests.
    pub(super) fn requests(&self) -> u64 {
        self.requests
    }

    /// Returns the domain and path of each rule with its denials, the most denials first.
    pub(super) fn by_total(&self) -> Vec<(&str, &str, &DeniedRule)> {
        let rules = self.rules.iter();
        let mut rules: Vec<_> =
            rules.map(|((domain, rule), denied)| (&**domain, &**rule, denied)).collect();
        rules.sort_by_key(|(_, _, denied)| std::cmp::Reverse(denied.top.total()));
        rules
    }

    fn add_key(&mut self, rule: (String, String), key: &str, at: Timestamp) {
        let new = || DeniedRule { top: TopKeys::default(), span: TimeSpan::of(at) };
        let denied = self.rules.entry(rule).or_insert_with(new);
        denied.span.extend(at);
        denied.top.add(key);
    }

    fn add(&mut self, at: Timestamp, request: &Request<'_>, decision: &Decision<'_>) {
        self.requests += 1;
        let statuses = decision.statuses().iter().zip(&request.descriptors);
        // Quota votes deny together, so each of them is part of the reason.
        for (status, descriptor) in statuses.filter(|(status, _)| status.is_over_limit()) {
            let rule = rule_of(status, request.domain);
            self.add_key(rule, &key_of(descriptor, status.keyed()), at);
        }
    }

    /// Adds a request that is admitted, and would be denied if the candidates applied.
    fn add_candidates(&mut self, at: Timestamp, request: &Request<'_>, decision: &Decision<'_>) {
        let denying =
            decision.candidates().iter().filter(|candidate| candidate.would_deny() == Some(true));
        let mut is_any = false;
        for candidate in denying.filter(|_| !decision.is_over_limit()) {
            is_any = true;
            if let Some(descriptor) = request.descriptors.get(candidate.descriptor()) {
                let rule = (request.domain.to_owned(), candidate.rule().path().to_owned());
                self.add_key(rule, &key_of(descriptor, candidate.keyed()), at);
            }
        }
        self.requests += u64::from(is_any);
    }
}

impl Comparison {
    /// Returns `true` if no request was decided.
    pub(super) fn is_empty(&self) -> bool {
        self.requests == 0
    }

    /// Adds the decisions on a request: of the first policy set, and of the second if there is one.
    pub(super) fn add(
        &mut self,
        at: Timestamp,
        request: &Request<'_>,
        first: &Decision<'_>,
        second: Option<(&Request<'_>, &Decision<'_>)>,
    ) {
        self.requests += 1;
        self.order.add(at);
        let is_unmatched = |decision: &Decision<'_>| {
            decision.statuses().iter().all(|status| status.rule().is_none())
        };
        self.unmatched[0] += u64::from(is_unmatched(first));
        self.unmatched[1] += u64::from(second.is_some_and(|(_, second)| is_unmatched(second)));
        let over =
            [first.is_over_limit(), second.is_some_and(|(_, second)| second.is_over_limit())];
        for (denied, over) in self.denied.iter_mut().zip(over) {
            *denied += u64::from(over);
        }
        self.candidates.add_candidates(at, request, first);
        match (over, second) {
            ([true, false], _) => self.old.add(at, request, first),
            ([false, true], Some((request, second))) => self.new.add(at, request, second),
            ([_, _], _) => {}
        }
    }
}

fn rule_of(status: &Status<'_>, domain: &str) -> (String, String) {
    let path = status.rule().map_or("(limit of the request)", |rule| rule.path());
    (domain.to_owned(), path.to_owned())
}

/// Returns the key of the descriptor in the format of the journal of a running service.
fn key_of(descriptor: &Descriptor<'_>, keyed: Option<&Keyed>) -> String {
    let mut text = String::new();
    Keyed::show(keyed, &descriptor.entries, |entries| key::write_text(entries, &mut text));
    text
}
