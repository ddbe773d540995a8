//! The walk of a descriptor down a policy, step by step, for people.

use super::Policy;
use super::matcher::Taken;
use super::rule::Rule;
use crate::descriptor::Entry;

/// What happened at one level of rules.
#[derive(Debug)]
pub struct Step<'p> {
    /// Rules that stand at this level.
    pub siblings: usize,
    /// Rules with `*` that were tried, in order; the last of them is the one that matched, where one was taken.
    pub wildcards: Vec<&'p Rule>,
    /// What was taken, and by which comparison: exact, wildcards, key alone are tried in this order.
    pub taken: Option<(Taken, &'p Rule)>,
}

impl Policy {
    /// The steps of [`Policy::find`]: one for each entry, up to the first at which nothing was taken.
    pub fn trace<'p>(&'p self, entries: &[Entry<'_>]) -> Vec<Step<'p>> {
        let (mut level, mut steps) = (&self.top, Vec::new());
        for entry in entries {
            let mut step = Step { siblings: level.len(), wildcards: Vec::new(), taken: None };
            step.taken = level.fixed(&self.rules, entry.key, Some(entry.value)).map(|rule| (Taken::Exact, rule));
            if step.taken.is_none() {
                for rule in level.wildcards(&self.rules) {
                    step.wildcards.push(rule);
                    if rule.matches(entry) {
                        step.taken = Some((Taken::Wildcard, rule));
                        break;
                    }
                }
            }
            let alone = || level.fixed(&self.rules, entry.key, None).map(|rule| (Taken::KeyAlone, rule));
            step.taken = step.taken.or_else(alone);
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
