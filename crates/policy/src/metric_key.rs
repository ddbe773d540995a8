//! Names of rules in statistics, as in envoyproxy/ratelimit: the domain, then the key and value of
//! each level of the path, joined by `_`, with dots between levels. With `detailed_metric` or
//! `value_to_metric` they contain values of the request.
//!
//! Nothing is escaped, so two rules may have the same name: their hits are added up.

use tollgate_core::algorithm::judge::Few;
use tollgate_core::descriptor::Entry;

use super::matcher::at;
use super::rule::Rule;
use super::{Policy, PolicySet, shown};

/// The name of a rule in statistics.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MetricKey {
    /// The name from the rule's path as written.
    pub text: String,
    /// Set if the name depends on the request: [`Policy::write_metric_key`].
    pub is_by_request: bool,
}

impl PolicySet {
    /// Returns the names of all rules, in the order of their IDs.
    pub fn metric_keys(&self) -> Vec<MetricKey> {
        self.policies().flat_map(Policy::metric_keys).collect()
    }
}

impl Policy {
    /// Returns the names of the rules, in their order.
    fn metric_keys(&self) -> Vec<MetricKey> {
        let mut keys = vec![MetricKey::default(); self.rules.len()];
        let top = MetricKey { text: self.domain.to_string(), is_by_request: false };
        let mut open = vec![(&self.top, top)];
        while let Some((level, above)) = open.pop() {
            for index in level.children() {
                let Some(rule) = at(&self.rules, index) else { continue };
                let mut key = MetricKey {
                    text: above.text.clone(),
                    is_by_request: above.is_by_request || rule.is_named_by_value(),
                };
                rule.write_path(&mut |text| key.text.push_str(&String::from_utf8_lossy(text)));
                open.push((&rule.children, key.clone()));
                // `detailed_metric` applies to the matched rule only, not to those below it.
                key.is_by_request |= rule.detailed_metric();
                let place = usize::try_from(index).ok().and_then(|index| keys.get_mut(index));
                place.into_iter().for_each(|place| *place = std::mem::take(&mut key));
            }
        }
        keys
    }

    /// Writes the name of the rule that `entries` match, with values of the request; nothing if no
    /// rule matches.
    pub fn write_metric_key(&self, entries: &[Entry<'_>], write: &mut impl FnMut(&[u8])) {
        let mut level = &self.top;
        let mut path = Few::<&Rule>::new();
        for entry in entries {
            let Some(rule) = level.take(&self.rules, entry) else { return };
            path.push(rule);
            level = &rule.children;
        }
        let is_detailed = path.last().is_some_and(|rule| rule.detailed_metric());
        let keyed = path.last().and_then(|rule| self.keyed_for(rule));
        let shares = path.iter().any(|rule| rule.is_shared());
        write(self.domain.as_bytes());
        for (entry, rule) in entries.iter().zip(path) {
            if rule.is_shared() || !(is_detailed || rule.is_named_by_value()) {
                rule.write_path(write);
            } else {
                // An empty value keeps its `_` only if all values are those of the request.
                let value = &shown(keyed, entry.value);
                let entry = &Entry { key: entry.key, value };
                if is_detailed && !shares {
                    write_whole(entry, write);
                } else {
                    write_entry(entry, write);
                }
            }
        }
    }

    /// Writes the name of a limit that a request brings along, which is independent of all rules.
    pub fn write_override_key(&self, entries: &[Entry<'_>], write: &mut impl FnMut(&[u8])) {
        write(self.domain.as_bytes());
        for entry in entries {
            let value = &shown(self.keyed_for_overrides(), entry.value);
            write_entry(&Entry { key: entry.key, value }, write);
        }
    }
}

/// Writes a key and its value, or the key alone if the value is empty.
fn write_entry(entry: &Entry<'_>, write: &mut impl FnMut(&[u8])) {
    if entry.value.is_empty() {
        write(b".");
        write(entry.key);
    } else {
        write_whole(entry, write);
    }
}

/// Writes a key and its value, which may be empty.
fn write_whole(entry: &Entry<'_>, write: &mut impl FnMut(&[u8])) {
    write(b".");
    write(entry.key);
    write(b"_");
    write(entry.value);
}

impl Rule {
    /// Returns `true` if all values that the rule matches share a counter, and a name.
    fn is_shared(&self) -> bool {
        self.modes.share_threshold && self.is_wild()
    }

    /// Returns `true` if this level contributes the value of the request to the name.
    fn is_named_by_value(&self) -> bool {
        let is_open = self.is_wild() || self.value_text().is_none();
        self.modes.value_to_metric && is_open && !self.is_shared()
    }

    /// Writes this level as it is in the policy.
    fn write_path(&self, write: &mut impl FnMut(&[u8])) {
        let key = self.key.text();
        let value = self.value_text().unwrap_or_default();
        write_entry(&Entry { key, value }, write);
    }
}
