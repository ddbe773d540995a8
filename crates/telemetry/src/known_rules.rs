//! The rules that have series of their own, up to a bound; all others share one set.

use std::collections::HashSet;

use parking_lot::Mutex;
use prometheus_client::encoding::EncodeLabelSet;

/// Domain and rule label of the rules beyond the bound.
const OTHER: &str = "other";

/// The labels of a rule.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct RuleLabels {
    pub(super) domain: String,
    pub(super) rule: String,
}

/// The rules that have series of their own.
#[derive(Debug)]
pub(super) struct KnownRules {
    rules: Mutex<HashSet<RuleLabels>>,
    max: usize,
}

impl KnownRules {
    /// Creates an empty set for at most `max` rules.
    pub(super) fn new(max: usize) -> Self {
        Self { rules: Mutex::default(), max }
    }

    /// Returns the labels of the series of a rule, and `true` if no other rule shares them.
    pub(super) fn labels(&self, domain: &str, rule: &str) -> (RuleLabels, bool) {
        let own = RuleLabels { domain: domain.to_owned(), rule: rule.to_owned() };
        let mut rules = self.rules.lock();
        if rules.contains(&own) || rules.len() < self.max && rules.insert(own.clone()) {
            return (own, true);
        }
        (RuleLabels { domain: OTHER.to_owned(), rule: OTHER.to_owned() }, false)
    }

    /// Forgets all rules except these, and calls `remove` with the labels of each forgotten one.
    pub(super) fn keep(&self, rules: &HashSet<(&str, &str)>, remove: impl Fn(&RuleLabels)) {
        self.rules.lock().retain(|own| {
            let is_kept = rules.contains(&(own.domain.as_str(), own.rule.as_str()));
            if !is_kept {
                remove(own);
            }
            is_kept
        });
    }
}
