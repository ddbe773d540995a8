//! Matcher: finds the rule for the entries of a descriptor, without allocation unless a level has
//! many rules with `*`.
//!
//! Each level tries first the rule for this exact key and value, by a hash look-up, however many
//! siblings it has; then the rules with `*` in the order in which they are written; then the rule
//! for the key alone. It does not backtrack across levels, and the whole depth must match. Keys and
//! values are compared as pairs.
//!
//! The key of a counter contains what the path of its rule leaves open: the entry's key if that of
//! the rule has a `*`, and the value if the rule does not fix it, unless the rule shares one
//! counter among all values.

use std::hash::{BuildHasher, Hasher};

use hashbrown::HashTable;
use tollgate_core::descriptor::{Entry, KeyBuffer};

use super::pattern::Pattern;
use super::rule::{Level, Rule};
use super::wildcards::{HASHER, WildcardIndex};

/// The comparison by which a rule was matched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MatchedBy {
    /// Exact key and value.
    Exact,
    /// A rule with `*`.
    Wildcard,
    /// The key alone.
    KeyAlone,
}

impl Level {
    /// Builds a level of `children`, in the order in which they are written; no two have the same
    /// key and value.
    pub(super) fn new(children: &[u32], rules: &[Rule]) -> Self {
        let mut fixed = HashTable::with_capacity(children.len());
        let mut wildcards = Vec::new();
        let mut patterns = Vec::new();
        for index in children {
            let Some(rule) = at(rules, *index) else { continue };
            // With its initial capacity, the table never hashes a rule again.
            fixed.insert_unique(rule.hash(), *index, |index| {
                at(rules, *index).map_or(0, Rule::hash)
            });
            if rule.is_wild() {
                wildcards.push(*index);
                patterns.push((&rule.key, rule.value.as_ref()));
            }
        }
        let index = WildcardIndex::new(&patterns).map(Box::new);
        Self { fixed, wildcards: wildcards.into(), index }
    }

    /// Returns the rules in the order in which they are written.
    pub(super) fn rules<'p>(&self, rules: &'p [Rule]) -> Vec<&'p Rule> {
        let mut all: Vec<&Rule> = self.fixed.iter().filter_map(|index| at(rules, *index)).collect();
        all.sort_unstable_by_key(|rule| rule.id());
        all
    }

    /// Returns the rule for exactly this key and value, or for the key alone.
    pub(super) fn fixed<'p>(
        &self,
        rules: &'p [Rule],
        key: &[u8],
        value: Option<&[u8]>,
    ) -> Option<&'p Rule> {
        let found = self.fixed.find(hash(key, value), |index| {
            at(rules, *index)
                .is_some_and(|rule| rule.key.text() == key && rule.value_text() == value)
        });
        at(rules, *found?)
    }

    /// Returns the rules with `*`, in the order in which they are written.
    pub(super) fn wildcards<'p>(&self, rules: &'p [Rule]) -> impl Iterator<Item = &'p Rule> {
        self.wildcards.iter().filter_map(|index| at(rules, *index))
    }

    /// Returns the number of rules.
    pub(super) fn len(&self) -> usize {
        self.fixed.len()
    }

    /// Returns the indexes of the rules.
    pub(super) fn children(&self) -> impl Iterator<Item = u32> {
        self.fixed.iter().copied()
    }

    pub(super) fn take<'p>(&self, rules: &'p [Rule], entry: &Entry<'_>) -> Option<&'p Rule> {
        self.fixed(rules, entry.key, Some(entry.value))
            .or_else(|| match &self.index {
                None => self.wildcards(rules).find(|rule| rule.matches(entry)),
                Some(index) => at(rules, *self.wildcards.get(index.find(entry)?)?),
            })
            .or_else(|| self.fixed(rules, entry.key, None))
    }
}

impl Rule {
    pub(super) fn value_text(&self) -> Option<&[u8]> {
        self.value.as_ref().map(Pattern::text)
    }

    fn hash(&self) -> u64 {
        hash(self.key.text(), self.value_text())
    }

    /// Returns `true` if the key or the value contains a `*`.
    pub(super) fn is_wild(&self) -> bool {
        self.key.is_wild() || self.value.as_ref().is_some_and(Pattern::is_wild)
    }

    pub(super) fn matches(&self, entry: &Entry<'_>) -> bool {
        self.key.matches(entry.key)
            && self.value.as_ref().is_none_or(|value| value.matches(entry.value))
    }

    /// Adds the parts that the rule's path leaves open to the key of a counter.
    fn push_open_parts(&self, entry: &Entry<'_>, key: &mut KeyBuffer) {
        if self.key.is_wild() {
            key.push(entry.key);
        }
        let fixes_value = self.value.as_ref().is_some_and(|value| !value.is_wild());
        if !fixes_value && !self.modes.share_threshold {
            key.push(entry.value);
        }
    }
}

/// Returns the rule that `entries` match to their full depth. Begins a key and adds the matched
/// values to it.
pub(super) fn find<'p>(
    top: &'p Level,
    rules: &'p [Rule],
    entries: &[Entry<'_>],
    key: &mut KeyBuffer,
) -> Option<&'p Rule> {
    key.begin();
    let mut level = top;
    let mut hit = None;
    for entry in entries {
        let rule = level.take(rules, entry)?;
        rule.push_open_parts(entry, key);
        level = &rule.children;
        hit = Some(rule);
    }
    hit
}

pub(super) fn at(rules: &[Rule], index: u32) -> Option<&Rule> {
    rules.get(usize::try_from(index).ok()?)
}

fn hash(key: &[u8], value: Option<&[u8]>) -> u64 {
    let mut hasher = HASHER.build_hasher();
    hasher.write(key);
    // The length delimits the key. Collisions are harmless: the caller compares the texts.
    hasher.write_usize(key.len());
    if let Some(value) = value {
        hasher.write(value);
    }
    hasher.finish()
}
