//! Snapshots as text for Prometheus.
//!
//! No crate is used: prometheus-client 0.25 does not write version 0.0.4 of the format, nor names
//! that statistics need, and exemplars only of its own histograms, which lock.

use std::fmt::{self, Display};
use std::time::SystemTime;

use crate::histogram::{Exemplar, micros, millionths};
use crate::snapshot::{
    HistogramBucket, MetricFamily, MetricKind, MetricSeries, MetricsSnapshot, SampleValue,
};

/// A text format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TextFormat {
    /// OpenMetrics 1.0, with exemplars.
    OpenMetrics,
    /// Prometheus 0.0.4, for scrapers that do not request OpenMetrics, such as `promtool`. The
    /// names of counters end in `_total`, as in OpenMetrics.
    Prometheus,
    /// Prometheus 0.0.4, in the form of statsd_exporter: names of counters have no suffix, since
    /// dashboards query them without.
    StatsdExporter,
}

impl MetricsSnapshot {
    /// Renders the text, without spare capacity: clients that read slowly hold it.
    pub(crate) fn text(&self, format: TextFormat) -> String {
        let mut text = SnapshotText { snapshot: self, format }.to_string();
        text.shrink_to_fit();
        text
    }
}

/// A snapshot in a format.
struct SnapshotText<'a> {
    snapshot: &'a MetricsSnapshot,
    format: TextFormat,
}

impl Display for SnapshotText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut writer = TextWriter { format: self.format, text: f };
        self.snapshot.families().iter().try_for_each(|family| writer.family(family))?;
        match self.format {
            TextFormat::OpenMetrics => f.write_str("# EOF\n"),
            TextFormat::Prometheus | TextFormat::StatsdExporter => Ok(()),
        }
    }
}

/// Writes families.
struct TextWriter<'a, 'f> {
    format: TextFormat,
    text: &'a mut fmt::Formatter<'f>,
}

impl TextWriter<'_, '_> {
    fn family(&mut self, family: &MetricFamily) -> fmt::Result {
        let MetricFamily { name, kind, unit, help, series } = family;
        let is_counter = *kind == MetricKind::Counter;
        let sample = match self.format {
            TextFormat::OpenMetrics | TextFormat::Prometheus if is_counter => {
                format!("{name}_total")
            }
            TextFormat::OpenMetrics | TextFormat::Prometheus | TextFormat::StatsdExporter => {
                name.clone()
            }
        };
        // OpenMetrics has the suffix in the names of samples only.
        let header = if self.format == TextFormat::OpenMetrics { name } else { &sample };
        let help = help.replace('\\', "\\\\").replace('\n', "\\n");
        writeln!(self.text, "# HELP {header} {help}\n# TYPE {header} {}", kind.name())?;
        if let Some(unit) = unit {
            writeln!(self.text, "# UNIT {header} {unit}")?;
        }
        series.iter().try_for_each(|series| self.series(&sample, *kind, series))
    }

    fn series(&mut self, name: &str, kind: MetricKind, series: &MetricSeries) -> fmt::Result {
        let labels = series.labels.as_str();
        match &series.value {
            SampleValue::Count(count) => self.line(name, "", labels, count),
            SampleValue::Level(level) => self.line(name, "", labels, level),
            SampleValue::Float(number) => self.line(name, "", labels, &self.number(*number)),
            SampleValue::Distribution(distribution) => {
                if kind == MetricKind::Histogram {
                    for bucket in &distribution.buckets {
                        self.bucket(name, labels, bucket)?;
                    }
                }
                self.line(name, "_sum", labels, &self.number(distribution.sum))?;
                self.line(name, "_count", labels, &distribution.count())
            }
        }
    }

    fn bucket(&mut self, name: &str, labels: &str, bucket: &HistogramBucket) -> fmt::Result {
        let HistogramBucket { bound, count, exemplar } = bucket;
        let comma = if labels.is_empty() { "" } else { "," };
        let bound = self.number(*bound);
        let labels = match self.format {
            TextFormat::StatsdExporter => format!("{labels}{comma}le=\"{bound}\""),
            TextFormat::OpenMetrics | TextFormat::Prometheus => {
                format!("le=\"{bound}\"{comma}{labels}")
            }
        };
        match exemplar {
            Some(exemplar) if self.format == TextFormat::OpenMetrics => {
                self.line(name, "_bucket", &labels, &format_args!("{count} # {exemplar}"))
            }
            _ => self.line(name, "_bucket", &labels, count),
        }
    }

