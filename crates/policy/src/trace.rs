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
            let mut wildcards = Vec::new();
            let exact = level.fixed(&self.rules, entry.key, Some(entry.value));
            let taken = exact.map(|rule| (MatchedBy::Exact, rule)).or_else(|| {
                let mut tried = level.wildcards(&self.rules).inspect(|rule| wildcards.push(*rule));
                tried.find(|rule| rule.matches(entry)).map(|rule| (MatchedBy::Wildcard, rule))
            });
            let taken = taken.or_else(|| {
                let alone = level.fixed(&self.rules, entry.key, None)?;
                Some((MatchedBy::KeyAlone, alone))
            });
            steps.push(MatchStep { siblings: level.len(), wildcards, taken });
            let Some((_, rule)) = taken else { break };
            level = &rule.children;
        }
        steps
    }
}
