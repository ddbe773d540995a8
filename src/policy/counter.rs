//! Which counter a descriptor leads to, for people who ask for it by name.

use std::fmt;

use super::{Imposes, Policy, PolicySet, Rule};
use crate::descriptor::{CounterKey, Entry, KeyBuffer};

/// Names that a text lists.
const MAX_NAMES: usize = 12;

/// There is no counter to speak of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoCounter {
    /// Of this domain nothing is known.
    Domain {
        /// This one.
        domain: String,
        /// Those of which something is.
        known: String,
    },
    /// The descriptor hits no rule.
    Rule {
        /// The entry that nothing stands for, after what above it.
        at: String,
        /// The rules that stand at that place.
        known: String,
    },
    /// There is no rule with this path.
    Path {
        /// This one.
        path: String,
        /// Those that have a limit.
        known: String,
    },
    /// The rule with this path has no limit.
    Limit {
        /// This one.
        path: String,
        /// The rules below it.
        known: String,
    },
}

impl fmt::Display for NoCounter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Domain { domain, known } => write!(f, "no policy for domain `{domain}`; domains here: {known}"),
            Self::Rule { at, known } => {
                write!(f, "no rule for this descriptor, nothing stands for {at}; rules there: {known}")
            }
            Self::Path { path, known } => write!(f, "no rule `{path}`; rules with a limit here: {known}"),
            Self::Limit { path, known } => write!(f, "rule `{path}` has no limit; rules below it: {known}"),
        }
    }
}

impl PolicySet {
    /// The rule that a descriptor hits, and the key of its counter.
    ///
    /// # Errors
    /// Why there is none.
    pub fn counter<'a>(
        &'a self,
        domain: &'a str,
        entries: &[Entry<'_>],
        keys: &'a mut KeyBuffer,
    ) -> Result<(&'a Rule, CounterKey<'a>), NoCounter> {
        let policy = self.find(domain).ok_or_else(|| self.no_domain(domain))?;
        let rule = policy.find(entries, keys).ok_or_else(|| policy.no_rule(entries))?;
        match rule.imposes() {
            Imposes::Limit(_) => {
                let range = policy.finish(rule, keys, None);
                Ok((rule, keys.key(domain, &range).in_one_slot(policy.in_one_slot())))
            }
            Imposes::Nothing | Imposes::Unlimited => {
                let known = some_of(rule.children.rules(&policy.rules).into_iter().map(Rule::step));
                Err(NoCounter::Limit { path: rule.path().to_owned(), known })
            }
        }
    }

    /// Why nothing can be of a domain, of a rule's path, or of both: there is none by that name. `None`: there are.
    pub fn unknown(&self, domain: Option<&str>, path: Option<&str>) -> Option<NoCounter> {
        if let Some(domain) = domain.filter(|domain| self.find(domain).is_none()) {
            return Some(self.no_domain(domain));
        }
        let path = path?;
        let here = self.rules().filter(|rule| domain.is_none_or(|domain| rule.domain() == domain));
        let is_there = here.clone().any(|rule| path.strip_prefix(rule.path()).is_some_and(is_of_the_rule));
        let limits = here.filter(|rule| matches!(rule.imposes(), Imposes::Limit(_)));
        (!is_there).then(|| NoCounter::Path { path: path.to_owned(), known: some_of(limits.map(Rule::path)) })
    }

    fn no_domain(&self, domain: &str) -> NoCounter {
        NoCounter::Domain { domain: domain.to_owned(), known: some_of(self.policies().map(Policy::domain)) }
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
            None => "no entries".to_owned(),
        };
        let below = above.map(|rule| format!(" below `{}`", rule.path())).unwrap_or_default();
        let level = above.map_or(&self.top, |rule| &rule.children);
        let known = some_of(level.rules(&self.rules).into_iter().map(Rule::step));
        NoCounter::Rule { at: format!("{at}{below}"), known }
    }
}

/// What a path has after that of its rule: nothing, or which limit of it, such as ` (candidate)`.
fn is_of_the_rule(rest: &str) -> bool {
    rest.is_empty() || rest.starts_with(" (")
}

/// The first of many names.
fn some_of(names: impl Iterator<Item = impl AsRef<str>>) -> String {
    let mut names: Vec<String> = names.map(|name| name.as_ref().to_owned()).collect();
    let more = names.len().saturating_sub(MAX_NAMES);
    names.truncate(MAX_NAMES);
    match (names.is_empty(), more) {
        (true, _) => "none".to_owned(),
        (false, 0) => names.join(", "),
        (false, more) => format!("{}, and {more} more", names.join(", ")),
    }
}
