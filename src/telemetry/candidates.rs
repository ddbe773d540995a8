//! What limits that are tried out would have done.

use std::collections::HashSet;

use parking_lot::Mutex;
use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    from: From,
    domain: String,
    rule: String,
    outcome: Outcome,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelValue)]
#[allow(non_camel_case_types, reason = "the label's value, as Prometheus shows it")]
enum Outcome {
    allowed,
    denied,
    denied_already,
    unknown,
}

/// Where a limit that is tried out comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelValue)]
#[allow(non_camel_case_types, reason = "the label's value, as Prometheus shows it")]
pub enum From {
    /// It stands beside a rule that is in force.
    rule,
    /// It is a rule of a policy that is tried out.
    policy,
}

impl From {
    /// Both.
    pub const ALL: [Self; 2] = [Self::rule, Self::policy];

    /// What stands after the path of a rule, where denials are told that nobody was denied for.
    pub const fn mark(self) -> &'static str {
        match self {
            Self::rule => " (candidate)",
            Self::policy => " (candidate policy)",
        }
    }
}

const OUTCOMES: [Outcome; 4] = [Outcome::allowed, Outcome::denied, Outcome::denied_already, Outcome::unknown];

/// The domain and rule under which all are counted that there is no room for.
const OTHER: &str = "other";

/// The counters of all limits that are tried out: as many series as there are limits, up to a bound.
#[derive(Debug)]
pub struct Candidates {
    decisions: Family<Labels, Counter>,
    /// Domains and rules with series of their own.
    known: Mutex<HashSet<(From, String, String)>>,
    max: usize,
}

/// The counters of one of them: descriptors that came to it.
#[derive(Clone, Debug)]
pub struct CandidateMetrics {
    /// There was room.
    pub allowed: Counter,
    /// There was none, and the request was admitted: it would not have been.
    pub denied: Counter,
    /// There was none, and the request was denied without it.
    pub denied_already: Counter,
    /// The store failed.
    pub unknown: Counter,
}

impl Candidates {
    /// At most `max` limits with series of their own.
    pub(super) fn new(max: usize) -> Self {
        Self { decisions: Family::default(), known: Mutex::default(), max }
    }

    pub(super) fn register(&self, registry: &mut Registry) {
        let help = "Descriptors judged by limits that are tried out, by rule and by what would have become of them";
        registry.register("candidate_decisions", help, self.decisions.clone());
    }

    /// The counters of the limit that is tried out at a rule; the same ones after a reload.
    pub fn of_rule(&self, from: From, domain: &str, rule: &str) -> CandidateMetrics {
        let name = (from, domain.to_owned(), rule.to_owned());
        let mut known = self.known.lock();
        let is_own = known.contains(&name) || (known.len() < self.max && known.insert(name));
        drop(known);
        let (domain, rule) = if is_own { (domain, rule) } else { (OTHER, OTHER) };
        let counter = |outcome| {
            let labels = Labels { from, domain: domain.to_owned(), rule: rule.to_owned(), outcome };
            self.decisions.get_or_create(&labels).clone()
        };
        CandidateMetrics {
            allowed: counter(Outcome::allowed),
            denied: counter(Outcome::denied),
            denied_already: counter(Outcome::denied_already),
            unknown: counter(Outcome::unknown),
        }
    }

    /// Forgets all that come from there but those of these rules.
    pub fn keep(&self, from: From, rules: &HashSet<(&str, &str)>) {
        self.known.lock().retain(|(known_from, domain, rule)| {
            let is_kept = *known_from != from || rules.contains(&(domain.as_str(), rule.as_str()));
            for outcome in OUTCOMES.into_iter().filter(|_| !is_kept) {
                self.decisions.remove(&Labels { from, domain: domain.clone(), rule: rule.clone(), outcome });
            }
            is_kept
        });
    }
}
