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

use foldhash::fast::FixedState;
use hashbrown::HashTable;
use memchr::memmem::Finder;

use super::rule::Rule;
use super::wildcards::WildcardIndex;
use crate::descriptor::{Entry, KeyBuffer};

/// Hasher with a fixed seed. Requests look up and never insert, so clients cannot overfill a
/// bucket.
pub(super) const HASHER: FixedState = FixedState::with_seed(0x7011_6a7e);

/// The rules of one level, as indexes into the rules of the policy.
#[derive(Debug, Default)]
pub(super) struct Level {
    /// Rules by key and value, or by key alone if a rule has no value. Contains wildcards too, by
    /// their own text.
    fixed: HashTable<u32>,
    /// Rules with `*`, in the order in which they are written.
    wildcards: Box<[u32]>,
    /// Index of `wildcards`, if there are many.
    index: Option<Box<WildcardIndex>>,
}

/// A text that a rule compares with, possibly with `*`.
#[derive(Clone, Debug)]
pub(super) struct Pattern {
    text: Box<[u8]>,
    /// The text split at each `*`; `None` if it has none.
    pieces: Option<Pieces>,
}

#[derive(Clone, Debug)]
struct Pieces {
    first: Box<[u8]>,
    middle: Box<[Finder<'static>]>,
    last: Box<[u8]>,
}

/// Compares the texts only.
impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for Pattern {}

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

impl Pattern {
    pub(super) fn new(text: &str) -> Self {
        let mut parts: Vec<&[u8]> = text.split('*').map(str::as_bytes).collect();
        let last = parts.pop().unwrap_or_default().into();
        let pieces = (!parts.is_empty()).then(|| {
            let first = parts.remove(0).into();
            // `**` is equivalent to `*`.
            let middle = parts.into_iter().filter(|part| !part.is_empty());
            Pieces {
                first,
                middle: middle.map(|part| Finder::new(part).into_owned()).collect(),
                last,
            }
        });
        Self { text: text.as_bytes().into(), pieces }
    }

    pub(super) fn text(&self) -> &[u8] {
        &self.text
    }

    pub(super) fn is_wild(&self) -> bool {
        self.pieces.is_some()
    }

    /// Returns `true` if the pattern matches `text`. Each piece is matched at its first occurrence.
    /// This never misses a match, so no text causes backtracking.
    pub(super) fn matches(&self, text: &[u8]) -> bool {
        let Some(pieces) = &self.pieces else { return *self.text == *text };
        let rest =
            text.strip_prefix(&*pieces.first).and_then(|rest| rest.strip_suffix(&*pieces.last));
        let Some(mut rest) = rest else { return false };
        pieces.middle.iter().all(|piece| {
            let found = piece.find(rest);
            let after = found.and_then(|at| rest.get(at.saturating_add(piece.needle().len())..));
            rest = after.unwrap_or_default();
            after.is_some()
        })
    }

    /// Returns the pieces between the first `*` and the last, none of which is empty.
    pub(super) fn middle(&self) -> impl Iterator<Item = &[u8]> {
        self.pieces.iter().flat_map(|pieces| &pieces.middle).map(Finder::needle)
    }

    /// Returns the length of the text before the first `*`.
    pub(super) fn first_length(&self) -> usize {
        self.pieces.as_ref().map_or(self.text.len(), |pieces| pieces.first.len())
    }

    /// Returns `true` if `text` begins and ends as the pattern does; without a `*`, if it is equal.
    pub(super) fn fits_ends(&self, text: &[u8]) -> bool {
        let Some(pieces) = &self.pieces else { return *self.text == *text };
        text.strip_prefix(&*pieces.first).is_some_and(|rest| rest.ends_with(&pieces.last))
    }

    /// Returns `true` if the text after the last `*` fits into `text` from `at` on.
    pub(super) fn ends_behind(&self, text: &[u8], at: usize) -> bool {
        let last = self.pieces.as_ref().map_or(0, |pieces| pieces.last.len());
        text.len().saturating_sub(at) >= last
    }
}

impl Level {
    /// Builds a level of `children`, in the order in which they are written; no two have the same
    /// key and value.
    pub(super) fn new(children: &[u32], rules: &[Rule]) -> Self {
        let mut fixed = HashTable::with_capacity(children.len());
        let rule_of = |index: &u32| at(rules, *index);
        let hash_of =
            |index: &u32| rule_of(index).map_or(0, |rule| hash(rule.key.text(), rule.value_text()));
        for index in children {
            fixed.insert_unique(hash_of(index), *index, hash_of);
        }
        let wildcards: Box<[u32]> = children
            .iter()
            .filter(|index| rule_of(index).is_some_and(Rule::is_wild))
            .copied()
            .collect();
        let index = WildcardIndex::new(&wildcards, rules).map(Box::new);
        Self { fixed, wildcards, index }
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
        let is_it = |index: &u32| {
            at(rules, *index)
                .is_some_and(|rule| rule.key.text() == key && rule.value_text() == value)
        };
        at(rules, *self.fixed.find(hash(key, value), is_it)?)
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
