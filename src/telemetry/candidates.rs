//! What limits that are tried out would have done.

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

/// The counters of all limits that are tried out.
#[derive(Debug, Default)]
pub struct Candidates(Family<Labels, Counter>);

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
    pub(super) fn register(&self, registry: &mut Registry) {
        let help = "Descriptors judged by limits that are tried out, by rule and by what would have become of them";
        registry.register("candidate_decisions", help, self.0.clone());
    }

    /// The counters of the limit that is tried out at a rule; the same ones after a reload.
    pub fn of_rule(&self, from: From, domain: &str, rule: &str) -> CandidateMetrics {
        let counter = |outcome| {
            let labels = Labels { from, domain: domain.to_owned(), rule: rule.to_owned(), outcome };
            self.0.get_or_create(&labels).clone()
        };
        CandidateMetrics {
            allowed: counter(Outcome::allowed),
            denied: counter(Outcome::denied),
            denied_already: counter(Outcome::denied_already),
            unknown: counter(Outcome::unknown),
        }
    }
}
