//! A mergeable record of the denials of one key.

use std::sync::Arc;

use tollgate_core::algorithm::time::{Micros, Timestamp};

/// Maximum number of `record` values per key; the most recent are kept.
pub(super) const MAX_RECORDED: usize = 4;

/// The reason why a descriptor counts as denied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DenialReason {
    /// The hits did not fit.
    NoRoom,
    /// The hits did not fit, but the request passed: shadow mode, or outvoted by other limits.
    Passed,
    /// The store failed, and the limit's failure mode denies.
    Presumed,
}

/// A denial at the time it occurs. Borrows everything, since nearly all denials are of known keys.
#[derive(Clone, Copy, Debug)]
pub struct DenialEvent<'a> {
    /// Domain of the request.
    pub domain: &'a str,
    /// Path of the rule.
    pub rule: &'a str,
    /// Version of the policies.
    pub version: &'a Arc<str>,
    /// Reason of the denial.
    pub why: DenialReason,
    /// Requested hits; 0 for a peek.
    pub hits: u64,
    /// Time until they are admitted; `None`: never, or unknown.
    pub retry_after: Option<Micros>,
    /// Entries of the request that the rule records, as `key=value`.
    pub recorded: &'a [Vec<u8>],
}

/// The denials of one key in a period of time. All sums are lower bounds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DenialRecord {
    /// Instant of the first denial.
    pub first: Timestamp,
    /// Instant of the last denial.
    pub last: Timestamp,
    /// Number of denials.
    pub count: u64,
    /// Denials whose requests passed.
    pub passed: u64,
    /// Denials because the store failed.
    pub presumed: u64,
    /// Requested hits, in total.
    pub hits: u64,
    /// Requested hits of the last denial.
    pub last_hits: u64,
    /// Instant at which the hits of the last denial are admitted; `None`: never, or unknown.
    pub retry_at: Option<Timestamp>,
    /// Version of the policies at the last denial.
    pub version: Arc<str>,
    /// Entries that the rule records, most recent first.
    pub recorded: Vec<Box<str>>,
}

impl DenialRecord {
    /// Creates a record without denials.
    pub(super) fn begin(denial: &DenialEvent<'_>, now: Timestamp) -> Self {
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

    /// Adds a denial.
    pub(super) fn add(&mut self, denial: &DenialEvent<'_>, now: Timestamp) {
        self.last = self.last.max(now);
        self.count += 1;
        match denial.why {
            DenialReason::NoRoom => {}
            DenialReason::Passed => self.passed += 1,
            DenialReason::Presumed => self.presumed += 1,
        }
        self.hits = self.hits.saturating_add(denial.hits);
        self.last_hits = denial.hits;
        self.retry_at = denial.retry_after.map(|wait| now + wait);
        // The version is nearly always the same; its reference count is left alone.
        if !Arc::ptr_eq(&self.version, denial.version) {
            self.version = Arc::clone(denial.version);
        }
        denial.recorded.iter().for_each(|text| self.see(&String::from_utf8_lossy(text)));
    }

    /// Merges another record of the same key into this one; the order does not matter.
    pub fn merge(&mut self, other: &Self) {
        let is_later = (other.last, &other.version, other.retry_at, other.last_hits)
            > (self.last, &self.version, self.retry_at, self.last_hits);
        let (late, early) = if is_later { (other, &*self) } else { (&*self, other) };
        let mut recorded = late.recorded.clone();
        recorded
            .extend(early.recorded.iter().filter(|text| !late.recorded.contains(text)).cloned());
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

    /// Moves a recorded value to the front, or inserts it there.
    fn see(&mut self, text: &str) {
        match self.recorded.iter().position(|known| **known == *text) {
            Some(0) => {}
            Some(place) => self.recorded.get_mut(..=place).unwrap_or_default().rotate_right(1),
            None => {
                self.recorded.truncate(MAX_RECORDED - 1);
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

    fn denial<'a>(version: &'a Arc<str>, recorded: &'a [Vec<u8>]) -> DenialEvent<'a> {
        DenialEvent {
            domain: "d",
            rule: "r",
            version,
            why: DenialReason::NoRoom,
            hits: 2,
            retry_after: None,
            recorded,
        }
    }

    fn record(version: &Arc<str>, times: &[u64]) -> Option<DenialRecord> {
        let mut record =
            DenialRecord::begin(&denial(version, &[]), Timestamp::from_micros(*times.first()?));
        times.iter().for_each(|at| record.add(&denial(version, &[]), Timestamp::from_micros(*at)));
        Some(record)
    }

    #[test]
    fn the_latest_recorded_entries_are_kept() {
        let version = version();
        let mut record = DenialRecord::begin(&denial(&version, &[]), Timestamp::EPOCH);
        for user in ["a", "b", "a", "c", "d", "e"] {
            record.add(&denial(&version, &[user.into()]), Timestamp::EPOCH);
        }
        assert_eq!(record.recorded, ["e", "d", "c", "a"].map(Box::from));
    }

    proptest! {
        #[test]
        fn records_that_are_put_together_are_the_record_of_all(
            mut times in prop::collection::vec(0u64..1_000, 2..30), at in 1usize..29,
        ) {
            times.sort_unstable();
            let version = version();
            let at = at.min(times.len().saturating_sub(1));
            let (early, late) = times.split_at(at);
            let early = record(&version, early).unwrap();
            let late = record(&version, late).unwrap();
            let whole = record(&version, &times).unwrap();
            let mut one = early.clone();
            let mut other = late.clone();
            one.merge(&late);
            other.merge(&early);
            prop_assert_eq!(&one, &whole);
            prop_assert_eq!(&other, &whole);
        }
    }
}
