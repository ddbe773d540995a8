//! Parser of mapping files. Anything unsupported is reported with its line, and the rest is used.

use std::fmt::Display;

use regex::Regex;
use tollgate_yaml::Source;
use tollgate_yaml::report::{Findings, ProblemReport, line_of, text_of};
use tollgate_yaml::tree::Tree;
use tollgate_yaml::value::YamlValue;

use super::{DEFAULT_BUCKETS, Mapping, Mappings, Observer};

/// Fields without effect: statistics never expire, and there is a single matcher.
const WITHOUT_EFFECT: [&str; 5] =
    ["ttl", "quantiles", "summary_options", "honor_labels", "glob_disable_ordering"];
const FIELDS: [&str; 13] = [
    "match",
    "match_type",
    "match_metric_type",
    "name",
    "labels",
    "help",
    "action",
    "scale",
    "observer_type",
    "timer_type",
    "buckets",
    "histogram_options",
    "native_histogram",
];

/// Parser state of one file.
struct MappingReader<'a> {
    source: &'a Source,
    warnings: Vec<String>,
}

/// Defaults of mappings that do not override them.
struct Defaults {
    observer: Observer,
    buckets: Box<[f64]>,
    is_regex: bool,
}

/// Parses a mapping file. Returns the mappings and warnings.
///
/// # Errors
/// If the text is not a mapping file at all.
pub(super) fn read(file: &str, text: &str) -> Result<(Mappings, Vec<String>), String> {
    let source = Source { name: file.to_owned(), text: text.to_owned() };
    let mut findings = Findings::default();
    let tree = Tree::parse(0, text_of(&source), &mut findings);
    if findings.errors() > 0 {
        return Err(first_of(&findings.report(std::slice::from_ref(&source))));
    }
    let mut reader = MappingReader { source: &source, warnings: Vec::new() };
    let Some(root) = YamlValue::first(&tree) else {
        return Ok((Mappings::default(), reader.warnings));
    };
    if root.pairs().is_none() {
        return Err(reader.at(root, "expected `mappings:`, and optionally `defaults:`"));
    }
    for (field, value) in root.pairs().into_iter().flatten() {
        if !["mappings", "defaults"].contains(&field) {
            reader.warn(value, format!("`{field}` is unknown and has no effect"));
        }
    }
    let mut defaults =
        Defaults { observer: Observer::Summary, buckets: DEFAULT_BUCKETS.into(), is_regex: false };
    if let Some(written) = root.get("defaults") {
        defaults.observer = reader.observer(written).unwrap_or(defaults.observer);
        defaults.buckets = reader.buckets(written).unwrap_or(defaults.buckets);
        defaults.is_regex = reader.is_regex(written).unwrap_or(defaults.is_regex);
        reader.without_effect(
            written,
            &["observer_type", "timer_type", "buckets", "match_type", "histogram_options"],
        );
    }
    let mut mappings = Mappings {
        observer: defaults.observer,
        buckets: defaults.buckets.clone(),
        ..Mappings::default()
    };
    for written in root.get("mappings").and_then(YamlValue::items).into_iter().flatten() {
        let is_regex = reader.is_regex(written).unwrap_or(defaults.is_regex);
        match reader.mapping(written, &defaults, is_regex) {
            Ok(mapping) if is_regex => mappings.regexes.push(mapping),
            Ok(mapping) => mappings.globs.push(mapping),
            Err(what) => reader.warn(written, format!("mapping ignored: {what}")),
        }
    }
    Ok((mappings, reader.warnings))
}

