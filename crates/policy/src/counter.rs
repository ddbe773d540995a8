//! Lookup of a counter by its descriptor, for operators.

use tollgate_core::descriptor::{CounterKey, Entry, KeyBuffer};

use super::{Policy, PolicySet, Rule};

/// Maximum number of names in a list.
const MAX_NAMES: usize = 12;

/// The reason why there is no counter.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoCounter {
    /// There is no policy for the domain.
    #[error("no policy for domain `{domain}` (domains: {known})")]
    Domain {
        /// Requested domain.
        domain: String,
        /// Known domains, as a list.
        known: String,
    },
    /// The descriptor matches no rule.
    #[error("no rule for this descriptor: no match for {at} (rules: {known})")]
    Rule {
        /// The first entry without a rule, and the path of the rule above it.
        at: String,
        /// Rules at that level, as a list.
        known: String,
    },
    /// There is no rule with this path.
    #[error("no rule `{path}` (rules with a limit: {known})")]
    Path {
        /// Requested path.
        path: String,
        /// Rules with a limit, as a list.
        known: String,
    },
    /// The rule with this path has no limit.
    #[error("rule `{path}` has no limit (rules below it: {known})")]
    Limit {
        /// Path of the rule.
        path: String,
        /// Rules below it, as a list.
        known: String,
    },
}

impl PolicySet {
    /// Returns the rule that a descriptor matches, and the key of its counter.
    ///
    /// # Errors
    /// Returns the reason why there is no counter.
    pub fn counter<'a>(
        &'a self,
        domain: &'a str,
        entries: &[Entry<'_>],
        keys: &'a mut KeyBuffer,
    ) -> Result<(&'a Rule, CounterKey<'a>), NoCounter> {
        let policy = self.find(domain).ok_or_else(|| self.no_domain(domain))?;
        let rule = policy.find(entries, keys).ok_or_else(|| policy.no_rule(entries))?;
        if rule.limit().is_none() {
            let known = some_of(rule.children.rules(&policy.rules).into_iter().map(Rule::step));
            return Err(NoCounter::Limit { path: rule.path().to_owned(), known });
        }
        let range = policy.finish(rule, keys, None);
        Ok((rule, keys.key(domain, &range).in_one_slot(policy.in_one_slot())))
    }

    /// Returns the reason why a domain or the path of a rule is unknown; `None` if both exist.
    pub fn unknown(&self, domain: Option<&str>, path: Option<&str>) -> Option<NoCounter> {
        if let Some(domain) = domain.filter(|domain| self.find(domain).is_none()) {
            return Some(self.no_domain(domain));
        }
        let path = path?;
        let here = self.rules().filter(|rule| domain.is_none_or(|domain| rule.domain() == domain));
        let is_there =
            here.clone().any(|rule| path.strip_prefix(rule.path()).is_some_and(is_of_the_rule));
        let limits = here.filter(|rule| rule.limit().is_some());
        (!is_there).then(|| NoCounter::Path {
            path: path.to_owned(),
            known: some_of(limits.map(Rule::path)),
        })
    }

    fn no_domain(&self, domain: &str) -> NoCounter {
        NoCounter::Domain {
            domain: domain.to_owned(),
            known: some_of(self.policies().map(Policy::domain)),
        }
    }
}

impl Policy {
    fn no_rule(&self, entries: &[Entry<'_>]) -> NoCounter {
        let steps = self.trace(entries);
        let above = steps.iter().rev().find_map(|step| step.taken).map(|(_, rule)| rule);
        let untaken = steps.iter().position(|step| step.taken.is_none());
        let at = match untaken.and_then(|place| entries.get(place)) {
            Some(Entry { key, value }) => {
                format!("`{}={}`", String::from_utf8_lossy(key), String::from_utf8_lossy(value))
            }
            None => "an empty descriptor".to_owned(),
        };
        let below = above.map(|rule| format!(" below `{}`", rule.path())).unwrap_or_default();
        let level = above.map_or(&self.top, |rule| &rule.children);
        let known = some_of(level.rules(&self.rules).into_iter().map(Rule::step));
        NoCounter::Rule { at: format!("{at}{below}"), known }
    }
}

/// Returns `true` for the rest of a path after that of its rule: nothing, or which limit of the
/// rule, such as ` (candidate)`.
fn is_of_the_rule(rest: &str) -> bool {
    rest.is_empty() || rest.starts_with(" (")
}

/// Returns the first of the names, and the number of the others.
fn some_of(names: impl Iterator<Item = impl AsRef<str>>) -> String {
    let mut names: Vec<String> = names.map(|name| name.as_ref().to_owned()).collect();
    let more = names.len().saturating_sub(MAX_NAMES);
    names.truncate(MAX_NAMES);
    match more {
        _ if names.is_empty() => "none".to_owned(),
        0 => names.join(", "),
        more => format!("{}, and {more} more", names.join(", ")),
    }
}
