//! What the clients know of each counter: hits that were admitted, and hits that they gave back.

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
    /// Hits of requests that nobody decided.
    undecided: AtomicU64,
    /// The rule that most requests are of: leases are for keys that are asked for often.
    hot: AtomicUsize,
}

#[derive(Default)]
struct Counter {
    /// Counted when the answer is there: hits were charged before.
    admitted: AtomicU64,
    /// Counted before the request is sent: hits come free after.
    given_back: AtomicU64,
    /// The most hits beyond the bound at any time; negative while there were none.
    most_over: AtomicI64,
}

impl Ledger {
    /// Of counters of this value, whose highest amount is `highest`.
    pub(super) fn new(value: &str, highest: u32) -> Self {
        let counters = std::array::from_fn(|_| Counter { most_over: i64::MIN.into(), ..Counter::default() });
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

    /// The most hits that one descriptor of a request takes.
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
        // Read after the sum of admitted hits: hits that are given back in between only lower the difference.
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

    /// Hits that may have been charged, or given back, or neither.
    pub(super) fn fail(&self, hits: u64) {
        self.undecided.fetch_add(hits, Ordering::Relaxed);
    }

    pub(super) fn undecided(&self) -> u64 {
        self.undecided.load(Ordering::Relaxed)
    }

    pub(super) fn answers(&self) -> u64 {
        self.answers.load(Ordering::Relaxed)
    }

    /// The counters of which more was admitted than there ever was.
    pub(super) fn over(&self) -> Vec<String> {
        let is_over = |rule: &usize| self.counters[*rule].most_over.load(Ordering::SeqCst) > 0;
        (0..RULES.len())
            .filter(is_over)
            .map(|rule| format!("MORE THAN THE HIGHEST AMOUNT: {}", self.line(rule)))
            .collect()
    }

    /// What has to be left of the highest amount when all is settled, but for hits that are lost.
    pub(super) fn unused(&self, rule: usize, lost: u64) -> RangeInclusive<u64> {
        let (highest, drained) = (u64::from(self.highest), self.drained(rule));
        let (admitted, given_back) = self.counters[rule].hits();
        let unused = (highest + given_back).saturating_sub(admitted).min(highest);
        let least = match RULES[rule].counts {
            Counts::Exactly | Counts::Admitted => unused.saturating_sub(lost),
            // A charge that is taken back, as each block of a lease, leaves what has drained since: of these a part of a hit in all.
            Counts::Drains(_) if RULES[rule].drains_slowly() => unused.saturating_sub(lost + drained + 1),
            Counts::Drains(_) | Counts::AtLeast => 0,
        };
        // Hits that are given back when they have drained already may leave even less used than what was not given back.
        least..=(unused + drained).min(highest)
    }

    pub(super) fn line(&self, rule: usize) -> String {
        let ((admitted, given_back), highest) = (self.counters[rule].hits(), self.highest);
        let most_over = self.counters[rule].most_over.load(Ordering::SeqCst);
        let key = RULES[rule].key;
        format!("{key}: {admitted} admitted, {given_back} given back, of {highest}; {most_over} over at most")
    }

    /// Hits that drained since the beginning, at most.
    fn drained(&self, rule: usize) -> u64 {
        RULES[rule].drained(self.highest, u64::try_from(self.begun.elapsed().as_micros()).unwrap())
    }
}

impl Counter {
    /// Hits that were admitted, and hits that were given back.
    fn hits(&self) -> (u64, u64) {
        (self.admitted.load(Ordering::SeqCst), self.given_back.load(Ordering::SeqCst))
    }
}

impl fmt::Display for Ledger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (admitted, given_back) =
            self.counters.iter().map(Counter::hits).fold((0, 0), |sum, hits| (sum.0 + hits.0, sum.1 + hits.1));
        let denials = self.denials.load(Ordering::Relaxed);
        write!(f, "{denials} denials, {admitted} hits admitted, {given_back} given back")
    }
}
