//! What one worker has denied: a slice of time after the other, each with its own room.

use std::collections::VecDeque;
use std::hash::{BuildHasher as _, Hasher as _};
use std::sync::Arc;

use foldhash::quality::RandomState;
use hashbrown::HashTable;

use super::key;
use super::record::{Denial, MAX_RECORDED, Record};
use super::summary::{Noted, Room, Summary, slot_bytes};
use crate::algorithm::time::{Micros, Timestamp};
use crate::descriptor::Entry;

/// Length of a slice.
pub(super) const SLICE: Micros = Micros::from_secs(60);
/// Slices that are kept: 15 minutes, and the one that is being written.
pub(super) const SLICES: u64 = 16;
/// What a rule takes besides its keys.
const RULE_BYTES: usize = size_of::<OfRule>().saturating_mul(2).saturating_add(64);
/// What a recorded value takes at most, besides 128 bytes of the value itself.
const RECORDED_BYTES: usize = MAX_RECORDED.saturating_mul(128 + 96);

/// What one worker has denied.
#[derive(Debug)]
pub(super) struct Page {
    slices: VecDeque<Arc<Slice>>,
    /// Bytes that one slice may take.
    slice_bytes: usize,
    hasher: RandomState,
    /// The text of the key at hand.
    text: String,
    /// The version of the policies at hand, and a copy of it for this page: each key has a handle, whose count no other worker
    /// shall write to.
    version: Option<(Arc<str>, Arc<str>)>,
    pub(super) lost: Lost,
}

/// What the bound of the room has cost so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lost {
    /// Denials for which there was no room.
    pub dropped: u64,
    /// Keys that went for others.
    pub replaced: u64,
}

/// The denials of a minute.
#[derive(Clone, Debug)]
pub(super) struct Slice {
    pub(super) number: u64,
    rules: HashTable<OfRule>,
    bytes: usize,
    /// Denials for which there was no room.
    pub(super) dropped: u64,
}

/// Those of one rule.
#[derive(Clone, Debug)]
pub(super) struct OfRule {
    hash: u64,
    pub(super) domain: Box<str>,
    pub(super) rule: Box<str>,
    bytes: usize,
    pub(super) keys: Summary<Record>,
}

impl Page {
    pub(super) fn new(max_bytes: usize) -> Self {
        let slices = usize::try_from(SLICES).unwrap_or(usize::MAX);
        Self {
            slices: VecDeque::new(),
            slice_bytes: max_bytes.checked_div(slices).unwrap_or_default(),
            hasher: RandomState::default(),
            text: String::new(),
            version: None,
            lost: Lost::default(),
        }
    }

    /// Notes a denial of the key that `entries` are.
    pub(super) fn note(&mut self, denial: &Denial<'_>, entries: &[Entry<'_>], now: Timestamp) {
        self.turn(now);
        key::write_text(entries, &mut self.text);
        let key_hash = self.hasher.hash_one(self.text.as_str());
        let rule_hash = self.rule_hash(denial.domain, denial.rule);
        let version = own_version(&mut self.version, denial.version);
        let denial = &Denial { version, ..*denial };
        let Some(slice) = self.slices.back_mut().and_then(Arc::get_mut) else { return };
        match slice.note(denial, rule_hash, (&self.text, key_hash), now, self.slice_bytes) {
            Some(Noted::Known | Noted::Added) => {}
            Some(Noted::Replaced { .. }) => self.lost.replaced = self.lost.replaced.saturating_add(1),
            None => {
                slice.dropped = slice.dropped.saturating_add(1);
                self.lost.dropped = self.lost.dropped.saturating_add(1);
            }
        }
    }

    /// The slices so far; of the one that is being written a copy.
    pub(super) fn slices(&self) -> Vec<Arc<Slice>> {
        let last = self.slices.len().saturating_sub(1);
        let closed = self.slices.iter().take(last).cloned();
        closed.chain(self.slices.back().map(|slice| Arc::new(Slice::clone(slice)))).collect()
    }

    /// Takes out what is too old, to be dropped where nobody waits for it.
    pub(super) fn expired(&mut self, now: Timestamp) -> Vec<Arc<Slice>> {
        let oldest = now.index(SLICE).saturating_sub(SLICES.saturating_sub(1));
        let count = self.slices.iter().take_while(|slice| slice.number < oldest).count();
        self.slices.drain(..count).collect()
    }

    pub(super) fn bytes(&self) -> usize {
        self.slices.iter().map(|slice| slice.bytes).fold(0, usize::saturating_add)
    }

    /// Begins a slice where its time has come. A clock that steps back writes on in the latest.
    fn turn(&mut self, now: Timestamp) {
        let number = now.index(SLICE);
        if self.slices.back().is_none_or(|slice| slice.number < number) {
            drop(self.expired(now));
            self.slices.push_back(Arc::new(Slice { number, rules: HashTable::new(), bytes: 0, dropped: 0 }));
        }
    }

    fn rule_hash(&self, domain: &str, rule: &str) -> u64 {
        let mut hasher = self.hasher.build_hasher();
        [domain, rule].iter().for_each(|part| {
            hasher.write(part.as_bytes());
            hasher.write_u8(0xff);
        });
        hasher.finish()
    }
}

