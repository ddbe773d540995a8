//! Latency histograms with one part per worker; a scrape sums the parts.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;

/// Upper bounds of the buckets in microseconds: finest around typical decision latencies, and
/// including 20 ms, Envoy's default timeout.
const BOUNDS_US: [u64; 14] = [
    50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 15_000, 20_000, 50_000, 100_000, 500_000,
    1_000_000,
];

/// Number of buckets: the bounds plus the overflow bucket.
const BUCKETS: usize = BOUNDS_US.len() + 1;

/// One worker's part of a histogram. Sharing it between workers is possible, but they would contend
/// for its cache lines.
#[derive(Debug, Default)]
pub struct Latency {
    counts: [AtomicU64; BUCKETS],
    sum_us: AtomicU64,
    exemplars: Mutex<Exemplars>,
}

/// A call that exemplifies its bucket, with its trace and span IDs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Exemplar {
    pub(super) trace: [u8; 16],
    pub(super) span: [u8; 8],
    pub(super) length: Duration,
    /// End of the call.
    pub(super) at: SystemTime,
}

/// The latest exemplar of each bucket.
pub(super) type Exemplars = [Option<Exemplar>; BUCKETS];

/// The histograms of one metric, by label value; the empty value means no label.
#[derive(Debug)]
pub(super) struct Latencies {
    name: &'static str,
    help: &'static str,
    label: &'static str,
    parts: Mutex<BTreeMap<String, Vec<Weak<Latency>>>>,
}

impl Latency {
    /// Records a duration.
    pub fn record(&self, time: Duration) {
        let us = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        if let Some(count) = self.counts.get(bucket(us)) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        self.sum_us.fetch_add(us, Ordering::Relaxed);
    }

    /// Stores the IDs of the span of a call whose duration was just [recorded](Self::record), as
    /// the exemplar of its bucket.
    pub fn remember(&self, length: Duration, trace: [u8; 16], span: [u8; 8]) {
        let us = u64::try_from(length.as_micros()).unwrap_or(u64::MAX);
        let exemplar = Exemplar { trace, span, length, at: SystemTime::now() };
        self.exemplars
            .lock()
            .get_mut(bucket(us))
            .into_iter()
            .for_each(|place| *place = Some(exemplar));
    }
}

/// Returns the bucket index of a duration in microseconds.
fn bucket(us: u64) -> usize {
    BOUNDS_US.partition_point(|bound| *bound < us)
}

impl Latencies {
    /// Creates an empty set of histograms.
    pub(super) fn new(name: &'static str, help: &'static str, label: &'static str) -> Arc<Self> {
        Arc::new(Self { name, help, label, parts: Mutex::default() })
    }

    /// Adds a part to the histogram of this label value. It counts until it is dropped.
    pub(super) fn part(&self, value: &str) -> Arc<Latency> {
        let part = Arc::new(Latency::default());
        let mut parts = self.parts.lock();
        let parts = parts.entry(value.to_owned()).or_default();
        parts.retain(|part| part.strong_count() > 0);
        parts.push(Arc::downgrade(&part));
        part
    }

    /// Returns the latest exemplars of the histogram of this label value.
    pub(super) fn exemplars(&self, value: &str) -> Exemplars {
        let parts = self.parts.lock();
        let mut latest = Exemplars::default();
        for part in parts.get(value).into_iter().flatten().filter_map(Weak::upgrade) {
            let newer = |known: Option<Exemplar>, found: Option<Exemplar>| {
                found.filter(|found| known.is_none_or(|known| known.at < found.at)).or(known)
            };
            let found = *part.exemplars.lock();
            latest.iter_mut().zip(found).for_each(|(known, found)| *known = newer(*known, found));
        }
        latest
    }

