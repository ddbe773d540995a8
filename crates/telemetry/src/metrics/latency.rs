//! Latency histograms with one part per worker; a scrape sums the parts.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::histogram::{Histogram, HistogramReading};
use crate::snapshot::MetricSeries;

/// Upper bounds of the buckets in microseconds: finest around typical decision latencies, and
/// including 20 ms, Envoy's default timeout.
const BOUNDS_US: [u64; 14] = [
    50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 15_000, 20_000, 50_000, 100_000, 500_000,
    1_000_000,
];

/// The histograms of one metric, by the value of a label; the empty value means no label.
#[derive(Debug, Default)]
pub(super) struct Latencies(Mutex<BTreeMap<String, Parts>>);

/// The parts of a histogram.
#[derive(Debug, Default)]
struct Parts {
    /// Each is here and at its worker, until that ends.
    living: Vec<Arc<Histogram>>,
    /// The sum of those whose workers have ended: without them, the counts would fall.
    ended: HistogramReading,
}

impl Latencies {
    /// Adds a part to the histogram of this label value. It counts until the last part is dropped.
    pub(super) fn part(&self, value: &str) -> Arc<Histogram> {
        let part = Arc::new(Histogram::new(&BOUNDS_US));
        let mut parts = self.0.lock();
        let parts = parts.entry(value.to_owned()).or_default();
        parts.settle();
        parts.living.push(Arc::clone(&part));
        part
    }

    /// Returns the sums of the parts, without those of label values that have no parts anymore.
    pub(super) fn series(&self, label: &'static str) -> Vec<MetricSeries> {
        let mut series = Vec::new();
        self.0.lock().retain(|value, parts| {
            parts.settle();
            if parts.living.is_empty() {
                return false;
            }
            let mut sum = parts.ended.clone();
            parts.living.iter().for_each(|part| sum.add(part.read()));
            let labels =
                [(label, value.as_str())].into_iter().filter(|(_, value)| !value.is_empty());
            series.push(MetricSeries { labels: labels.collect(), value: (&sum).into() });
            true
        });
        series
    }
}

impl Parts {
    /// Adds up the parts whose workers have ended.
    fn settle(&mut self) {
        self.living.retain(|part| {
            let is_living = Arc::strong_count(part) > 1;
            if !is_living {
                self.ended.add(part.read());
            }
            is_living
        });
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::exposition::TextFormat;
    use crate::snapshot::MetricsSnapshot;

    fn text(latencies: &Latencies) -> String {
        let mut snapshot = MetricsSnapshot::default();
        snapshot.histograms("call_seconds", "Calls.", latencies.series("node"));
        snapshot.text(TextFormat::OpenMetrics)
    }

    #[test]
    fn the_parts_of_workers_are_added_up_and_go_with_them() {
        let latencies = Latencies::default();
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
        drop(one);
        assert_eq!(text(&latencies), shown, "the counts of a worker that has ended stay");
        drop(other);
        assert_eq!(text(&latencies), "# EOF\n");
    }
}
