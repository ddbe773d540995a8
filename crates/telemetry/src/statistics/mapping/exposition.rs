//! Statistics in the Prometheus text format, version 0.0.4. OpenMetrics would append `_total` to
//! the names of counters, and the dashboards query the names without it.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::sync::Arc;

use parking_lot::Mutex;

use super::{Mapped, Mappings, Observer, kind, valid};
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
#[derive(Default)]
struct Family {
    kind: &'static str,
    help: Option<String>,
    /// Keyed by the label text.
    series: BTreeMap<String, SeriesValue>,
}

/// The value of one series; statistics that map to the same labels are summed.
enum SeriesValue {
    Number(f64),
    Times { buckets: Vec<(f64, f64)>, sum: f64, count: f64 },
}

impl Exposition {
    /// Creates an exposition. `tags` become labels of every series, with sanitized names.
    pub fn new(stats: Arc<Stats>, mappings: Mappings, tags: Vec<(String, String)>) -> Self {
        let tags = tags.into_iter().map(|(name, value)| (valid(&name), value)).collect();
        Self { stats, mappings, tags, known: Mutex::default() }
    }

    /// Renders the text.
    pub fn render(&self) -> String {
        let mut families = BTreeMap::<String, Family>::new();
        let mut known = self.known.lock();
        self.stats.visit(|name, reading| {
            if matches!(reading, StatReading::Counter(counter) if counter.get() == 0) {
                return;
            }
            let place = (name.to_owned(), kind(&reading));
            let mapped = known
                .entry(place)
                .or_insert_with_key(|(name, kind)| self.mappings.map(name, kind).map(Arc::new));
            if let Some(mapped) = mapped {
                self.add(&mut families, mapped, reading);
            }
        });
        drop(known);
        families.iter().map(|(name, family)| family.text(name)).collect()
    }

    fn add(
        &self,
        families: &mut BTreeMap<String, Family>,
        mapped: &Mapped,
        reading: StatReading<'_>,
    ) {
        let (kind, value) = match reading {
            StatReading::Counter(counter) => {
                ("counter", SeriesValue::Number(float(counter.get()) * mapped.scale))
            }
            StatReading::Gauge(value) => (
                "gauge",
                SeriesValue::Number(
                    float(value.unsigned_abs()).copysign(sign(value)) * mapped.scale,
                ),
            ),
            StatReading::Timer(timer) => {
                let histogram = timer.read();
                if histogram.count() == 0 {
                    return;
                }
                let in_unit = |us: u64| float(us) / 1000.0 * mapped.scale;
                let buckets = mapped
                    .buckets
                    .iter()
                    .zip(histogram.cumulative())
                    .map(|(bound, count)| (*bound, float(count)));
                let sum = in_unit(histogram.sum);
                let count = float(histogram.count());
                let kind = match mapped.observer {
                    Observer::Histogram => "histogram",
                    Observer::Summary => "summary",
                };
                (kind, SeriesValue::Times { buckets: buckets.collect(), sum, count })
            }
        };
        let family = families
            .entry(mapped.name.clone())
            .or_insert_with(|| Family { kind, ..Family::default() });
        // A name has a single kind; statsd_exporter, too, keeps the first and drops the others.
        if family.kind == kind {
            family.help = family.help.take().or_else(|| mapped.help.clone());
            let labels = self.labels(mapped);
            match family.series.get_mut(&labels) {
                Some(old) => old.add(value),
                None => drop(family.series.insert(labels, value)),
            }
        }
    }

    /// Returns the labels as text, sorted, without braces. A mapping's own label takes precedence.
    fn labels(&self, mapped: &Mapped) -> String {
        let own = mapped.labels.iter().map(|(name, value)| (name, value));
        let all: BTreeMap<_, _> =
            self.tags.iter().map(|(name, value)| (name, value)).chain(own).collect();
        let labels = all.iter().map(|(name, value)| {
            format!(
                "{name}=\"{}\"",
                value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
            )
        });
        labels.collect::<Vec<_>>().join(",")
    }
}

impl SeriesValue {
    fn add(&mut self, more: Self) {
        match (self, more) {
            (Self::Number(number), Self::Number(more)) => *number += more,
            (
                Self::Times { buckets, sum, count },
                Self::Times { buckets: others, sum: more, count: number },
            ) => {
                buckets.iter_mut().zip(others).for_each(|((_, count), (_, more))| *count += more);
                *sum += more;
                *count += number;
            }
            (Self::Number(_) | Self::Times { .. }, _) => {}
        }
    }
}

impl Family {
    fn text(&self, name: &str) -> String {
        let help = self.help.as_deref().unwrap_or(HELP).replace('\\', "\\\\").replace('\n', "\\n");
        let mut text = format!("# HELP {name} {help}\n# TYPE {name} {}\n", self.kind);
        for (labels, value) in &self.series {
            match value {
                SeriesValue::Number(number) => line(&mut text, name, labels, *number),
                SeriesValue::Times { buckets, sum, count } => {
                    if self.kind == "histogram" {
                        let comma = if labels.is_empty() { "" } else { "," };
                        let all = buckets.iter().map(|(bound, count)| (bound.to_string(), *count));
                        for (bound, count) in all.chain([("+Inf".to_owned(), *count)]) {
                            line(
                                &mut text,
                                &format!("{name}_bucket"),
                                &format!("{labels}{comma}le=\"{bound}\""),
                                count,
                            );
                        }
                    }
                    line(&mut text, &format!("{name}_sum"), labels, *sum);
                    line(&mut text, &format!("{name}_count"), labels, *count);
                }
            }
        }
        text
    }
}

fn line(text: &mut String, name: &str, labels: &str, number: f64) {
    // Writing to a `String` cannot fail.
    let _ = match labels {
        "" => writeln!(text, "{name} {number}"),
        _ => writeln!(text, "{name}{{{labels}}} {number}"),
    };
}

fn sign(value: i64) -> f64 {
    if value < 0 { -1.0 } else { 1.0 }
}

/// Converts to a float, exactly up to 2^53; Prometheus values are floats.
#[allow(clippy::cast_precision_loss, reason = "Prometheus has floats only")]
fn float(number: u64) -> f64 {
    number as f64
}
