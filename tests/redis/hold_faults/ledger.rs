//! The clients' record of each counter: hits that were charged and given back, certainly or
//! possibly, and the permits that are certainly taken.

use std::fmt;
use std::ops::RangeInclusive;
use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

use super::{IN_FLIGHT, LIMIT, PERMITS, RULES};

/// Maximum number of counters of a rule: each fault begins new ones, since a limit that is used up
/// tests nothing.
const VALUES: usize = 4_000;

/// The record of a run.
pub(super) struct Ledger {
    counters: Vec<[Counter; PERMITS]>,
    value: AtomicUsize,
    permits: Mutex<Vec<Permit>>,
    most_permits: AtomicU64,
    /// Number of times that a master may have lost writes.
    losses: AtomicU64,
    pub(super) calls: Calls,
}

/// Numbers of calls, by their end.
#[derive(Default)]
pub(super) struct Calls {
    pub(super) admitted: AtomicU64,
    pub(super) denied: AtomicU64,
    pub(super) ended: AtomicU64,
    pub(super) lost: AtomicU64,
    pub(super) abandoned: AtomicU64,
    pub(super) overruns: AtomicU64,
}

/// Hits of a counter.
#[derive(Default)]
struct Counter {
    /// Admitted reserves; counted when the answer arrives.
    admitted: AtomicI64,
    /// Overruns that were charged.
    overrun: AtomicI64,
    /// All that may have been charged; counted before the call.
    charged: AtomicI64,
    /// Hits that were given back; counted when the answer arrives.
    returned: AtomicI64,
    /// Hits that may have been given back; counted before the call.
    returning: AtomicI64,
    /// Maximum of admitted hits less those that may have been given back.
    most: AtomicI64,
}

/// A permit that is taken until its end is requested, or until its `ttl`.
struct Permit {
    id: u64,
    hits: u32,
    until: Instant,
}

impl Default for Ledger {
    fn default() -> Self {
        Self {
            counters: std::iter::repeat_with(Default::default).take(VALUES).collect(),
            value: AtomicUsize::default(),
            permits: Mutex::default(),
            most_permits: AtomicU64::default(),
            losses: AtomicU64::default(),
            calls: Calls::default(),
        }
    }
}

impl Ledger {
    /// Returns the value of a rule's counter in use. Permits have one counter, since they come
    /// free.
    pub(super) fn value(&self, rule: usize) -> usize {
        if rule == PERMITS { 0 } else { self.value.load(Ordering::Relaxed) }
    }

    pub(super) fn next_counters(&self) {
        let next = self.value.load(Ordering::Relaxed) + 1;
        self.value.store(next.min(VALUES - 1), Ordering::Relaxed);
    }

    pub(super) fn lose_writes(&self) {
        self.losses.fetch_add(1, Ordering::SeqCst);
    }

    pub(super) fn answers(&self) -> u64 {
        self.calls.admitted.load(Ordering::Relaxed) + self.calls.denied.load(Ordering::Relaxed)
    }

    /// Records hits that a call may charge.
    pub(super) fn may_charge(&self, rule: usize, value: usize, hits: u32) {
        self.change(rule, value, |counter| &counter.charged, hits.into());
    }

    /// Records that a call did not charge its hits.
    pub(super) fn did_not_charge(&self, rule: usize, value: usize, hits: u32) {
        self.change(rule, value, |counter| &counter.charged, -i64::from(hits));
    }

    /// Records a cost beyond its hold that was charged.
    pub(super) fn overrun(&self, rule: usize, value: usize, hits: u32) {
        self.change(rule, value, |counter| &counter.overrun, hits.into());
    }

    /// Records hits that a call may give back.
    pub(super) fn may_return(&self, rule: usize, value: usize, hits: u32) {
        self.change(rule, value, |counter| &counter.returning, hits.into());
    }

    /// Records that hits were given back.
    pub(super) fn did_return(&self, rule: usize, value: usize, hits: u32) {
        self.change(rule, value, |counter| &counter.returned, hits.into());
    }

