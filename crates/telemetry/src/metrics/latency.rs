//! Latency histograms with one part per worker; a scrape sums the parts.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;

use crate::histogram::{Exemplar, Histogram, HistogramReading};

/// Upper bounds of the buckets in microseconds: finest around typical decision latencies, and
/// including 20 ms, Envoy's default timeout.
const BOUNDS_US: [u64; 14] = [
    50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 15_000, 20_000, 50_000, 100_000, 500_000,
    1_000_000,
];

/// The histograms of one metric, by label value; the empty value means no label.
#[derive(Debug)]
pub(super) struct Latencies {
    name: &'static str,
    help: &'static str,
    label: &'static str,
    parts: Mutex<BTreeMap<String, Vec<Weak<Histogram>>>>,
}

impl Latencies {
    /// Creates an empty set of histograms.
    pub(super) fn new(name: &'static str, help: &'static str, label: &'static str) -> Arc<Self> {
        Arc::new(Self { name, help, label, parts: Mutex::default() })
    }

    /// Adds a part to the histogram of this label value. It counts until it is dropped.
    pub(super) fn part(&self, value: &str) -> Arc<Histogram> {
        let part = Arc::new(Histogram::new(&BOUNDS_US));
        let mut parts = self.parts.lock();
        let parts = parts.entry(value.to_owned()).or_default();
        parts.retain(|part| part.strong_count() > 0);
        parts.push(Arc::downgrade(&part));
        part
    }

    /// Returns the latest exemplars of the histogram of this label value.
    pub(super) fn exemplars(&self, value: &str) -> Vec<Option<Exemplar>> {
        self.read().remove(value).unwrap_or_default().exemplars
    }

    /// Returns the sum of the parts by label value, without the values that have no parts anymore.
    fn read(&self) -> BTreeMap<String, HistogramReading> {
        let mut sums = BTreeMap::<String, HistogramReading>::new();
        self.parts.lock().retain(|value, parts| {
            parts.retain(|part| part.strong_count() > 0);
            for part in parts.iter().filter_map(Weak::upgrade) {
                sums.entry(value.clone()).or_default().add(part.read());
            }
            !parts.is_empty()
        });
        sums
    }
}

impl Collector for Latencies {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let sums = self.read();
        if sums.is_empty() {
            return Ok(());
        }
        let mut encoder = encoder.encode_descriptor(
            self.name,
            self.help,
            Some(&Unit::Seconds),
            MetricType::Histogram,
        )?;
        for (value, read) in sums {
            let bounds = BOUNDS_US
                .map(|us| Duration::from_micros(us).as_secs_f64())
                .into_iter()
                .chain([f64::INFINITY]);
            let buckets: Vec<_> = bounds.zip(read.counts.iter().copied()).collect();
            let count = read.count();
            let sum = Duration::from_micros(read.sum).as_secs_f64();
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
}