/// The copy of a version, made where it is another one than the last.
fn own_version<'a>(known: &'a mut Option<(Arc<str>, Arc<str>)>, version: &Arc<str>) -> &'a Arc<str> {
    if known.as_ref().is_none_or(|(of, _)| !Arc::ptr_eq(of, version)) {
        *known = None;
    }
    &known.get_or_insert_with(|| (Arc::clone(version), Arc::from(&**version))).1
}

impl OfRule {
    /// What was told of a rule.
    pub(super) fn told(domain: Box<str>, rule: Box<str>, keys: Summary<Record>) -> Self {
        Self { hash: 0, domain, rule, bytes: 0, keys }
    }
}

impl Slice {
    /// What was told of a minute, to be read.
    pub(super) fn told(number: u64, of_rules: impl Iterator<Item = OfRule>, dropped: u64) -> Self {
        let mut rules = HashTable::new();
        for (hash, of_rule) in (0..).zip(of_rules) {
            rules.insert_unique(hash, OfRule { hash, ..of_rule }, |rule| rule.hash);
        }
        Self { number, rules, bytes: 0, dropped }
    }

    pub(super) fn rules(&self) -> impl Iterator<Item = &OfRule> {
        self.rules.iter()
    }

    /// A rule may take as much as is left free for others: one alone half of the room, two a third each. So a flood of keys at
    /// one rule leaves room for those of the next.
    fn note(
        &mut self,
        denial: &Denial<'_>,
        rule_hash: u64,
        (key, key_hash): (&str, u64),
        now: Timestamp,
        max_bytes: usize,
    ) -> Option<Noted> {
        let need = slot_bytes::<Record>().saturating_add(key.len()).saturating_add(if denial.recorded.is_empty() {
            0
        } else {
            RECORDED_BYTES
        });
        let free = max_bytes.saturating_sub(self.bytes);
        let of_rule = self.rule(denial, rule_hash, free.checked_sub(need))?;
        let room = match of_rule.bytes.saturating_add(need) <= free {
            true => Room::More,
            // A longer text may come in the place of a shorter one.
            false if key.len() <= free => Room::Same,
            false => Room::None,
        };
        let (noted, record) = of_rule.keys.note(key, key_hash, room, || Record::begin(denial, now))?;
        record.add(denial, now);
        let (added, gone) = match noted {
            Noted::Known => (0, 0),
            Noted::Added => (need, 0),
            Noted::Replaced { text } => (key.len(), text),
        };
        of_rule.bytes = of_rule.bytes.saturating_add(added).saturating_sub(gone);
        self.bytes = self.bytes.saturating_add(added).saturating_sub(gone);
        Some(noted)
    }

    /// The rule's part, where it is here or there is room for it.
    fn rule(&mut self, denial: &Denial<'_>, hash: u64, free: Option<usize>) -> Option<&mut OfRule> {
        let is_it = |found: &OfRule| *found.rule == *denial.rule && *found.domain == *denial.domain;
        if self.rules.find(hash, is_it).is_none() {
            let bytes = RULE_BYTES.saturating_add(denial.domain.len()).saturating_add(denial.rule.len());
            free.filter(|free| bytes <= *free)?;
            let (domain, rule) = (denial.domain.into(), denial.rule.into());
            let fresh = OfRule { hash, domain, rule, bytes, keys: Summary::default() };
            self.rules.insert_unique(hash, fresh, |rule| rule.hash);
            self.bytes = self.bytes.saturating_add(bytes);
        }
        self.rules.find_mut(hash, is_it)
    }
}
