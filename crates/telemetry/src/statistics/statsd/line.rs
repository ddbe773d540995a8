//! Formatting of one statistic as one StatsD line.

use std::fmt::Write as _;

use regex::Regex;
use thiserror::Error;

use crate::statistics::millis;

/// Format of a line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LineFormat {
    /// `name.__tag=value:1|c`: tags are part of the name, as envoyproxy/ratelimit sends them.
    #[default]
    Plain,
    /// `name:1|c|#tag:value`.
    DogStatsd,
}

/// A name pattern, and the name and tags that replace a matching name.
#[derive(Clone, Debug)]
pub struct Rewrite {
    pattern: Regex,
    name: String,
    tags: Vec<(String, String)>,
}

/// The error for a rewrite that is invalid.
#[derive(Clone, Debug, Error)]
pub enum RewriteError {
    /// The pattern is not a regular expression.
    #[error(transparent)]
    Pattern(#[from] regex::Error),
    /// The pattern or the name is missing.
    #[error("the pattern and the name must not be empty")]
    Empty,
    /// A tag is not a pair.
    #[error("expected tags such as domain:$1,key:$2, found `{0}`")]
    Tag(String),
}

/// The value of a line, with its metric type.
pub(super) enum MetricUnit {
    /// The increment since the last flush.
    Counter(u64),
    /// The current value.
    Gauge(i64),
    /// A duration in microseconds.
    Time(u64),
}

/// Formats lines, reusing one buffer.
pub(super) struct LineWriter {
    dialect: LineFormat,
    /// Tags of every line: the suffix of the name ([`LineFormat::Plain`]) or of the line.
    tags: String,
    rewrites: Vec<Rewrite>,
    line: String,
}

impl Rewrite {
    /// Creates a rewrite. `tags` are `key:value` pairs separated by commas; in `name` and in the
    /// values of `tags`, `$1` refers to the pattern's first capture group.
    ///
    /// # Errors
    /// If an argument is invalid.
    pub fn new(pattern: &str, name: &str, tags: &str) -> Result<Self, RewriteError> {
        let regex = Regex::new(pattern)?;
        if pattern.is_empty() || name.is_empty() {
            return Err(RewriteError::Empty);
        }
        let mut read = Vec::new();
        for tag in tags.split(',').filter(|tag| !tag.is_empty()) {
            match tag.split_once(':') {
                Some((key, value)) if !key.is_empty() && !value.is_empty() => {
                    read.push((key.to_owned(), braced(value)));
                }
                _ => return Err(RewriteError::Tag(tag.to_owned())),
            }
        }
        Ok(Self { pattern: regex, name: braced(name), tags: read })
    }
}

/// Puts braces around group numbers, so that `$1_total` reads as `${1}_total`; a `$` without digits
/// is literal.
fn braced(template: &str) -> String {
    let mut text = String::new();
    let mut rest = template;
    while let Some((before, after)) = rest.split_once('$') {
        let letters = after.trim_start_matches(|letter: char| letter.is_ascii_digit());
        let digits = after.len() - letters.len();
        let (number, after) = after.split_at_checked(digits).unwrap_or((after, ""));
        text.push_str(before);
        text.push_str(&if number.is_empty() { "$$".to_owned() } else { format!("${{{number}}}") });
        rest = after;
    }
    text + rest
}

impl LineWriter {
    pub(super) fn new(
        dialect: LineFormat,
        tags: Vec<(String, String)>,
        rewrites: Vec<Rewrite>,
    ) -> Self {
        let tags = match dialect {
            LineFormat::Plain => {
                tags.iter().map(|(key, value)| format!(".__{key}={value}")).collect()
            }
            LineFormat::DogStatsd => tags
                .iter()
                .map(|(key, value)| format!("{key}:{value}"))
                .collect::<Vec<_>>()
                .join(","),
        };
        Self { dialect, tags, rewrites, line: String::new() }
    }

