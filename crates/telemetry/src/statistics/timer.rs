//! Call durations: a histogram, and a bounded queue of individual durations for one subscriber.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

/// Capacity of the queue of durations. The subscriber drains it a few times per second; durations
/// beyond the capacity are dropped, but still count in the histogram and in the counter of calls.
const QUEUE: usize = 1 << 16;

/// The durations of one kind of call.
#[derive(Debug)]
pub struct Timer {
    /// Upper bounds of the buckets in microseconds, ascending.
    bounds: Box<[u64]>,
    /// Count of each bucket and of the overflow bucket, not cumulative.
    counts: Box<[AtomicU64]>,
    sum: AtomicU64,
    queue: OnceLock<SyncSender<u64>>,
}

/// A snapshot of a timer, in microseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Histogram {
    /// Upper bounds, ascending.
    pub bounds: Box<[u64]>,
    /// Cumulative count of each bound and, last, the total.
    pub counts: Box<[u64]>,
    /// Sum of all durations.
    pub sum: u64,
}

impl Timer {
    /// Creates a timer with these upper bounds of buckets, in microseconds, ascending.
    pub(super) fn new(bounds: Box<[u64]>) -> Self {
        let counts = (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect();
        Self { bounds, counts, sum: AtomicU64::new(0), queue: OnceLock::new() }
    }

    /// Records a duration. Never blocks.
    pub fn record(&self, time: Duration) {
        let us = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        if let Some(count) = self.counts.get(self.bounds.partition_point(|bound| *bound < us)) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        self.sum.fetch_add(us, Ordering::Relaxed);
        if let Some(queue) = self.queue.get() {
            let _ = queue.try_send(us);
        }
    }

    /// Returns the queue of individual durations, in microseconds, from now on. Returns `None` if
    /// there is a subscriber already.
    pub fn subscribe(&self) -> Option<Receiver<u64>> {
        let (sender, receiver) = sync_channel(QUEUE);
        self.queue.set(sender).is_ok().then_some(receiver)
    }

    /// Returns a snapshot.
    pub fn read(&self) -> Histogram {
        let mut all = 0_u64;
        let counts = self.counts.iter().map(|count| {
            all = all.saturating_add(count.load(Ordering::Relaxed));
            all
        });
        Histogram {
            counts: counts.collect(),
            bounds: self.bounds.clone(),
            sum: self.sum.load(Ordering::Relaxed),
        }
    }
}

impl Histogram {
    /// Returns the number of durations.
    pub fn count(&self) -> u64 {
        self.counts.last().copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_fall_into_buckets_up_to_their_bounds_and_are_handed_on() {
        let timer = Timer::new([10, 20].into());
        timer.record(Duration::from_micros(5));
        let times = timer.subscribe().unwrap();
        assert!(timer.subscribe().is_none());
        [10, 11, 21].into_iter().for_each(|us| timer.record(Duration::from_micros(us)));
        let expected = Histogram { bounds: [10, 20].into(), counts: [2, 3, 4].into(), sum: 47 };
        assert_eq!(timer.read(), expected);
        assert_eq!(times.try_iter().collect::<Vec<_>>(), [10, 11, 21]);
    }
}