    /// Records an admitted reserve.
    pub(super) fn admit(&self, rule: usize, value: usize, hits: u32) {
        let Some(counter) = self.counters[value].get(rule) else { return };
        let admitted = counter.admitted.fetch_add(hits.into(), Ordering::SeqCst) + i64::from(hits);
        // Read after the sum of admitted hits: hits returned in between lower the difference.
        let net = admitted - counter.returning.load(Ordering::SeqCst);
        counter.most.fetch_max(net, Ordering::SeqCst);
    }

    /// Records permits that were taken by `id`, certainly until `until`.
    pub(super) fn take_permits(&self, id: u64, hits: u32, until: Instant) {
        let mut permits = self.permits.lock().unwrap();
        let now = Instant::now();
        permits.retain(|permit| permit.until > now);
        permits.push(Permit { id, hits, until });
        let taken = permits.iter().map(|permit| u64::from(permit.hits)).sum();
        self.most_permits.fetch_max(taken, Ordering::SeqCst);
    }

    /// Records that the end of a permit will be requested.
    pub(super) fn free_permits(&self, id: u64) {
        self.permits.lock().unwrap().retain(|permit| permit.id != id);
    }

    /// Returns a line for each counter that admitted more than its limit.
    pub(super) fn over(&self) -> Vec<String> {
        let losses = self.losses.load(Ordering::SeqCst);
        let most_permits = self.most_permits.load(Ordering::SeqCst);
        let mut wrong = Vec::new();
        if most_permits > u64::from(IN_FLIGHT) * (1 + losses) {
            wrong.push(format!("{most_permits} permits of {IN_FLIGHT}"));
        }
        for (rule, value) in self.used_counters() {
            let most = self.counters[value][rule].most.load(Ordering::SeqCst);
            if most > i64::from(LIMIT) * (1 + losses.cast_signed()) {
                wrong.push(format!("{}={value}: {most} hits of {LIMIT}", RULES[rule].key));
            }
        }
        wrong
    }

    /// Returns the counters, except that of permits, that had calls.
    pub(super) fn used_counters(&self) -> impl Iterator<Item = (usize, usize)> {
        let last = self.value.load(Ordering::Relaxed);
        (0..=last).flat_map(|value| (0..PERMITS).map(move |rule| (rule, value)))
    }

    /// Returns the range of hits that must be left of a counter in the end.
    pub(super) fn left(&self, rule: usize, value: usize) -> RangeInclusive<i64> {
        let counter = &self.counters[value][rule];
        let of = |hits: &AtomicI64| hits.load(Ordering::SeqCst);
        let limit = i64::from(LIMIT);
        let least_used = of(&counter.admitted) + of(&counter.overrun) - of(&counter.returning);
        let most_used = of(&counter.charged) - of(&counter.returned);
        let lost_writes = self.losses.load(Ordering::SeqCst) > 0;
        let most = if lost_writes { limit } else { limit - least_used.max(0) };
        let least = if RULES[rule].is_exact { limit - most_used } else { 0 };
        // Of a rate, part of a hit drains meanwhile.
        let drained = i64::from(!RULES[rule].is_exact);
        least.clamp(0, limit)..=(most + drained).clamp(0, limit)
    }

    fn change(&self, rule: usize, value: usize, of: impl Fn(&Counter) -> &AtomicI64, hits: i64) {
        // Permits have a record of their own.
        if let Some(counter) = self.counters[value].get(rule) {
            of(counter).fetch_add(hits, Ordering::SeqCst);
        }
    }
}

impl fmt::Display for Ledger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Calls { admitted, denied, ended, lost, abandoned, overruns } = &self.calls;
        let [admitted, denied, ended, lost, abandoned, overruns] =
            [admitted, denied, ended, lost, abandoned, overruns]
                .map(|calls| calls.load(Ordering::Relaxed));
        let most = self
            .used_counters()
            .map(|(rule, value)| self.counters[value][rule].most.load(Ordering::Relaxed))
            .max();
        let permits = self.most_permits.load(Ordering::Relaxed);
        write!(
            f,
            "{admitted} admitted, {denied} denied, {ended} ended, {abandoned} abandoned, \
             {overruns} overruns, {lost} calls lost; at most {most:?} of {LIMIT} hits and \
             {permits} of {IN_FLIGHT} permits at once"
        )
    }
}
