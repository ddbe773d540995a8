//! Rules that can never match, since a rule with `*` takes first whatever they would.
//!
//! Only the clear cases: a single other rule covers this one whole.

use super::identity::Path;
use super::{Compiler, Written};
use crate::policy::document::{in_rule, step, written};
use crate::policy::matcher::Pattern;
use crate::policy::report::Finding;

/// Pairs of rules compared in one domain: each rule with each wildcard beside it would be the square of a large file.
pub(super) const MAX_COMPARISONS: usize = 5_000_000;

struct Wildcard<'w> {
    rule: &'w written::Rule,
    key: Pattern,
    value: Option<Pattern>,
}

impl Compiler<'_> {
    /// Warns of rules among `siblings` that can never match.
    pub(super) fn find_unreachable(&mut self, siblings: &[Written<'_>], above: &Path) {
        let wildcards: Vec<_> = siblings.iter().filter_map(|(rule, _)| Wildcard::of(rule)).collect();
        let mut earlier = 0usize;
        for (rule, _) in siblings {
            let is_wild = Wildcard::of(rule).is_some();
            // A rule for exactly one key and value is found before all with `*`.
            if rule.value.is_some() && !is_wild {
                continue;
            }
            // One for the key alone comes after all of them, one with `*` after those written before it.
            let rivals = wildcards.get(..if is_wild { earlier } else { wildcards.len() }).unwrap_or_default();
            earlier = earlier.saturating_add(usize::from(is_wild));
            self.comparisons = self.comparisons.saturating_sub(rivals.len());
            if self.comparisons == 0 {
                return;
            }
            if let Some(rival) = rivals.iter().find(|rival| rival.covers(rule)) {
                let value = rule.value.as_ref().map(|value| value.value.as_str());
                let path = above.readable(&step(&rule.key.value, value));
                let warning = Finding::warning(rule.key.span, "this rule can never match");
                let warning = warning.also(rival.rule.key.span, "takes everything that it would match");
                let order = "order: exact key and value, then rules with `*` as written, then the key alone";
                self.findings.push(warning.note(order).note(format!("in {}", in_rule(&path, &self.place))));
            }
        }
    }
}

impl<'w> Wildcard<'w> {
    fn of(rule: &'w written::Rule) -> Option<Self> {
        let key = Pattern::new(&rule.key.value);
        let value = rule.value.as_ref().map(|value| Pattern::new(&value.value));
        let is_wild = key.is_wild() || value.as_ref().is_some_and(Pattern::is_wild);
        is_wild.then_some(Self { rule, key, value })
    }

    /// Whether whatever `other` matches, this one does. A pattern that matches the *text* of another, `*` and all, covers it:
    /// the other's `*` can only have met a `*` of this one, and whatever stands for it there meets the same.
    fn covers(&self, other: &written::Rule) -> bool {
        let value = match (&self.value, &other.value) {
            (None, _) => true,
            (Some(value), Some(other)) => value.matches(other.value.as_bytes()),
            (Some(value), None) => value.text().iter().all(|byte| *byte == b'*'),
        };
        value && self.key.matches(other.key.value.as_bytes())
    }
}
