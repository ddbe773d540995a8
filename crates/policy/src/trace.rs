//! Trace of a match, step by step, for explanations.

use tollgate_core::descriptor::Entry;

use super::Policy;
use super::matcher::MatchedBy;
use super::rule::Rule;

/// The match at one level of rules.
#[derive(Debug)]
pub struct MatchStep<'p> {
    /// Number of rules at this level.
    pub siblings: usize,
    /// Rules with `*` that were tried, in order. If one of them matched, it is the last.
    pub wildcards: Vec<&'p Rule>,
    /// The rule that matched, and the comparison: exact, wildcards and key alone are tried in this
    /// order.
    pub taken: Option<(MatchedBy, &'p Rule)>,
}

impl Policy {
    /// Returns the steps of [`Policy::find`]: one for each entry, up to the first without a match.
    pub fn trace<'p>(&'p self, entries: &[Entry<'_>]) -> Vec<MatchStep<'p>> {
        let mut level = &self.top;
        let mut steps = Vec::new();
        for entry in entries {
            let mut step = MatchStep { siblings: level.len(), wildcards: Vec::new(), taken: None };
            step.taken = level
                .fixed(&self.rules, entry.key, Some(entry.value))
                .map(|rule| (MatchedBy::Exact, rule));
            if step.taken.is_none() {
                for rule in level.wildcards(&self.rules) {
                    step.wildcards.push(rule);
                    if rule.matches(entry) {
                        step.taken = Some((MatchedBy::Wildcard, rule));
                        break;
                    }
                }
            }
            if step.taken.is_none() {
                let alone = level.fixed(&self.rules, entry.key, None);
                step.taken = alone.map(|rule| (MatchedBy::KeyAlone, rule));
            }
            let taken = step.taken;
            steps.push(step);
            match taken {
                Some((_, rule)) => level = &rule.children,
                None => break,
            }
        }
        steps
    }
}
