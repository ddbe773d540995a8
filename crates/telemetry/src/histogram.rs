//! Histograms of durations in microseconds, and of ratios in millionths.
//!
//! A histogram has cache lines of its own, so that workers with a histogram each do not contend.

use std::borrow::Cow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;

/// Values that are fractions are counted in millionths, like the microseconds of durations.
pub(crate) const MILLION: f64 = 1e6;
/// Number of counts in a line.
const LINE: usize = 8;

/// Upper bounds of buckets, ascending.
pub type BucketBounds = Cow<'static, [u64]>;

/// Counts in a cache line.
#[derive(Debug, Default)]
#[repr(align(64))]
struct CacheLine([AtomicU64; LINE]);

/// The counts of values by bucket, and their sum.
#[derive(Debug)]
pub struct Histogram {
    bounds: BucketBounds,
    /// The sum, then the count of each bucket, then that of values above all bounds.
    lines: Box<[CacheLine]>,
    /// The latest exemplar of each bucket; empty before the first.
    exemplars: Mutex<Vec<Option<Exemplar>>>,
}

/// A call that exemplifies its bucket, with its trace and span IDs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exemplar {
    /// Trace ID.
    pub trace: [u8; 16],
    /// Span ID.
    pub span: [u8; 8],
    /// Duration of the call.
    pub length: Duration,
    /// End of the call.
    pub at: SystemTime,
}

/// The contents of histograms with the same bounds at one time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HistogramReading {
    /// Upper bounds of the buckets, ascending.
    pub bounds: BucketBounds,
    /// Number of values in each bucket and, last, above all bounds.
    pub counts: Vec<u64>,
    /// Sum of all values.
    pub sum: u64,
    /// The latest exemplar of each bucket; empty if there are none.
    pub exemplars: Vec<Option<Exemplar>>,
}

impl Histogram {
    /// Creates an empty histogram with these upper bounds of buckets, ascending.
    pub fn new(bounds: impl Into<BucketBounds>) -> Self {
        let bounds = bounds.into();
        let lines = (bounds.len() + 2).div_ceil(LINE);
        Self {
            bounds,
            lines: (0..lines).map(|_| CacheLine::default()).collect(),
            exemplars: Mutex::default(),
        }
    }

    /// Records a duration in a histogram of microseconds.
    pub fn record(&self, time: Duration) {
        self.observe(micros(time));
    }

    /// Records a value.
    pub fn observe(&self, value: u64) {
        self.observe_rounded(value, value);
    }

    /// Records a value that is rounded up to find its bucket, and to the nearest for the sum.
    pub(crate) fn observe_rounded(&self, up: u64, value: u64) {
        if let Some(count) = self.cell(self.bucket(up) + 1) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        // The sum ends at its maximum: costs that callers report can reach it.
        if let Some(sum) = self.cell(0)
            && sum.fetch_add(value, Ordering::Relaxed) > u64::MAX - value
        {
            sum.store(u64::MAX, Ordering::Relaxed);
        }
    }

    /// Stores the IDs of the span of a call whose duration was just [recorded](Self::record), as
    /// the exemplar of its bucket.
    pub fn remember(&self, length: Duration, trace: [u8; 16], span: [u8; 8]) {
        let exemplar = Exemplar { trace, span, length, at: SystemTime::now() };
        let mut exemplars = self.exemplars.lock();
        exemplars.resize(self.bounds.len() + 1, None);
        if let Some(latest) = exemplars.get_mut(self.bucket(micros(length))) {
            *latest = Some(exemplar);
        }
    }

    /// Returns the contents.
    pub fn read(&self) -> HistogramReading {
        let mut cells = self.lines.iter().flat_map(|line| &line.0);
        let sum = cells.next().map_or(0, load);
        HistogramReading {
            bounds: self.bounds.clone(),
            counts: cells.take(self.bounds.len() + 1).map(load).collect(),
            sum,
            exemplars: self.exemplars.lock().clone(),
        }
    }

    fn bucket(&self, value: u64) -> usize {
        self.bounds.partition_point(|bound| *bound < value)
    }

    fn cell(&self, place: usize) -> Option<&AtomicU64> {
        self.lines.get(place / LINE)?.0.get(place % LINE)
    }
}

impl HistogramReading {
    /// Returns the number of values.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Returns the number of values up to each bound and, last, of all values.
    pub fn cumulative(&self) -> Vec<u64> {
        let mut all = 0;
        let mut counts = Vec::with_capacity(self.counts.len());
        for count in &self.counts {
            all += count;
            counts.push(all);
        }
        counts
    }

    /// Adds the contents of another histogram with the same bounds. Of two exemplars of a bucket,
    /// the later one stays.
    pub fn add(&mut self, other: Self) {
        if self.counts.is_empty() {
            *self = other;
            return;
        }
        for (count, more) in self.counts.iter_mut().zip(other.counts) {
            *count += more;
        }
        self.sum = self.sum.saturating_add(other.sum);
        if self.exemplars.is_empty() {
            self.exemplars = other.exemplars;
            return;
        }
        for (known, found) in self.exemplars.iter_mut().zip(other.exemplars) {
            if found.map(|found| found.at) > known.map(|known| known.at) {
                *known = found;
            }
        }
    }
}

fn load(count: &AtomicU64) -> u64 {
    count.load(Ordering::Relaxed)
}

/// Converts from millionths.
#[allow(clippy::cast_precision_loss, reason = "exact up to 2^53")]
pub(crate) fn millionths(number: u64) -> f64 {
    number as f64 / MILLION
}

/// Converts to whole microseconds.
pub(crate) fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_fall_into_buckets_up_to_their_bounds() {
        let histogram = Histogram::new(vec![10, 20]);
        [5, 10, 11, 21].into_iter().for_each(|us| histogram.record(Duration::from_micros(us)));
        let read = histogram.read();
        assert_eq!((read.counts.as_slice(), read.sum, read.count()), ([2, 1, 1].as_slice(), 47, 4));
        assert_eq!(read.cumulative(), [2, 3, 4]);
    }

    #[test]
    fn histograms_with_more_buckets_than_a_line_count_all_of_them() {
        let bounds: Vec<u64> = (0..30).collect();
        let histogram = Histogram::new(bounds);
        (0..31).for_each(|value| histogram.observe(value));
        assert_eq!(histogram.read().counts, [1; 31]);
    }

    #[test]
    fn a_sum_ends_at_its_maximum() {
        let histogram = Histogram::new(vec![1]);
        [u64::MAX - 1, 1, 1].into_iter().for_each(|value| histogram.observe(value));
        assert_eq!(histogram.read().sum, u64::MAX);
    }

    #[test]
    fn histograms_are_added_up_with_their_latest_exemplars() {
        let histograms = [[1; 16], [2; 16]].map(|trace| {
            let histogram = Histogram::new(vec![100]);
            histogram.observe(60);
            histogram.remember(Duration::from_micros(60), trace, [0; 8]);
            histogram
        });
        histograms[0].remember(Duration::from_secs(5), [3; 16], [3; 8]);
        let mut sum = HistogramReading::default();
        histograms.iter().for_each(|histogram| sum.add(histogram.read()));
        assert_eq!((sum.counts, sum.sum), (vec![2, 0], 120));
        let traces: Vec<_> =
            sum.exemplars.iter().map(|found| found.map(|found| found.trace[0])).collect();
        assert_eq!(traces, [Some(2), Some(3)]);
    }
}
