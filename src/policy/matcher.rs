//! From the entries of a descriptor to the rule that they hit, without allocation but for many rules with `*` side by side.
//!
//! At each level first the rule for exactly this key and value, by a hash look-up, however many siblings it has; then the
//! rules with `*` in the order in which they are written; then the rule for the key alone. No backtracking across levels,
//! and the whole depth must match. Keys and values are compared as pairs.
//!
//! A counter's key holds what the path of its rule leaves open: the entry's key where the rule's has a `*`, the value where
//! the rule fixes none, unless the rule says that all values share one counter.

use std::hash::{BuildHasher, Hasher};

use foldhash::fast::FixedState;
use hashbrown::HashTable;
use memchr::memmem::Finder;

use super::rule::Rule;
use super::wildcards::WildcardIndex;
use crate::descriptor::{Entry, KeyBuffer};

/// Requests look up and never insert, so nobody can crowd a bucket, and a fixed seed does.
pub(super) const HASHER: FixedState = FixedState::with_seed(0x7011_6a7e);

/// The rules that stand side by side, as numbers in the policy's list.
#[derive(Debug, Default)]
pub(super) struct Level {
    /// By key and value, or by key alone where a rule has no value. Wildcards are here too: by their own text.
    fixed: HashTable<u32>,
    /// In the order in which they are written.
    wildcards: Box<[u32]>,
    /// The same for look-ups, when they are many.
    index: Option<Box<WildcardIndex>>,
}

/// A text that a rule compares with, perhaps with `*` in it.
#[derive(Clone, Debug)]
pub(super) struct Pattern {
    text: Box<[u8]>,
    /// What stands between the `*`; `None` where there is none.
    pieces: Option<Pieces>,
}

#[derive(Clone, Debug)]
struct Pieces {
    first: Box<[u8]>,
    middle: Box<[Finder<'static>]>,
    last: Box<[u8]>,
}

/// Two patterns are equal when their texts are.
impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for Pattern {}

/// Which of the three comparisons at a level took a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// Exactly this key and value.
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
            // `**` is `*`.
            let middle = parts.into_iter().filter(|part| !part.is_empty());
            Pieces { first, middle: middle.map(|part| Finder::new(part).into_owned()).collect(), last }
        });
        Self { text: text.as_bytes().into(), pieces }
    }

    pub(super) fn text(&self) -> &[u8] {
        &self.text
    }

    pub(super) fn is_wild(&self) -> bool {
        self.pieces.is_some()
    }

    /// Whether the pattern stands for `text`. Each piece is taken where it comes first, which never misses a way to match,
    /// so that no text makes this go back and forth.
    pub(super) fn matches(&self, text: &[u8]) -> bool {
        let Some(pieces) = &self.pieces else { return *self.text == *text };
        let rest = text.strip_prefix(&*pieces.first).and_then(|rest| rest.strip_suffix(&*pieces.last));
        let Some(mut rest) = rest else { return false };
        pieces.middle.iter().all(|piece| {
            let found = piece.find(rest);
            let after = found.and_then(|at| rest.get(at.saturating_add(piece.needle().len())..));
            rest = after.unwrap_or_default();
            after.is_some()
        })
    }

    /// The pieces between the first `*` and the last, none of which is empty.
    pub(super) fn middle(&self) -> impl Iterator<Item = &[u8]> {
        self.pieces.iter().flat_map(|pieces| &pieces.middle).map(Finder::needle)
    }

    /// The length of what stands before the first `*`.
    pub(super) fn first_length(&self) -> usize {
        self.pieces.as_ref().map_or(self.text.len(), |pieces| pieces.first.len())
    }

    /// Returns if `text` begins and ends as the pattern does; without a `*`, if it is equal.
    pub(super) fn fits_ends(&self, text: &[u8]) -> bool {
        let Some(pieces) = &self.pieces else { return *self.text == *text };
        text.strip_prefix(&*pieces.first).is_some_and(|rest| rest.ends_with(&pieces.last))
    }

    /// Returns if what stands behind the last `*` fits into `text` from `at` on.
    pub(super) fn ends_behind(&self, text: &[u8], at: usize) -> bool {
        let last = self.pieces.as_ref().map_or(0, |pieces| pieces.last.len());
        text.len().saturating_sub(at) >= last
    }
}

impl Level {
    /// `children`: the rules of this level, in the order in which they are written; no two of the same key and value.
    pub(super) fn new(children: &[u32], rules: &[Rule]) -> Self {
        let mut fixed = HashTable::with_capacity(children.len());
        let rule_of = |index: &u32| at(rules, *index);
        let hash_of = |index: &u32| rule_of(index).map_or(0, |rule| hash(rule.key.text(), rule.value_text()));
        for index in children {
            fixed.insert_unique(hash_of(index), *index, hash_of);
        }
        let wildcards: Box<[u32]> =
            children.iter().filter(|index| rule_of(index).is_some_and(Rule::is_wild)).copied().collect();
        let index = WildcardIndex::new(&wildcards, rules).map(Box::new);
        Self { fixed, wildcards, index }
    }

    /// Its rules, in the order in which they are written.
    pub(super) fn rules<'p>(&self, rules: &'p [Rule]) -> Vec<&'p Rule> {
        let mut all: Vec<&Rule> = self.fixed.iter().filter_map(|index| at(rules, *index)).collect();
        all.sort_unstable_by_key(|rule| rule.id());
        all
    }

    /// The rule for exactly this key and value, or for the key alone.
    pub(super) fn fixed<'p>(&self, rules: &'p [Rule], key: &[u8], value: Option<&[u8]>) -> Option<&'p Rule> {
        let is_it =
            |index: &u32| at(rules, *index).is_some_and(|rule| rule.key.text() == key && rule.value_text() == value);
        at(rules, *self.fixed.find(hash(key, value), is_it)?)
    }

    /// The rules with `*`, in the order in which they are written.
    pub(super) fn wildcards<'p>(&self, rules: &'p [Rule]) -> impl Iterator<Item = &'p Rule> {
        self.wildcards.iter().filter_map(|index| at(rules, *index))
    }

    /// How many rules stand here.
    pub(super) fn len(&self) -> usize {
        self.fixed.len()
    }

    /// The numbers of the rules that stand here.
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

    /// Whether there is a `*` in key or value.
    pub(super) fn is_wild(&self) -> bool {
        self.key.is_wild() || self.value.as_ref().is_some_and(Pattern::is_wild)
    }

    pub(super) fn matches(&self, entry: &Entry<'_>) -> bool {
        self.key.matches(entry.key) && self.value.as_ref().is_none_or(|value| value.matches(entry.value))
    }

    /// Adds to a counter's key what the rule's path leaves open.
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

/// The rule that `entries` hit to their full depth. Begins a key and adds the matched values to it.
pub(super) fn find<'p>(
    top: &'p Level,
    rules: &'p [Rule],
    entries: &[Entry<'_>],
    key: &mut KeyBuffer,
) -> Option<&'p Rule> {
    key.begin();
    let (mut level, mut hit) = (top, None);
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
    // The length tells apart what would otherwise read the same; what is equal in spite of it is compared.
    hasher.write_usize(key.len());
    if let Some(value) = value {
        hasher.write(value);
    }
    hasher.finish()
}
