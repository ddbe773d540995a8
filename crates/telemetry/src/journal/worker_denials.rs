//! The denials of one worker, in slices of time with a memory bound each.

use std::collections::VecDeque;
use std::hash::{BuildHasher as _, Hasher as _};
use std::sync::Arc;

use foldhash::quality::RandomState;
use hashbrown::HashTable;
use tollgate_core::algorithm::time::{Micros, Timestamp};
use tollgate_core::descriptor::Entry;

use super::key;
use super::record::{DenialEvent, DenialRecord, MAX_RECORDED};
use super::summary::{CountEffect, FreeMemory, Summary, entry_bytes};

/// Length of a slice.
pub(super) const SLICE: Micros = Micros::from_secs(60);
/// Number of slices kept: 15 minutes, and the current one.
pub(super) const SLICES: u64 = 16;
/// Memory of a rule in bytes, keys excluded.
const RULE_BYTES: usize = size_of::<RuleDenials>() * 2 + 64;
/// Maximum memory of the recorded values of a key in bytes, at up to 128 bytes per value.
const RECORDED_BYTES: usize = MAX_RECORDED * (128 + 96);

/// The denials of one worker.
#[derive(Debug)]
pub(super) struct WorkerDenials {
    slices: VecDeque<Arc<Slice>>,
    /// Maximum memory of one slice in bytes.
    slice_bytes: usize,
    hasher: RandomState,
    /// Text of the current key.
    text: String,
    /// Current policy version, and a copy of it for this table: each key holds a handle, whose
    /// reference count no other worker should write to.
    version: Option<(Arc<str>, Arc<str>)>,
    pub(super) lost: DenialLosses,
}

/// The losses due to the memory bound so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DenialLosses {
    /// Denials dropped for lack of memory.
    pub dropped: u64,
    /// Keys evicted for other keys.
    pub replaced: u64,
}

/// The denials of one minute.
#[derive(Clone, Debug)]
pub(super) struct Slice {
    pub(super) number: u64,
    rules: HashTable<RuleDenials>,
    bytes: usize,
    /// Denials dropped for lack of memory.
    pub(super) dropped: u64,
}

/// The denials of one rule.
#[derive(Clone, Debug)]
pub(super) struct RuleDenials {
    hash: u64,
    pub(super) domain: Box<str>,
    pub(super) rule: Box<str>,
    bytes: usize,
    pub(super) keys: Summary<DenialRecord>,
}

impl WorkerDenials {
    pub(super) fn new(max_bytes: usize) -> Self {
        let slices = usize::try_from(SLICES).unwrap_or(usize::MAX);
        Self {
            slices: VecDeque::new(),
            slice_bytes: max_bytes.checked_div(slices).unwrap_or_default(),
            hasher: RandomState::default(),
            text: String::new(),
            version: None,
            lost: DenialLosses::default(),
        }
    }

    /// Records a denial of the key of `entries`.
    pub(super) fn note(&mut self, denial: &DenialEvent<'_>, entries: &[Entry<'_>], now: Timestamp) {
        self.turn(now);
        key::write_text(entries, &mut self.text);
        let key_hash = self.hasher.hash_one(self.text.as_str());
        let rule_hash = self.rule_hash(denial.domain, denial.rule);
        let version = own_version(&mut self.version, denial.version);
        let denial = &DenialEvent { version, ..*denial };
        let Some(slice) = self.slices.back_mut().and_then(Arc::get_mut) else { return };
        match slice.note(denial, rule_hash, (&self.text, key_hash), now, self.slice_bytes) {
            Some(CountEffect::Known | CountEffect::Added) => {}
            Some(CountEffect::Replaced { .. }) => self.lost.replaced += 1,
            None => {
                slice.dropped += 1;
                self.lost.dropped += 1;
            }
        }
    }

    /// Returns the slices so far, with a copy of the current one.
    pub(super) fn slices(&self) -> Vec<Arc<Slice>> {
        let last = self.slices.len().saturating_sub(1);
        let closed = self.slices.iter().take(last).cloned();
        closed.chain(self.slices.back().map(|slice| Arc::new(Slice::clone(slice)))).collect()
    }

    /// Removes expired slices and returns them, to be deallocated without holding the lock.
    pub(super) fn expired(&mut self, now: Timestamp) -> Vec<Arc<Slice>> {
        let oldest = now.index(SLICE).saturating_sub(SLICES - 1);
        let count = self.slices.iter().take_while(|slice| slice.number < oldest).count();
        self.slices.drain(..count).collect()
    }

    pub(super) fn bytes(&self) -> usize {
        self.slices.iter().map(|slice| slice.bytes).sum()
    }

    /// Starts a new slice if it is due. If the clock steps back, the latest slice stays current.
    fn turn(&mut self, now: Timestamp) {
        let number = now.index(SLICE);
        if self.slices.back().is_none_or(|slice| slice.number < number) {
            drop(self.expired(now));
            self.slices.push_back(Arc::new(Slice {
                number,
                rules: HashTable::new(),
                bytes: 0,
                dropped: 0,
            }));
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

/// Returns the table's copy of a version, copying it if it has changed.
fn own_version<'a>(
    known: &'a mut Option<(Arc<str>, Arc<str>)>,
    version: &Arc<str>,
) -> &'a Arc<str> {
    if known.as_ref().is_none_or(|(of, _)| !Arc::ptr_eq(of, version)) {
        *known = None;
    }
    &known.get_or_insert_with(|| (Arc::clone(version), Arc::from(&**version))).1
}

