//! Parser of mapping files. Anything unsupported is reported with its line, and the rest is used.

use std::fmt::Display;

use regex::Regex;
use tollgate_yaml::Source;
use tollgate_yaml::report::{Finding, Findings, ProblemReport, line_of, text_of};
use tollgate_yaml::tree::Tree;
use tollgate_yaml::value::YamlValue;

use super::error::MappingError;
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
    syntax: PatternSyntax,
}

/// Syntax of the patterns that select statistics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PatternSyntax {
    /// `*` matches one level of a name.
    Glob,
    Regex,
}

/// Parses a mapping file. Returns the mappings and warnings.
///
/// # Errors
/// If the text is not a mapping file at all.
pub(super) fn read(file: &str, text: &str) -> Result<(Mappings, Vec<String>), ProblemReport> {
    let source = Source { name: file.to_owned(), text: text.to_owned() };
    let mut findings = Findings::default();
    let tree = Tree::parse(0, text_of(&source), &mut findings);
    if findings.errors() > 0 {
        return Err(findings.report(&[source]));
    }
    let Some(root) = YamlValue::first(&tree) else {
        return Ok((Mappings::default(), Vec::new()));
    };
    if root.pairs().is_none() {
        let message = "expected `mappings:`, and optionally `defaults:`";
        findings.push(Finding::error(root.span(), message));
        return Err(findings.report(std::slice::from_ref(&source)));
    }
    let mut reader = MappingReader { source: &source, warnings: Vec::new() };
    for (field, value) in root.pairs().into_iter().flatten() {
        if !["mappings", "defaults"].contains(&field) {
            reader.warn(value, format!("`{field}` is unknown and has no effect"));
        }
    }
    let mut defaults = Defaults {
        observer: Observer::Summary,
        buckets: DEFAULT_BUCKETS.into(),
        syntax: PatternSyntax::Glob,
    };
    if let Some(written) = root.get("defaults") {
        defaults.observer = reader.observer(written).unwrap_or(defaults.observer);
        defaults.buckets = reader.buckets(written).unwrap_or(defaults.buckets);
        defaults.syntax = reader.syntax(written).unwrap_or(defaults.syntax);
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
        let syntax = reader.syntax(written).unwrap_or(defaults.syntax);
        match (reader.mapping(written, &defaults, syntax), syntax) {
            (Ok(mapping), PatternSyntax::Glob) => mappings.globs.push(mapping),
            (Ok(mapping), PatternSyntax::Regex) => mappings.regexes.push(mapping),
            (Err(error), _) => reader.warn(written, format!("mapping ignored: {error}")),
        }
    }
    Ok((mappings, reader.warnings))
}

impl MappingReader<'_> {
    fn warn(&mut self, at: YamlValue<'_>, what: impl Display) {
        let line = line_of(at.span(), self.source);
        self.warnings.push(format!("{}:{line}: {what}", self.source.name));
    }

    fn mapping(
        &mut self,
        written: YamlValue<'_>,
        defaults: &Defaults,
        syntax: PatternSyntax,
    ) -> Result<Mapping, MappingError> {
        let pattern = text(written, "match").ok_or(MappingError::NoMatch)?;
        let pattern = match syntax {
            PatternSyntax::Glob => Regex::new(&glob(pattern)?)?,
            PatternSyntax::Regex => Regex::new(pattern)?,
        };
        let is_dropped = match text(written, "action") {
            None | Some("map" | "") => false,
            Some("drop") => true,
            Some(other) => return Err(MappingError::Action(other.to_owned())),
        };
        let name = text(written, "name").unwrap_or_default().to_owned();
        if name.is_empty() && !is_dropped {
            return Err(MappingError::NoName);
        }
        let kind = match text(written, "match_metric_type") {
            None | Some("") => None,
            Some(kind @ ("counter" | "gauge")) => Some(kind.to_owned()),
            Some("timer" | "observer") => Some("timer".to_owned()),
            Some(other) => return Err(MappingError::MetricType(other.to_owned())),
        };
        let scale = match text(written, "scale").map(str::parse::<f64>) {
            None => 1.0,
            Some(Ok(scale)) if scale.is_finite() && scale > 0.0 => scale,
            Some(_) => return Err(MappingError::Scale),
        };
        self.without_effect(written, &FIELDS);
        Ok(Mapping {
            pattern,
            kind,
            is_dropped,
            name,
            labels: labels(written)?,
            help: text(written, "help").map(str::to_owned),
            observer: self.observer(written).unwrap_or(defaults.observer),
            buckets: self.buckets(written).unwrap_or_else(|| defaults.buckets.clone()),
            scale,
        })
    }

    fn syntax(&mut self, written: YamlValue<'_>) -> Option<PatternSyntax> {
        let value = written.get("match_type")?;
        match value.text() {
            Some("glob" | "") => Some(PatternSyntax::Glob),
            Some("regex") => Some(PatternSyntax::Regex),
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

/// Returns the text of a field.
fn text<'a>(written: YamlValue<'a>, field: &str) -> Option<&'a str> {
    written.get(field).and_then(YamlValue::text)
}

fn labels(written: YamlValue<'_>) -> Result<Vec<(String, String)>, MappingError> {
    let mut labels = Vec::new();
    for (name, value) in written.get("labels").and_then(YamlValue::pairs).into_iter().flatten() {
        if !is_label_name(name) {
            return Err(MappingError::LabelName(name.to_owned()));
        }
        labels.push((name.to_owned(), value.text().ok_or(MappingError::LabelValue)?.to_owned()));
    }
    labels.sort();
    Ok(labels)
}

/// Returns `true` for a name that Prometheus allows and does not itself use.
fn is_label_name(name: &str) -> bool {
    let is_reserved = name.starts_with("__") || ["le", "quantile"].contains(&name);
    !name.is_empty()
        && !is_reserved
        && !name.starts_with(|letter: char| letter.is_ascii_digit())
        && name.chars().all(|letter| letter == '_' || letter.is_ascii_alphanumeric())
}

/// Converts a glob to a regular expression; `*` matches one level of the name.
fn glob(pattern: &str) -> Result<String, MappingError> {
    let mut levels = Vec::new();
    for level in pattern.split('.') {
        levels.push(match level {
            "*" => "([^.]*)".to_owned(),
            _ if level.contains('*') => return Err(MappingError::PartOfLevel(level.to_owned())),
            _ => regex::escape(level),
        });
    }
    Ok(format!("^{}$", levels.join(r"\.")))
}