    /// Formats one statistic, without the line terminator.
    pub(super) fn of(&mut self, name: &str, unit: &MetricUnit) -> &str {
        self.line.clear();
        let line = &mut self.line;
        // Writing to a `String` cannot fail.
        let _ = match (
            self.dialect,
            self.rewrites
                .iter()
                .find_map(|rewrite| Some((rewrite, rewrite.pattern.captures(name)?))),
        ) {
            (LineFormat::Plain, _) => write!(line, "{name}{}:{unit}", self.tags),
            (LineFormat::DogStatsd, None) if self.tags.is_empty() => write!(line, "{name}:{unit}"),
            (LineFormat::DogStatsd, None) => write!(line, "{name}:{unit}|#{}", self.tags),
            (LineFormat::DogStatsd, Some((rewrite, captures))) => {
                captures.expand(&rewrite.name, line);
                let _ = write!(line, ":{unit}");
                let mut separator = "|#";
                for (key, value) in &rewrite.tags {
                    let _ = write!(line, "{separator}{key}:");
                    captures.expand(value, line);
                    separator = ",";
                }
                if self.tags.is_empty() { Ok(()) } else { write!(line, "{separator}{}", self.tags) }
            }
        };
        line
    }
}

impl std::fmt::Display for MetricUnit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Counter(more) => write!(f, "{more}|c"),
            Self::Gauge(value) => write!(f, "{value}|g"),
            Self::Time(us) => write!(f, "{}|ms", millis(*us)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAME: &str = "ratelimit.service.rate_limit.mongo_cps.database_users.within_limit";

    fn tags(tags: &[(&str, &str)]) -> Vec<(String, String)> {
        tags.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn a_plain_line_has_its_tags_in_the_name() {
        let mut lines =
            LineWriter::new(LineFormat::Plain, tags(&[("a", "1"), ("b", "2")]), Vec::new());
        assert_eq!(lines.of("x.y", &MetricUnit::Counter(3)), "x.y.__a=1.__b=2:3|c");
        assert_eq!(lines.of("x.y", &MetricUnit::Time(1_250)), "x.y.__a=1.__b=2:1.25|ms");
    }

    #[test]
    fn a_line_of_dogstatsd_has_them_behind() {
        assert_eq!(
            LineWriter::new(LineFormat::DogStatsd, Vec::new(), Vec::new())
                .of("x", &MetricUnit::Gauge(-3)),
            "x:-3|g"
        );
        let mut lines = LineWriter::new(LineFormat::DogStatsd, tags(&[("a", "1")]), Vec::new());
        assert_eq!(lines.of("x", &MetricUnit::Time(2_000)), "x:2|ms|#a:1");
    }

    #[test]
    fn a_rewrite_makes_parts_of_a_name_into_tags() {
        let pattern = r"^ratelimit\.service\.rate_limit\.(.*)\.(.*)\.(.*)$";
        let rewrite =
            Rewrite::new(pattern, "ratelimit.rate_limit.$3_all", "domain:$1,descriptor:$2")
                .unwrap();
        let mut lines = LineWriter::new(LineFormat::DogStatsd, tags(&[("a", "1")]), vec![rewrite]);
        let expected = "ratelimit.rate_limit.within_limit_all:4|c|#domain:mongo_cps,descriptor:database_users,a:1";
        assert_eq!(lines.of(NAME, &MetricUnit::Counter(4)), expected);
        assert_eq!(lines.of("other", &MetricUnit::Counter(4)), "other:4|c|#a:1");
        assert_eq!(braced("$1.$x$"), "${1}.$$x$$");
    }

    #[test]
    fn an_invalid_rewrite_is_reported() {
        for (pattern, name, tags) in
            [("", "a", ""), ("a", "", ""), ("(", "a", ""), ("a", "a", ":5"), ("a", "a", "b:")]
        {
            assert!(Rewrite::new(pattern, name, tags).is_err(), "{pattern} {name} {tags}");
        }
    }
}