    /// Formats a number. A whole one is `1.0`, as in Prometheus client libraries, or `1`.
    fn number(&self, number: f64) -> String {
        if number == f64::INFINITY {
            "+Inf".to_owned()
        } else if number.fract() == 0.0 && self.format != TextFormat::StatsdExporter {
            format!("{number:.1}")
        } else {
            number.to_string()
        }
    }

    fn line(&mut self, name: &str, suffix: &str, labels: &str, value: &dyn Display) -> fmt::Result {
        match labels {
            "" => writeln!(self.text, "{name}{suffix} {value}"),
            _ => writeln!(self.text, "{name}{suffix}{{{labels}}} {value}"),
        }
    }
}

/// Formats `{trace_id="..",span_id=".."} SECONDS TIMESTAMP`.
impl Display for Exemplar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let trace = u128::from_be_bytes(self.trace);
        let span = u64::from_be_bytes(self.span);
        // As it was counted, so that it is within its bucket.
        let seconds = millionths(micros(self.length));
        let at = self.at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs_f64();
        write!(f, "{{trace_id=\"{trace:032x}\",span_id=\"{span:016x}\"}} {seconds} {at:.3}")
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::count::Counter;
    use crate::histogram::HistogramReading;

    fn snapshot() -> MetricsSnapshot {
        let mut snapshot = MetricsSnapshot::default();
        let count = Counter::default();
        count.inc_by(3);
        let labels = [("c", "a\"b\\c\nd"), ("e", "f")].into_iter().collect();
        snapshot.counters("a_b", "Of a. b.", vec![MetricSeries { labels, value: (&count).into() }]);
        let length = Duration::from_micros(150);
        let at = SystemTime::UNIX_EPOCH + Duration::from_millis(1_780_000_000_137);
        let exemplar = Exemplar { trace: [0x0a; 16], span: [0xb7; 8], length, at };
        let read = HistogramReading {
            bounds: vec![100, 1_000_000].into(),
            counts: vec![1, 2, 0],
            sum: 350,
            exemplars: vec![None, Some(exemplar), None],
        };
        let labels = [("node", "n")].into_iter().collect();
        snapshot.histograms(
            "h_seconds",
            "Of h.",
            vec![MetricSeries { labels, value: (&read).into() }],
        );
        snapshot
    }

    #[test]
    fn open_metrics_has_exemplars_and_suffixes_of_samples() {
        insta::assert_snapshot!(snapshot().text(TextFormat::OpenMetrics), @r#"
        # HELP a_b Of a. b.
        # TYPE a_b counter
        a_b_total{c="a\"b\\c\nd",e="f"} 3
        # HELP h_seconds Of h.
        # TYPE h_seconds histogram
        # UNIT h_seconds seconds
        h_seconds_bucket{le="0.0001",node="n"} 1
        h_seconds_bucket{le="1.0",node="n"} 3 # {trace_id="0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a",span_id="b7b7b7b7b7b7b7b7"} 0.00015 1780000000.137
        h_seconds_bucket{le="+Inf",node="n"} 3
        h_seconds_sum{node="n"} 0.00035
        h_seconds_count{node="n"} 3
        # EOF
        "#);
    }

    #[test]
    fn the_older_format_names_counters_as_their_samples_are() {
        insta::assert_snapshot!(snapshot().text(TextFormat::Prometheus), @r#"
        # HELP a_b_total Of a. b.
        # TYPE a_b_total counter
        a_b_total{c="a\"b\\c\nd",e="f"} 3
        # HELP h_seconds Of h.
        # TYPE h_seconds histogram
        # UNIT h_seconds seconds
        h_seconds_bucket{le="0.0001",node="n"} 1
        h_seconds_bucket{le="1.0",node="n"} 3
        h_seconds_bucket{le="+Inf",node="n"} 3
        h_seconds_sum{node="n"} 0.00035
        h_seconds_count{node="n"} 3
        "#);
    }

    #[test]
    fn the_format_of_statsd_exporter_has_no_suffixes() {
        insta::assert_snapshot!(snapshot().text(TextFormat::StatsdExporter), @r#"
        # HELP a_b Of a. b.
        # TYPE a_b counter
        a_b{c="a\"b\\c\nd",e="f"} 3
        # HELP h_seconds Of h.
        # TYPE h_seconds histogram
        # UNIT h_seconds seconds
        h_seconds_bucket{node="n",le="0.0001"} 1
        h_seconds_bucket{node="n",le="1"} 3
        h_seconds_bucket{node="n",le="+Inf"} 3
        h_seconds_sum{node="n"} 0.00035
        h_seconds_count{node="n"} 3
        "#);
    }
}