    /// Returns the non-cumulative bucket counts and the sum in microseconds.
    fn read(parts: &[Arc<Latency>]) -> (Vec<u64>, u64) {
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let all = |of: &dyn Fn(&Latency) -> u64| {
            parts.iter().map(|part| of(part)).fold(0, u64::saturating_add)
        };
        let counts =
            (0..BUCKETS).map(|bucket| all(&|part| part.counts.get(bucket).map_or(0, load)));
        (counts.collect(), all(&|part| load(&part.sum_us)))
    }
}

impl Collector for Latencies {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let mut parts = self.parts.lock();
        let mut live = BTreeMap::new();
        parts.retain(|value, parts| {
            let parts: Vec<_> = parts.iter().filter_map(Weak::upgrade).collect();
            let is_live = !parts.is_empty();
            if is_live {
                live.insert(value.clone(), parts);
            }
            is_live
        });
        drop(parts);
        if live.is_empty() {
            return Ok(());
        }
        let mut encoder = encoder.encode_descriptor(
            self.name,
            self.help,
            Some(&Unit::Seconds),
            MetricType::Histogram,
        )?;
        for (value, parts) in live {
            let (counts, sum_us) = Self::read(&parts);
            let bounds = BOUNDS_US
                .map(|us| Duration::from_micros(us).as_secs_f64())
                .into_iter()
                .chain([f64::INFINITY]);
            let buckets: Vec<_> = bounds.zip(counts).collect();
            let count = buckets.iter().map(|(_, count)| *count).fold(0, u64::saturating_add);
            let sum = Duration::from_micros(sum_us).as_secs_f64();
            match value.as_str() {
                "" => encoder.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)?,
                value => encoder
                    .encode_family(&[(self.label, value)])?
                    .encode_histogram::<NoLabelSet>(sum, count, &buckets, None)?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prometheus_client::encoding::text::encode;
    use prometheus_client::registry::Registry;

    fn text(latencies: &Arc<Latencies>) -> String {
        let mut registry = Registry::default();
        let mut text = String::new();
        registry.register_collector(Box::new(Arc::clone(latencies)));
        encode(&mut text, &registry).unwrap();
        text
    }

    #[test]
    fn the_parts_of_workers_are_added_up_and_go_with_them() {
        let latencies = Latencies::new("call", "Calls", "node");
        let one = latencies.part("a");
        let other = latencies.part("a");
        [50, 51].into_iter().for_each(|us| one.record(Duration::from_micros(us)));
        other.record(Duration::from_secs(2));
        let shown = text(&latencies);
        for line in [
            "call_seconds_sum{node=\"a\"} 2.000101",
            "call_seconds_count{node=\"a\"} 3",
            "call_seconds_bucket{le=\"0.00005\",node=\"a\"} 1",
            "call_seconds_bucket{le=\"0.0001\",node=\"a\"} 2",
            "call_seconds_bucket{le=\"1.0\",node=\"a\"} 2",
            "call_seconds_bucket{le=\"+Inf\",node=\"a\"} 3",
        ] {
            assert!(shown.lines().any(|shown| shown == line), "{line} is not in\n{shown}");
        }
        drop((one, other));
        assert_eq!(text(&latencies), "# EOF\n");
    }

    #[test]
    fn the_latest_call_of_each_bucket_that_is_traced_is_remembered() {
        let latencies = Latencies::new("call", "Calls", "");
        let one = latencies.part("");
        let other = latencies.part("");
        one.remember(Duration::from_micros(60), [1; 16], [1; 8]);
        other.remember(Duration::from_micros(70), [2; 16], [2; 8]);
        one.remember(Duration::from_secs(5), [3; 16], [3; 8]);
        let found =
            latencies.exemplars("").map(|exemplar| exemplar.map(|exemplar| exemplar.trace[0]));
        let mut expected = [None; BUCKETS];
        (expected[1], expected[BUCKETS - 1]) = (Some(2), Some(3));
        assert_eq!(found, expected);
        drop((one, other));
        assert_eq!(latencies.exemplars(""), Exemplars::default());
    }
}
