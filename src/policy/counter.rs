//! Which counter a descriptor leads to, for people who ask for it by name.

use std::fmt;

use super::{Imposes, PolicySet, Rule};
use crate::descriptor::{CounterKey, Entry, KeyBuffer};

/// There is no counter to speak of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoCounter {
    /// Of this domain nothing is known.
    Domain(String),
    /// The descriptor hits no rule.
    Rule,
    /// The rule with this path has no limit.
    Limit(String),
}

impl fmt::Display for NoCounter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Domain(domain) => write!(f, "no policy for domain `{domain}`"),
            Self::Rule => f.write_str("no rule for this descriptor; see `tollgate explain`"),
            Self::Limit(rule) => write!(f, "rule `{rule}` has no limit"),
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
        let policy = self.find(domain).ok_or_else(|| NoCounter::Domain(domain.to_owned()))?;
        let rule = policy.find(entries, keys).ok_or(NoCounter::Rule)?;
        match rule.imposes() {
            Imposes::Limit(_) => {
                let range = policy.finish(rule, keys, None);
                Ok((rule, keys.key(domain, &range).in_one_slot(policy.in_one_slot())))
            }
            Imposes::Nothing | Imposes::Unlimited => Err(NoCounter::Limit(rule.path().to_owned())),
        }
    }
}
