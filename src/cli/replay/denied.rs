//! Denied requests of some traffic, by one or two policy sets: per rule, with the keys that were
//! denied most.

use std::collections::BTreeMap;
use std::fmt;

use super::top::TopKeys;
use crate::descriptor::{Descriptor, Keyed, Request};
use crate::limiter::{Decision, Status};
use crate::printable::counted;
use crate::telemetry::journal::key;

/// Maximum number of keys to show per rule.
const MAX_KEYS: usize = 10;

/// Denied requests, by the domain and path of the rules that denied them.
#[derive(Debug, Default)]
pub(super) struct Denied {
    requests: u64,
    rules: BTreeMap<(String, String), TopKeys>,
}

/// The decisions of two policy sets on the same traffic, or of one alone.
#[derive(Debug, Default)]
pub(super) struct Comparison {
    requests: u64,
    denied: [u64; 2],
    /// Denied by the first and not by the second, or by the only one.
    old: Denied,
    /// Denied by the second alone.
    new: Denied,
    /// Admitted, but denied if the candidate limits of the first applied.
    candidates: Denied,
    is_of_two: bool,
}

impl Denied {
    fn add(&mut self, request: &Request<'_>, decision: &Decision<'_>) {
        self.requests += 1;
        let statuses = decision.statuses().iter().zip(&request.descriptors);
        // Quota votes deny together, so each of them is part of the reason.
        for (status, descriptor) in statuses.filter(|(status, _)| status.is_over_limit()) {
            let top = self.rules.entry(rule_of(status, request.domain)).or_default();
            top.add(&key_of(descriptor, status.keyed()));
        }
    }

    /// Adds a request that is admitted, and would be denied if the candidates applied.
    fn add_candidates(&mut self, request: &Request<'_>, decision: &Decision<'_>) {
        let denying =
            decision.candidates().iter().filter(|candidate| candidate.would_deny() == Some(true));
        let mut is_any = false;
        for candidate in denying.filter(|_| !decision.is_over_limit()) {
            is_any = true;
            let top = self
                .rules
                .entry((request.domain.to_owned(), candidate.rule().path().to_owned()))
                .or_default();
            let descriptor = request.descriptors.get(candidate.descriptor());
            descriptor
                .into_iter()
                .for_each(|descriptor| top.add(&key_of(descriptor, candidate.keyed())));
        }
        self.requests += u64::from(is_any);
    }
}

impl Comparison {
    /// Creates an empty comparison.
    pub(super) fn new(is_of_two: bool) -> Self {
        Self { is_of_two, ..Self::default() }
    }

    /// Returns `true` if no request was decided.
    pub(super) fn is_empty(&self) -> bool {
        self.requests == 0
    }

    /// Adds the decisions on a request: of the first policy set, and of the second if there is one.
    pub(super) fn add(
        &mut self,
        request: &Request<'_>,
        first: &Decision<'_>,
        second: Option<(&Request<'_>, &Decision<'_>)>,
    ) {
        self.requests += 1;
        let over =
            [first.is_over_limit(), second.is_some_and(|(_, second)| second.is_over_limit())];
        for (denied, over) in self.denied.iter_mut().zip(over) {
            *denied += u64::from(over);
        }
        self.candidates.add_candidates(request, first);
        match (over, second) {
            ([true, false], _) => self.old.add(request, first),
            ([false, true], Some((request, second))) => self.new.add(request, second),
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

impl fmt::Display for Denied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rules: Vec<_> = self.rules.iter().collect();
        rules.sort_by_key(|(_, top)| std::cmp::Reverse(top.total()));
        for ((domain, rule), top) in rules {
            writeln!(f, "  {:>9} from {}  {domain} {rule}", top.total(), top.keys())?;
            for (count, key) in top.first(MAX_KEYS) {
                writeln!(f, "  {count:>13}  {key}")?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [old, new] = self.denied;
        let requests = counted(self.requests, "request");
        if !self.is_of_two {
            writeln!(f, "{requests}, {old} over limit")?;
            write!(f, "{}", self.old)?;
            if self.candidates.requests > 0 {
                writeln!(f, "{} more if its candidates were in force", self.candidates.requests)?;
            }
            return write!(f, "{}", self.candidates);
        }
        writeln!(f, "{requests}: {old} over limit by --policy, {new} by --against")?;
        writeln!(f, "{} would be denied only by --against", self.new.requests)?;
        write!(f, "{}", self.new)?;
        writeln!(f, "{} would be denied only by --policy", self.old.requests)?;
        write!(f, "{}", self.old)
    }
}
