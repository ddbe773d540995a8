//! Counters and gauges. Clones share their value.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

/// A number of events, which only grows.
#[derive(Clone, Debug, Default)]
pub struct Counter(Arc<AtomicU64>);

/// A number that goes up and down.
#[derive(Clone, Debug, Default)]
pub struct Gauge(Arc<AtomicI64>);

/// A gauge with fractions.
#[derive(Clone, Debug, Default)]
pub struct FloatGauge(Arc<AtomicU64>);

/// Returns the number of things that began and have not ended.
pub(crate) fn level(begun: &Counter, ended: &Counter) -> i64 {
    // Another thread may count a begin and its end between the two reads.
    i64::try_from(begun.get().saturating_sub(ended.get())).unwrap_or(i64::MAX)
}

impl Counter {
    /// Counts an event.
    pub fn inc(&self) {
        self.inc_by(1);
    }

    /// Counts a number of events.
    pub fn inc_by(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    /// Returns the number.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Gauge {
    /// Adds 1.
    pub fn inc(&self) {
        self.inc_by(1);
    }

    /// Subtracts 1.
    pub fn dec(&self) {
        self.dec_by(1);
    }

    /// Adds a number.
    pub fn inc_by(&self, count: i64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    /// Subtracts a number.
    pub fn dec_by(&self, count: i64) {
        self.0.fetch_sub(count, Ordering::Relaxed);
    }

    /// Sets the value.
    pub fn set(&self, value: i64) {
        self.0.store(value, Ordering::Relaxed);
    }

    /// Returns the value.
    pub fn get(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl FloatGauge {
    /// Sets the value.
    pub fn set(&self, value: f64) {
        self.0.store(value.to_bits(), Ordering::Relaxed);
    }

    /// Returns the value.
    pub fn get(&self) -> f64 {
        f64::from_bits(self.0.load(Ordering::Relaxed))
    }
}
