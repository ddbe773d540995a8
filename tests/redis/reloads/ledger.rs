//! The clients' record of each counter: hits admitted, and hits refunded.

use std::fmt;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

use super::rules::{Counts, RULES};

/// The record of a run.
pub(super) struct Ledger {
    value: String,
    highest: u32,
    begun: Instant,
    counters: [Counter; RULES.len()],
    answers: AtomicU64,
    denials: AtomicU64,
    /// Hits of undecided requests.
    undecided: AtomicU64,
    /// The rule of most requests: leases are for hot keys.
    hot: AtomicUsize,
}

#[derive(Default)]
struct Counter {
    /// Counted when the answer arrives: hits were charged before.
    admitted: AtomicU64,
    /// Counted before the request is sent: hits become available after.
    given_back: AtomicU64,
    /// Maximum number of hits beyond the bound at any time; negative if there were none.
    most_over: AtomicI64,
}

impl Ledger {
    /// Creates a record of the counters of this value, whose highest amount is `highest`.
    pub(super) fn new(value: &str, highest: u32) -> Self {
        let counters =
            std::array::from_fn(|_| Counter { most_over: i64::MIN.into(), ..Counter::default() });
        Self {
            value: value.to_owned(),
            highest,
            begun: Instant::now(),
            counters,
            answers: AtomicU64::new(0),
            denials: AtomicU64::new(0),
            undecided: AtomicU64::new(0),
            hot: AtomicUsize::new(0),
        }
    }

    pub(super) fn value(&self) -> &str {
        &self.value
    }

    pub(super) fn highest(&self) -> u32 {
        self.highest
    }

    /// Returns the maximum number of hits that one descriptor of a request takes.
    pub(super) fn most_hits(&self) -> u32 {
        (self.highest / 20).max(1)
    }

    pub(super) fn hot(&self) -> usize {
        self.hot.load(Ordering::Relaxed)
    }

    pub(super) fn set_hot(&self, rule: usize) {
        self.hot.store(rule, Ordering::Relaxed);
    }

    pub(super) fn admit(&self, rule: usize, hits: u32) {
        let counter = &self.counters[rule];
        let admitted = counter.admitted.fetch_add(hits.into(), Ordering::SeqCst) + u64::from(hits);
        // Read after the sum of admitted hits: hits refunded in between only lower the difference.
        let given_back = counter.given_back.load(Ordering::SeqCst);
        let bound = u64::from(self.highest) + self.drained(rule);
        let over = admitted.cast_signed() - (given_back + bound).cast_signed();
        counter.most_over.fetch_max(over, Ordering::SeqCst);
    }

    pub(super) fn give_back(&self, rule: usize, hits: u32) {
        self.counters[rule].given_back.fetch_add(hits.into(), Ordering::SeqCst);
    }

    pub(super) fn answer(&self, is_denied: bool) {
        self.answers.fetch_add(1, Ordering::Relaxed);
        self.denials.fetch_add(is_denied.into(), Ordering::Relaxed);
    }

    /// Records hits that may have been charged, or refunded, or neither.
    pub(super) fn fail(&self, hits: u64) {
        self.undecided.fetch_add(hits, Ordering::Relaxed);
    }

    pub(super) fn undecided(&self) -> u64 {
        self.undecided.load(Ordering::Relaxed)
    }

    pub(super) fn answers(&self) -> u64 {
        self.answers.load(Ordering::Relaxed)
    }

    /// Returns a line for each counter that admitted more hits than the bound.
    pub(super) fn over(&self) -> Vec<String> {
        let is_over = |rule: &usize| self.counters[*rule].most_over.load(Ordering::SeqCst) > 0;
        (0..RULES.len())
            .filter(is_over)
            .map(|rule| format!("MORE THAN THE HIGHEST AMOUNT: {}", self.line(rule)))
            .collect()
    }

    /// Returns the range of hits that must be left of the highest amount in the end, except lost
    /// hits.
    pub(super) fn unused(&self, rule: usize, lost: u64) -> RangeInclusive<u64> {
        let highest = u64::from(self.highest);
        let drained = self.drained(rule);
        let (admitted, given_back) = self.counters[rule].hits();
        let unused = (highest + given_back).saturating_sub(admitted).min(highest);
        let least = match RULES[rule].counts {
            Counts::Exactly | Counts::Admitted => unused.saturating_sub(lost),
            // Taking back a charge, such as a lease's block, leaves the hits that have drained
            // since: for these rules, part of a hit in total.
            Counts::Drains(_) if RULES[rule].drains_slowly() => {
                unused.saturating_sub(lost + drained + 1)
            }
            Counts::Drains(_) | Counts::AtLeast => 0,
        };
        // Hits refunded after they have drained may leave even fewer used than those not refunded.
        least..=(unused + drained).min(highest)
    }

    pub(super) fn line(&self, rule: usize) -> String {
        let (admitted, given_back) = self.counters[rule].hits();
        let highest = self.highest;
        let most_over = self.counters[rule].most_over.load(Ordering::SeqCst);
        let key = RULES[rule].key;
        format!(
            "{key}: {admitted} admitted, {given_back} given back, of {highest}; {most_over} over at most"
        )
    }

    /// Returns the maximum number of hits drained since the start.
    fn drained(&self, rule: usize) -> u64 {
        RULES[rule].drained(self.highest, u64::try_from(self.begun.elapsed().as_micros()).unwrap())
    }
}

impl Counter {
    /// Returns the hits admitted, and the hits refunded.
    fn hits(&self) -> (u64, u64) {
        (self.admitted.load(Ordering::SeqCst), self.given_back.load(Ordering::SeqCst))
    }
}

impl fmt::Display for Ledger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (admitted, given_back) = self
            .counters
            .iter()
            .map(Counter::hits)
            .fold((0, 0), |sum, hits| (sum.0 + hits.0, sum.1 + hits.1));
        let denials = self.denials.load(Ordering::Relaxed);
        write!(f, "{denials} denials, {admitted} hits admitted, {given_back} given back")
    }
}
