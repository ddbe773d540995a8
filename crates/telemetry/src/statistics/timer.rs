//! Call durations: a histogram, and a bounded queue of individual durations for one subscriber.

use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use crate::histogram::{Histogram, HistogramReading, micros};

/// Capacity of the queue of durations. The subscriber drains it a few times per second; durations
/// beyond the capacity are dropped, but still count in the histogram and in the counter of calls.
const QUEUE: usize = 1 << 16;

/// The durations of one kind of call.
#[derive(Debug)]
pub struct Timer {
    histogram: Histogram,
    queue: OnceLock<SyncSender<u64>>,
}

impl Timer {
    /// Creates a timer with these upper bounds of buckets, in microseconds, ascending.
    pub(super) fn new(bounds: Box<[u64]>) -> Self {
        Self { histogram: Histogram::new(bounds.into_vec()), queue: OnceLock::new() }
    }

    /// Records a duration. Never blocks.
    pub fn record(&self, time: Duration) {
        let us = micros(time);
        self.histogram.observe(us);
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

    /// Returns the durations so far, in microseconds.
    pub fn read(&self) -> HistogramReading {
        self.histogram.read()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_counted_and_passed_on() {
        let timer = Timer::new([10, 20].into());
        timer.record(Duration::from_micros(5));
        let times = timer.subscribe().unwrap();
        assert!(timer.subscribe().is_none());
        [10, 11, 21].into_iter().for_each(|us| timer.record(Duration::from_micros(us)));
        assert_eq!((timer.read().count(), timer.read().sum), (4, 47));
        assert_eq!(times.try_iter().collect::<Vec<_>>(), [10, 11, 21]);
    }
}
