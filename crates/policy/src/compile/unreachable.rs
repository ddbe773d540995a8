//! Detection of rules that can never match, because a rule with `*` takes precedence for all their
//! descriptors.
//!
//! Covers only the clear cases: a single other rule matches everything that this one would.

use tollgate_yaml::report::Finding;

use super::identity::Path;
use super::{DomainCompiler, RuleWithOptions};
use crate::document::{note_of, written};
use crate::pattern::Pattern;

/// Maximum number of rule pairs compared in one domain. Comparing each rule with each wildcard at
/// its level is quadratic for a large file.
pub(super) const MAX_COMPARISONS: usize = 5_000_000;

struct Wildcard<'w> {
    rule: &'w written::WrittenRule,
    key: Pattern,
    value: Option<Pattern>,
}

impl DomainCompiler<'_> {
    /// Reports warnings for rules among `siblings` that can never match.
    pub(super) fn find_unreachable(&mut self, siblings: &[RuleWithOptions<'_>], above: &Path) {
        let wildcards: Vec<_> =
            siblings.iter().filter_map(|(rule, _)| Wildcard::of(rule)).collect();
        let mut earlier = 0usize;
        for (rule, _) in siblings {
            let is_wild = Wildcard::of(rule).is_some();
            // A rule for an exact key and value takes precedence over all rules with `*`.
            if rule.value.is_some() && !is_wild {
                continue;
            }
            // A rule for the key alone comes after all of them, a rule with `*` after those written
            // before it.
            let rivals = wildcards
                .get(..if is_wild { earlier } else { wildcards.len() })
                .unwrap_or_default();
            earlier = earlier.saturating_add(usize::from(is_wild));
            self.comparisons = self.comparisons.saturating_sub(rivals.len());
            if self.comparisons == 0 {
                return;
            }
            if let Some(rival) = rivals.iter().find(|rival| rival.covers(rule)) {
                let warning =
                    Finding::warning(rule.key.span, "unreachable rule: another rule matches first");
                let warning = warning
                    .also(rival.rule.key.span, "matches everything that the rule would match");
                let order = "matching order: exact key and value, then rules with `*` as written, then the key alone";
                let place = note_of(&above.readable(rule), &self.place);
                self.findings.push(warning.note(order).note(place));
            }
        }
    }
}

impl<'w> Wildcard<'w> {
    fn of(rule: &'w written::WrittenRule) -> Option<Self> {
        let key = Pattern::new(&rule.key.value);
        let value = rule.value_text().map(Pattern::new);
        let is_wild = key.is_wild() || value.as_ref().is_some_and(Pattern::is_wild);
        is_wild.then_some(Self { rule, key, value })
    }

    /// Returns `true` if this rule matches everything that `other` does. A pattern covers another
    /// if it matches the *text* of it, `*` included: a `*` of the other can only have matched a `*`
    /// here, which matches any text in its place too.
    fn covers(&self, other: &written::WrittenRule) -> bool {
        let value = match (&self.value, &other.value) {
            (None, _) => true,
            (Some(value), Some(other)) => value.matches(other.value.as_bytes()),
            (Some(value), None) => value.text().iter().all(|byte| *byte == b'*'),
        };
        value && self.key.matches(other.key.value.as_bytes())
    }
}
