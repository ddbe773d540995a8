//! Statistics as metrics of Prometheus.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use parking_lot::Mutex;

use super::{Mapped, Mappings, Observer, kind, valid};
use crate::exposition::TextFormat;
use crate::snapshot::{
    Distribution, HistogramBucket, Labels, MetricFamily, MetricKind, MetricSeries, MetricsSnapshot,
    SampleValue,
};
use crate::statistics::{StatReading, Stats};

/// Default help text of a family.
const HELP: &str = "A statistic of envoyproxy/ratelimit.";

/// Mapped names by name and kind; `None` if the statistic is dropped.
type KnownNames = HashMap<(String, &'static str), Option<Arc<Mapped>>>;

/// Renders statistics for Prometheus.
pub struct Exposition {
    stats: Arc<Stats>,
    mappings: Mappings,
    /// Labels of every series.
    tags: Vec<(String, String)>,
    /// Cache of mapped names, one entry per statistic. Only scrapes take this lock.
    known: Mutex<KnownNames>,
}

/// The series of one name.
struct MappedFamily {
    kind: MetricKind,
    help: Option<String>,
    series: BTreeMap<Labels, SampleValue>,
}

impl Exposition {
    /// Creates an exposition. `tags` become labels of every series, with sanitized names.
    pub fn new(stats: Arc<Stats>, mappings: Mappings, tags: Vec<(String, String)>) -> Self {
        let tags = tags.into_iter().map(|(name, value)| (valid(&name), value)).collect();
        Self { stats, mappings, tags, known: Mutex::default() }
    }

    /// Renders the text.
    pub fn render(&self) -> String {
        let mut families = BTreeMap::<String, MappedFamily>::new();
        let mut known = self.known.lock();
        self.stats.visit(|name, reading| {
            if matches!(reading, StatReading::Counter(counter) if counter.get() == 0) {
                return;
            }
            let place = (name.to_owned(), kind(&reading));
            let mapped = known
                .entry(place)
                .or_insert_with_key(|(name, kind)| self.mappings.map(name, kind).map(Arc::new));
            if let Some(mapped) = mapped
                && let Some((kind, value)) = sample(mapped, reading)
            {
                let family = families.entry(mapped.name.clone()).or_insert_with(|| MappedFamily {
                    kind,
                    help: None,
                    series: BTreeMap::new(),
                });
                family.add(kind, mapped, self.labels(mapped), value);
            }
        });
        drop(known);
        let mut snapshot = MetricsSnapshot::default();
        for (name, family) in families {
            snapshot.push_family(family.named(name));
        }
        // Writing to a `String` cannot fail.
        snapshot.text(TextFormat::StatsdExporter)
    }

    /// Returns the labels, sorted. A mapping's own label takes precedence.
    fn labels(&self, mapped: &Mapped) -> Labels {
        let all: BTreeMap<_, _> = self
            .tags
            .iter()
            .chain(&mapped.labels)
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .collect();
        all.into_iter().collect()
    }
}

impl MappedFamily {
    /// Adds a value. A name has a single kind; statsd_exporter, too, keeps the first and drops the
    /// others.
    fn add(&mut self, kind: MetricKind, mapped: &Mapped, labels: Labels, value: SampleValue) {
        if self.kind != kind {
            return;
        }
        if self.help.is_none() {
            self.help.clone_from(&mapped.help);
        }
        match self.series.get_mut(&labels) {
            Some(sum) => sum.add(value),
            None => drop(self.series.insert(labels, value)),
        }
    }

    fn named(self, name: String) -> MetricFamily {
        let series = self.series.into_iter();
        MetricFamily {
            name,
            kind: self.kind,
            unit: None,
            help: self.help.unwrap_or_else(|| HELP.to_owned()),
            series: series.map(|(labels, value)| MetricSeries { labels, value }).collect(),
        }
    }
}

/// Returns the value of a statistic with the kind of its family; `None` for a timer without values.
fn sample(mapped: &Mapped, reading: StatReading<'_>) -> Option<(MetricKind, SampleValue)> {
    let scale = mapped.scale;
    match reading {
        StatReading::Counter(counter) => {
            Some((MetricKind::Counter, SampleValue::Float(float(counter.get()) * scale)))
        }
        StatReading::Gauge(value) => {
            let value = float(value.unsigned_abs()).copysign(sign(value));
            Some((MetricKind::Gauge, SampleValue::Float(value * scale)))
        }
        StatReading::Timer(timer) => {
            let read = timer.read();
            if read.count() == 0 {
                return None;
            }
            let bounds = mapped.buckets.iter().copied().chain([f64::INFINITY]);
            let buckets = bounds
                .zip(read.cumulative())
                .map(|(bound, count)| HistogramBucket { bound, count, exemplar: None })
                .collect();
            let sum = float(read.sum) / 1000.0 * scale;
            let kind = match mapped.observer {
                Observer::Histogram => MetricKind::Histogram,
                Observer::Summary => MetricKind::Summary,
            };
            Some((kind, SampleValue::Distribution(Distribution { buckets, sum })))
        }
    }
}

fn sign(value: i64) -> f64 {
    if value < 0 { -1.0 } else { 1.0 }
}

/// Converts to a float, exactly up to 2^53; Prometheus values are floats.
#[allow(clippy::cast_precision_loss, reason = "Prometheus has floats only")]
fn float(number: u64) -> f64 {
    number as f64
}
