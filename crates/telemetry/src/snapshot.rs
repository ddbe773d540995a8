//! A snapshot of metrics: families of series, as a scrape shows them.

use crate::count::{Counter, FloatGauge, Gauge};
use crate::histogram::{Exemplar, HistogramReading, millionths};

/// Families of metrics at one time.
#[derive(Debug, Default)]
pub(crate) struct MetricsSnapshot {
    /// First part of the names of the families that are added.
    prefix: &'static str,
    families: Vec<MetricFamily>,
}

/// The series of one name.
#[derive(Debug)]
pub(crate) struct MetricFamily {
    /// Name, without a suffix for the type.
    pub name: String,
    /// Type.
    pub kind: MetricKind,
    /// Last part of the name, if it is a unit.
    pub unit: Option<&'static str>,
    /// Help text.
    pub help: String,
    /// Series, in the order in which they are written.
    pub series: Vec<MetricSeries>,
}

/// The type of a family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MetricKind {
    /// Only grows.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Numbers by bucket.
    Histogram,
    /// Sum and count.
    Summary,
}

/// The value of a family with certain labels.
#[derive(Debug)]
pub(crate) struct MetricSeries {
    /// Labels.
    pub labels: Labels,
    /// Value.
    pub value: SampleValue,
}

/// Labels with their values, as text: `a="b",c="d"`.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Labels(String);

/// A value.
#[derive(Debug)]
pub(crate) enum SampleValue {
    /// A count.
    Count(u64),
    /// A whole number.
    Level(i64),
    /// A number.
    Float(f64),
    /// Numbers of values by bucket.
    Distribution(Distribution),
}

/// Numbers of values by bucket.
#[derive(Debug, Default)]
pub(crate) struct Distribution {
    /// Buckets, ascending; the last one is unbounded.
    pub buckets: Vec<HistogramBucket>,
    /// Sum of all values.
    pub sum: f64,
}

/// The values up to a bound.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HistogramBucket {
    /// Upper bound.
    pub bound: f64,
    /// Number of values up to the bound.
    pub count: u64,
    /// Exemplar of the values above the previous bound.
    pub exemplar: Option<Exemplar>,
}

impl MetricsSnapshot {
    /// Begins the names of further families with `prefix`.
    pub(crate) fn set_prefix(&mut self, prefix: &'static str) {
        self.prefix = prefix;
    }

    /// Returns the families.
    pub(crate) fn families(&self) -> &[MetricFamily] {
        &self.families
    }

    /// Adds a counter.
    pub(crate) fn counter(&mut self, name: &str, help: &str, value: &Counter) {
        self.counters(name, help, vec![MetricSeries::plain(value)]);
    }

    /// Adds a gauge.
    pub(crate) fn gauge(&mut self, name: &str, help: &str, value: &Gauge) {
        self.gauges(name, help, vec![MetricSeries::plain(value)]);
    }

    /// Adds the series of a counter, if there are any.
    pub(crate) fn counters(&mut self, name: &str, help: &str, series: Vec<MetricSeries>) {
        self.add(MetricKind::Counter, name, help, series);
    }

    /// Adds the series of a gauge, if there are any.
    pub(crate) fn gauges(&mut self, name: &str, help: &str, series: Vec<MetricSeries>) {
        self.add(MetricKind::Gauge, name, help, series);
    }

    /// Adds the series of a histogram, if there are any.
    pub(crate) fn histograms(&mut self, name: &str, help: &str, series: Vec<MetricSeries>) {
        self.add(MetricKind::Histogram, name, help, series);
    }

    fn add(&mut self, kind: MetricKind, name: &str, help: &str, series: Vec<MetricSeries>) {
        if !series.is_empty() {
            self.push(kind, name, help, series);
        }
    }

    /// Adds a family, also if it has no series. A name that ends in `_seconds` has that unit.
    pub(crate) fn push(
        &mut self,
        kind: MetricKind,
        name: &str,
        help: &str,
        series: Vec<MetricSeries>,
    ) {
        self.push_family(MetricFamily {
            name: format!("{}{name}", self.prefix),
            kind,
            unit: name.ends_with("_seconds").then_some("seconds"),
            help: help.to_owned(),
            series,
        });
    }

    /// Adds a family under its full name.
    pub(crate) fn push_family(&mut self, family: MetricFamily) {
        self.families.push(family);
    }
}

impl MetricKind {
    /// Returns the name of the type.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
            Self::Summary => "summary",
        }
    }
}

impl MetricSeries {
    /// Creates a series without labels.
    pub(crate) fn plain(value: impl Into<SampleValue>) -> Self {
        Self { labels: Labels::default(), value: value.into() }
    }
}

impl SampleValue {
    /// Adds a value of the same type.
    pub(crate) fn add(&mut self, other: Self) {
        match (self, other) {
            (Self::Count(count), Self::Count(more)) => *count += more,
            (Self::Level(level), Self::Level(more)) => *level += more,
            (Self::Float(number), Self::Float(more)) => *number += more,
            (Self::Distribution(sum), Self::Distribution(more)) => {
                for (bucket, more) in sum.buckets.iter_mut().zip(more.buckets) {
                    bucket.count += more.count;
                }
                sum.sum += more.sum;
            }
            (Self::Count(_) | Self::Level(_) | Self::Float(_) | Self::Distribution(_), _) => {}
        }
    }
}

impl From<&Counter> for SampleValue {
    fn from(counter: &Counter) -> Self {
        Self::Count(counter.get())
    }
}

impl From<&Gauge> for SampleValue {
    fn from(gauge: &Gauge) -> Self {
        Self::Level(gauge.get())
    }
}

impl From<&FloatGauge> for SampleValue {
    fn from(gauge: &FloatGauge) -> Self {
        Self::Float(gauge.get())
    }
}

/// A histogram of microseconds gives seconds, and one of millionths gives ratios.
impl From<&HistogramReading> for SampleValue {
    fn from(read: &HistogramReading) -> Self {
        let exemplars = read.exemplars.iter().copied().chain(std::iter::repeat(None));
        let counts = read.cumulative().into_iter().zip(exemplars);
        let bounds = read.bounds.iter().map(|bound| millionths(*bound)).chain([f64::INFINITY]);
        let buckets = bounds.zip(counts).map(|(bound, (count, exemplar))| HistogramBucket {
            bound,
            count,
            exemplar,
        });
        Self::Distribution(Distribution { buckets: buckets.collect(), sum: millionths(read.sum) })
    }
}

impl Distribution {
    /// Returns the number of values.
    pub(crate) fn count(&self) -> u64 {
        self.buckets.last().map_or(0, |bucket| bucket.count)
    }
}

impl Labels {
    /// Returns the text.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl<'a> FromIterator<(&'a str, &'a str)> for Labels {
    fn from_iter<I: IntoIterator<Item = (&'a str, &'a str)>>(labels: I) -> Self {
        let mut text = String::new();
        for (name, value) in labels {
            let comma = if text.is_empty() { "" } else { "," };
            text.extend([comma, name, "=\""]);
            for letter in value.chars() {
                match letter {
                    '\\' => text.push_str("\\\\"),
                    '"' => text.push_str("\\\""),
                    '\n' => text.push_str("\\n"),
                    _ => text.push(letter),
                }
            }
            text.push('"');
        }
        Self(text)
    }
}
