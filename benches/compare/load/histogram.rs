//! Latency histogram with buckets at most 1.6 % wide.

use std::time::Duration;

/// Buckets per power of two.
const STEPS: u64 = 64;
/// Number of buckets, enough for an hour in nanoseconds.
const BUCKETS: usize = 64 * 40;

#[derive(Clone, Debug)]
pub(crate) struct Histogram {
    counts: Vec<u64>,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { counts: vec![0; BUCKETS] }
    }
}

impl Histogram {
    pub(crate) fn add(&mut self, time: Duration) {
        self.counts[bucket(time).min(BUCKETS - 1)] += 1;
    }

    pub(super) fn add_all(&mut self, other: &Self) {
        self.counts.iter_mut().zip(&other.counts).for_each(|(count, more)| *count += more);
    }

    /// Returns the latency that the fraction `part` of all calls does not exceed.
    pub(crate) fn quantile(&self, part: f64) -> Duration {
        let wanted = (self.counts.iter().sum::<u64>() as f64 * part).ceil() as u64;
        let mut seen = 0;
        let reaches = |count: &u64| {
            seen += count;
            seen >= wanted.max(1)
        };
        self.counts.iter().position(reaches).map(top).unwrap_or_default()
    }
}

fn bucket(time: Duration) -> usize {
    let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    let shift = u64::from((ns | STEPS).ilog2() - STEPS.ilog2());
    (shift * STEPS + (ns >> shift)) as usize
}

/// Returns the upper bound of a bucket.
fn top(bucket: usize) -> Duration {
    let bucket = bucket as u64;
    let shift = (bucket / STEPS).saturating_sub(1);
    Duration::from_nanos(((bucket - shift * STEPS + 1) << shift) - 1)
}