impl RuleDenials {
    /// Creates the part of a rule in a received message.
    pub(super) fn from_peer(domain: Box<str>, rule: Box<str>, keys: Summary<DenialRecord>) -> Self {
        Self { hash: 0, domain, rule, bytes: 0, keys }
    }
}

impl Slice {
    /// Creates a slice from a received message, for reading only.
    pub(super) fn from_peer(
        number: u64,
        of_rules: impl Iterator<Item = RuleDenials>,
        dropped: u64,
    ) -> Self {
        let mut rules = HashTable::new();
        for (hash, of_rule) in (0..).zip(of_rules) {
            rules.insert_unique(hash, RuleDenials { hash, ..of_rule }, |rule| rule.hash);
        }
        Self { number, rules, bytes: 0, dropped }
    }

    pub(super) fn rules(&self) -> impl Iterator<Item = &RuleDenials> {
        self.rules.iter()
    }

    /// A rule may use as much memory as is left free for others: a single rule half of it, two
    /// rules a third each. A flood of keys at one rule thus leaves memory for the next one.
    fn note(
        &mut self,
        denial: &DenialEvent<'_>,
        rule_hash: u64,
        (key, key_hash): (&str, u64),
        now: Timestamp,
        max_bytes: usize,
    ) -> Option<CountEffect> {
        let recorded = if denial.recorded.is_empty() { 0 } else { RECORDED_BYTES };
        let need = entry_bytes::<DenialRecord>() + key.len() + recorded;
        let free = max_bytes.saturating_sub(self.bytes);
        let of_rule = self.rule(denial, rule_hash, free.checked_sub(need))?;
        let room = if of_rule.bytes + need <= free {
            FreeMemory::More
        } else if key.len() <= free {
            // The new text may be longer than the one that it replaces.
            FreeMemory::Same
        } else {
            FreeMemory::None
        };
        let (noted, record) =
            of_rule.keys.note(key, key_hash, room, || DenialRecord::begin(denial, now))?;
        record.add(denial, now);
        let (added, gone) = match noted {
            CountEffect::Known => (0, 0),
            CountEffect::Added => (need, 0),
            CountEffect::Replaced { text } => (key.len(), text),
        };
        of_rule.bytes = of_rule.bytes + added - gone;
        self.bytes = self.bytes + added - gone;
        Some(noted)
    }

    /// Returns the part of a rule, adding it if there is memory for it.
    fn rule(
        &mut self,
        denial: &DenialEvent<'_>,
        hash: u64,
        free: Option<usize>,
    ) -> Option<&mut RuleDenials> {
        let is_it =
            |found: &RuleDenials| *found.rule == *denial.rule && *found.domain == *denial.domain;
        if self.rules.find(hash, is_it).is_none() {
            let bytes = RULE_BYTES + denial.domain.len() + denial.rule.len();
            free.filter(|free| bytes <= *free)?;
            let domain = denial.domain.into();
            let rule = denial.rule.into();
            let fresh = RuleDenials { hash, domain, rule, bytes, keys: Summary::default() };
            self.rules.insert_unique(hash, fresh, |rule| rule.hash);
            self.bytes += bytes;
        }
        self.rules.find_mut(hash, is_it)
    }
}
