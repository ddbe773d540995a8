//! What the journal knows of the denials of one key: a value that several of its kind can be put together to.

use std::sync::Arc;

use crate::algorithm::time::{Micros, Timestamp};

/// Values of `record` that are kept of a key: those seen last.
pub(super) const MAX_RECORDED: usize = 4;

/// Why a descriptor counts as denied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// The limit had no room.
    NoRoom,
    /// The limit had no room, and the request passed all the same: the rule or the process only watches, or others outvoted it.
    Passed,
    /// The store could not say, and the limit denies then.
    Presumed,
}

/// A denial, as it happens. Everything is borrowed: nearly all are of keys that are known.
#[derive(Clone, Copy, Debug)]
pub struct Denial<'a> {
    /// The domain of the request.
    pub domain: &'a str,
    /// The rule's path.
    pub rule: &'a str,
    /// The version of the policies.
    pub version: &'a Arc<str>,
    /// Why.
    pub why: Why,
    /// Hits that were wanted; 0 of a peek.
    pub hits: u64,
    /// The time until they would be admitted; `None`: never, or not known.
    pub retry_after: Option<Micros>,
    /// Entries of the request that the rule records, as `key=value`.
    pub recorded: &'a [Vec<u8>],
}

/// The denials of one key in a span of time. All sums are of what is known for certain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The first and the last of them.
    pub first: Timestamp,
    /// See `first`.
    pub last: Timestamp,
    /// Denials.
    pub count: u64,
    /// Those of them whose requests passed all the same.
    pub passed: u64,
    /// Those of them that were made because the store could not say.
    pub presumed: u64,
    /// Hits that were wanted, all together.
    pub hits: u64,
    /// Those of the last.
    pub last_hits: u64,
    /// When the hits of the last would be admitted; `None`: never, or not known.
    pub retry_at: Option<Timestamp>,
    /// The version of the policies at the last.
    pub version: Arc<str>,
    /// What the rule records of the requests: those seen last.
    pub recorded: Vec<Box<str>>,
}

impl Record {
    /// No denial yet.
    pub(super) fn begin(denial: &Denial<'_>, now: Timestamp) -> Self {
        Self {
            first: now,
            last: now,
            count: 0,
            passed: 0,
            presumed: 0,
            hits: 0,
            last_hits: 0,
            retry_at: None,
            version: Arc::clone(denial.version),
            recorded: Vec::new(),
        }
    }

    /// One more.
    pub(super) fn add(&mut self, denial: &Denial<'_>, now: Timestamp) {
        let one_if = |is_it| u64::from(is_it);
        self.last = self.last.max(now);
        self.count = self.count.saturating_add(1);
        self.passed = self.passed.saturating_add(one_if(denial.why == Why::Passed));
        self.presumed = self.presumed.saturating_add(one_if(denial.why == Why::Presumed));
        self.hits = self.hits.saturating_add(denial.hits);
        self.last_hits = denial.hits;
        self.retry_at = denial.retry_after.map(|wait| now + wait);
        // The same one nearly always: the count of its handles is left alone.
        if !Arc::ptr_eq(&self.version, denial.version) {
            self.version = Arc::clone(denial.version);
        }
        denial.recorded.iter().for_each(|text| self.see(&String::from_utf8_lossy(text)));
    }

    /// Puts another record of the same key to this one; in which order does not matter.
    pub fn merge(&mut self, other: &Self) {
        let is_later = (other.last, &other.version, other.retry_at, other.last_hits)
            > (self.last, &self.version, self.retry_at, self.last_hits);
        let (late, early) = if is_later { (other, &*self) } else { (&*self, other) };
        let mut recorded = late.recorded.clone();
        recorded.extend(early.recorded.iter().filter(|text| !late.recorded.contains(text)).cloned());
        recorded.truncate(MAX_RECORDED);
        *self = Self {
            first: self.first.min(other.first),
            last: late.last,
            count: self.count.saturating_add(other.count),
            passed: self.passed.saturating_add(other.passed),
            presumed: self.presumed.saturating_add(other.presumed),
            hits: self.hits.saturating_add(other.hits),
            last_hits: late.last_hits,
            retry_at: late.retry_at,
            version: Arc::clone(&late.version),
            recorded,
        };
    }

    /// The latest first.
    fn see(&mut self, text: &str) {
        match self.recorded.iter().position(|known| **known == *text) {
            Some(0) => {}
            Some(place) => self.recorded.get_mut(..=place).unwrap_or_default().rotate_right(1),
            None => {
                self.recorded.truncate(MAX_RECORDED.saturating_sub(1));
                self.recorded.insert(0, text.into());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn version() -> Arc<str> {
        "v1".into()
    }

    fn denial<'a>(version: &'a Arc<str>, recorded: &'a [Vec<u8>]) -> Denial<'a> {
        Denial { domain: "d", rule: "r", version, why: Why::NoRoom, hits: 2, retry_after: None, recorded }
    }

    fn record(version: &Arc<str>, times: &[u64]) -> Option<Record> {
        let mut record = Record::begin(&denial(version, &[]), Timestamp::from_micros(*times.first()?));
        times.iter().for_each(|at| record.add(&denial(version, &[]), Timestamp::from_micros(*at)));
        Some(record)
    }

    #[test]
    fn the_latest_of_what_is_recorded_is_kept() {
        let version = version();
        let mut record = Record::begin(&denial(&version, &[]), Timestamp::EPOCH);
        for user in ["a", "b", "a", "c", "d", "e"] {
            record.add(&denial(&version, &[user.into()]), Timestamp::EPOCH);
        }
        assert_eq!(record.recorded, ["e", "d", "c", "a"].map(Box::from));
    }

    proptest! {
        #[test]
        fn records_that_are_put_together_are_the_record_of_all(times in prop::collection::vec(0u64..1_000, 2..30), at in 1usize..29) {
            let mut times = times;
            times.sort_unstable();
            let (version, at) = (version(), at.min(times.len().saturating_sub(1)));
            let (early, late) = times.split_at(at);
            let (early, late) = (record(&version, early).unwrap(), record(&version, late).unwrap());
            let whole = record(&version, &times).unwrap();
            let (mut one, mut other) = (early.clone(), late.clone());
            one.merge(&late);
            other.merge(&early);
            prop_assert_eq!(&one, &whole);
            prop_assert_eq!(&other, &whole);
        }
    }
}
