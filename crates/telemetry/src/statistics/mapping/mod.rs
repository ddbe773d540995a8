//! Mapping of StatsD names to Prometheus names and labels, compatible with statsd_exporter and its
//! mapping files.
//!
//! Globs are tried first, then regular expressions, each in file order; the first match wins. A
//! name without a mapping is kept, with `_` in place of every character that Prometheus does not
//! allow.

mod builtin;
mod error;
mod exposition;
mod read;
#[cfg(test)]
mod tests;

use regex::{Captures, Regex};
use tollgate_yaml::report::ProblemReport;

pub use self::exposition::Exposition;
use super::StatReading;

/// Default upper bounds of histogram buckets.
const DEFAULT_BUCKETS: [f64; 11] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

/// The mappings of a file, or the built-in ones.
#[derive(Clone, Debug, Default)]
pub struct Mappings {
    globs: Vec<Mapping>,
    regexes: Vec<Mapping>,
    /// Observer of timers without a mapping.
    observer: Observer,
    buckets: Box<[f64]>,
}

/// Exposed type of a timer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Observer {
    Histogram,
    /// Sum and count; quantiles are not computed.
    #[default]
    Summary,
}

#[derive(Clone, Debug)]
struct Mapping {
    pattern: Regex,
    /// The only kind of statistic to match, if set.
    kind: Option<String>,
    is_dropped: bool,
    name: String,
    /// Sorted by name, without the labels of the process.
    labels: Vec<(String, String)>,
    help: Option<String>,
    observer: Observer,
    buckets: Box<[f64]>,
    scale: f64,
}

/// The exposed form of a statistic.
#[derive(Clone, Debug, PartialEq)]
struct Mapped {
    name: String,
    labels: Vec<(String, String)>,
    help: Option<String>,
    observer: Observer,
    buckets: Box<[f64]>,
    /// Factor applied to values.
    scale: f64,
}

impl Mappings {
    /// Returns the built-in mapping of envoyproxy/ratelimit. If `milliseconds`, the response time
    /// stays in milliseconds, despite a name that ends in `seconds`.
    pub fn builtin(milliseconds: bool) -> Self {
        read::read("built in", &builtin::text(milliseconds))
            .map(|(mappings, _)| mappings)
            .unwrap_or_default()
    }

    /// Parses the text of the mapping file named `file`. Returns the mappings, and a warning with
    /// its line for everything that is not supported.
    ///
    /// # Errors
    /// If the text is not a mapping file at all.
    pub fn read(file: &str, text: &str) -> Result<(Self, Vec<String>), ProblemReport> {
        read::read(file, text)
    }

    /// Returns the upper bounds of the named timer's buckets, in microseconds.
    pub fn buckets_of(&self, timer: &str) -> Box<[u64]> {
        let Some(mapped) = self.map(timer, "timer") else { return [].into() };
        let bounds = mapped.buckets.iter().map(|bound| micros(bound / mapped.scale));
        let mut bounds: Vec<u64> = bounds.collect();
        bounds.sort_unstable();
        bounds.into()
    }

    /// Maps a statistic. Returns `None` if it is dropped.
    fn map(&self, name: &str, kind: &str) -> Option<Mapped> {
        let mut fitting = self
            .globs
            .iter()
            .chain(&self.regexes)
            .filter(|mapping| mapping.kind.as_ref().is_none_or(|only| only == kind))
            .filter_map(|mapping| Some((mapping, mapping.pattern.captures(name)?)));
        match fitting.next() {
            Some((mapping, _)) if mapping.is_dropped => None,
            Some((mapping, captures)) => Some(mapping.apply(&captures)),
            None => Some(Mapped {
                name: valid(name),
                labels: Vec::new(),
                help: None,
                observer: self.observer,
                buckets: self.buckets.clone(),
                scale: 1.0,
            }),
        }
    }
}

impl Mapping {
    fn apply(&self, captures: &Captures<'_>) -> Mapped {
        let labels = self.labels.iter();
        Mapped {
            name: valid(&expanded(&self.name, captures)),
            labels: labels.map(|(name, text)| (name.clone(), expanded(text, captures))).collect(),
            help: self.help.clone(),
            observer: self.observer,
            buckets: self.buckets.clone(),
            scale: self.scale,
        }
    }
}

/// Returns a text with the captures in place of their references.
fn expanded(template: &str, captures: &Captures<'_>) -> String {
    let mut text = String::new();
    captures.expand(template, &mut text);
    text
}

/// Returns the kind by which mappings select statistics.
fn kind(reading: &StatReading<'_>) -> &'static str {
    match reading {
        StatReading::Counter(_) => "counter",
        StatReading::Gauge(_) => "gauge",
        StatReading::Timer(_) => "timer",
    }
}

/// Sanitizes a name for Prometheus.
fn valid(name: &str) -> String {
    let letters =
        name.chars().map(|letter| if letter.is_ascii_alphanumeric() { letter } else { '_' });
    let begins_with_digit = name.starts_with(|letter: char| letter.is_ascii_digit());
    begins_with_digit.then_some('_').into_iter().chain(letters).collect()
}

/// Rounds milliseconds to whole microseconds.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a cast from a float saturates; a bound is not negative"
)]
fn micros(ms: f64) -> u64 {
    (ms * 1000.0).round() as u64
}