impl MappingReader<'_> {
    fn warn(&mut self, at: YamlValue<'_>, what: impl Display) {
        self.warnings.push(self.at(at, what));
    }

    /// Returns a message with the file and the line of a value.
    fn at(&self, value: YamlValue<'_>, what: impl Display) -> String {
        format!("{}:{}: {what}", self.source.name, line_of(value.span(), self.source))
    }

    fn mapping(
        &mut self,
        written: YamlValue<'_>,
        defaults: &Defaults,
        is_regex: bool,
    ) -> Result<Mapping, String> {
        let text = |field: &str| written.get(field).and_then(YamlValue::text);
        let pattern = text("match").ok_or("missing `match`")?;
        let pattern = if is_regex { pattern.to_owned() } else { glob(pattern)? };
        let pattern = Regex::new(&pattern).map_err(|error| error.to_string())?;
        let is_dropped = match text("action") {
            None | Some("map" | "") => false,
            Some("drop") => true,
            Some(other) => return Err(format!("expected action map or drop, found `{other}`")),
        };
        let name = text("name").unwrap_or_default().to_owned();
        if name.is_empty() && !is_dropped {
            return Err("missing `name`".into());
        }
        let kind = match text("match_metric_type") {
            None | Some("") => None,
            Some(kind @ ("counter" | "gauge")) => Some(kind.to_owned()),
            Some("timer" | "observer") => Some("timer".to_owned()),
            Some(other) => {
                return Err(format!(
                    "expected match_metric_type counter, gauge or observer, found `{other}`"
                ));
            }
        };
        let scale = match text("scale").map(str::parse::<f64>) {
            None => 1.0,
            Some(Ok(scale)) if scale.is_finite() && scale > 0.0 => scale,
            Some(_) => return Err("expected `scale` to be a number above 0".into()),
        };
        self.without_effect(written, &FIELDS);
        Ok(Mapping {
            pattern,
            kind,
            is_dropped,
            name,
            labels: labels(written)?,
            help: text("help").map(str::to_owned),
            observer: self.observer(written).unwrap_or(defaults.observer),
            buckets: self.buckets(written).unwrap_or_else(|| defaults.buckets.clone()),
            scale,
        })
    }

    fn is_regex(&mut self, written: YamlValue<'_>) -> Option<bool> {
        let value = written.get("match_type")?;
        match value.text() {
            Some("glob" | "") => Some(false),
            Some("regex") => Some(true),
            _ => {
                self.warn(value, "expected match_type glob or regex");
                None
            }
        }
    }

    fn observer(&mut self, written: YamlValue<'_>) -> Option<Observer> {
        // Older files use `timer_type`.
        let value = written.get("observer_type").or_else(|| written.get("timer_type"))?;
        match value.text() {
            Some("histogram") => Some(Observer::Histogram),
            Some("summary" | "") => Some(Observer::Summary),
            _ => {
                self.warn(value, "expected observer_type histogram or summary");
                None
            }
        }
    }

    fn buckets(&mut self, written: YamlValue<'_>) -> Option<Box<[f64]>> {
        let in_options =
            written.get("histogram_options").and_then(|options| options.get("buckets"));
        let value = in_options.or_else(|| written.get("buckets"))?;
        let bounds = value.items().map(|items| items.map(|item| item.text()?.parse::<f64>().ok()));
        let bounds: Option<Vec<f64>> = bounds.and_then(Iterator::collect);
        match bounds.filter(|bounds| {
            !bounds.is_empty() && bounds.is_sorted() && bounds.iter().all(|bound| bound.is_finite())
        }) {
            Some(bounds) => Some(bounds.into()),
            None => {
                self.warn(value, "expected buckets to be ascending numbers");
                None
            }
        }
    }

    fn without_effect(&mut self, written: YamlValue<'_>, known: &[&str]) {
        for (field, value) in
            written.pairs().into_iter().flatten().filter(|(field, _)| !known.contains(field))
        {
            // A TTL of 0 disables expiry, so there is nothing to warn about.
            if field == "ttl"
                && value.text().is_some_and(|ttl| {
                    ttl.trim_start_matches('0').trim_start_matches('s').is_empty()
                })
            {
                continue;
            }
            let reason =
                if WITHOUT_EFFECT.contains(&field) { "is not supported" } else { "is unknown" };
            self.warn(value, format!("`{field}` {reason} and has no effect"));
        }
    }
}

/// Returns the first problem of a file, in one line.
fn first_of(report: &ProblemReport) -> String {
    let Some(problem) = report.iter().next() else { return String::new() };
    match problem.place() {
        Some((file, Some((line, _)))) => format!("{file}:{line}: {}", problem.message()),
        Some((file, None)) => format!("{file}: {}", problem.message()),
        None => problem.message().to_owned(),
    }
}

fn labels(written: YamlValue<'_>) -> Result<Vec<(String, String)>, String> {
    let mut labels = Vec::new();
    for (name, value) in written.get("labels").and_then(YamlValue::pairs).into_iter().flatten() {
        let is_valid = |(at, letter): (usize, char)| {
            letter == '_' || letter.is_ascii_alphabetic() || (at > 0 && letter.is_ascii_digit())
        };
        if name.is_empty() || !name.chars().enumerate().all(is_valid) {
            return Err(format!("`{name}` is not a valid label name"));
        }
        labels.push((
            name.to_owned(),
            value.text().ok_or("expected a label value to be a string")?.to_owned(),
        ));
    }
    labels.sort();
    Ok(labels)
}

/// Converts a glob to a regular expression; `*` matches one level of the name.
fn glob(pattern: &str) -> Result<String, String> {
    let level = |level: &str| match level {
        "*" => Ok("([^.]*)".to_owned()),
        _ if level.contains('*') => Err(format!("a `*` must be a whole level, found `{level}`")),
        _ => Ok(regex::escape(level)),
    };
    let levels: Result<Vec<String>, String> = pattern.split('.').map(level).collect();
    Ok(format!("^{}$", levels?.join(r"\.")))
}
