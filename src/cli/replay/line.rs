//! Parsing of a line of a trace or an access log to a request and its time.

use serde_json::Value;

use crate::algorithm::judge::Hits;
use crate::algorithm::time::Timestamp;
use crate::descriptor::{Descriptor, Entry, Request};
use crate::grpc::json;
use crate::grpc::request::{self, RequestBounds};
use crate::policy::access_log::{AccessLogMap, TextSource};

/// The format of lines.
pub(super) enum Format {
    /// A trace: `at` and `request`.
    Trace,
    /// An access log, with the mapping of its fields to a request.
    AccessLog(AccessLogMap),
}

/// A request and its time.
pub(super) struct Line {
    /// Time of the request, as written.
    pub(super) at: Value,
    pub(super) instant: Timestamp,
    content: LineContent,
}

/// The request of a line.
enum LineContent {
    /// A message of the protocol.
    Message(Vec<u8>),
    Entries {
        domain: String,
        descriptors: Vec<Vec<(String, String)>>,
        hits: Hits,
    },
}

impl Format {
    /// Parses a line; returns `None` if it contains no request: the field of its domain is missing,
    /// or none of its descriptors has all of its fields.
    ///
    /// # Errors
    /// The line cannot be parsed.
    pub(super) fn read(&self, line: &[u8]) -> Result<Option<Line>, String> {
        let mut line: Value = serde_json::from_slice(line).map_err(|error| error.to_string())?;
        match self {
            Self::Trace => {
                let at = line.get("at").cloned().unwrap_or_default();
                let instant = instant(&at, 1).ok_or_else(|| not_an_instant("at", &at))?;
                let message =
                    line.get_mut("request").map(Value::take).ok_or("`request` is missing")?;
                let message =
                    json::request(message).map_err(|error| format!("request: {error}"))?;
                Ok(Some(Line { at, instant, content: LineContent::Message(message) }))
            }
            Self::AccessLog(map) => of_access_log(map, &line),
        }
    }
}

fn of_access_log(map: &AccessLogMap, line: &Value) -> Result<Option<Line>, String> {
    let at = field(line, &map.time).cloned().unwrap_or_default();
    let instant = instant(&at, map.scale).ok_or_else(|| not_an_instant(&map.time, &at))?;
    let Some(domain) = text(&map.domain, line) else { return Ok(None) };
    let entry = |(key, from): &(String, TextSource)| Some((key.clone(), text(from, line)?));
    let descriptors: Vec<Vec<_>> =
        map.descriptors.iter().filter_map(|entries| entries.iter().map(entry).collect()).collect();
    let hits =
        map.hits.as_ref().and_then(|hits| text(hits, line)).unwrap_or_else(|| "1".to_owned());
    let hits: u32 = hits
        .parse()
        .map_err(|_| format!("`hits` must be a whole number below 2^32, found `{hits}`"))?;
    let hits = if hits == 0 { Hits::Peek(0) } else { Hits::Charge(hits) };
    let is_any = !descriptors.is_empty();
    Ok(is_any.then(|| Line {
        at,
        instant,
        content: LineContent::Entries { domain, descriptors, hits },
    }))
}

impl Line {
    /// Returns the request.
    ///
    /// # Errors
    /// The request is invalid.
    pub(super) fn request(&self) -> Result<Request<'_>, String> {
        match &self.content {
            LineContent::Message(message) => {
                let bounds = RequestBounds {
                    descriptors: usize::MAX,
                    entries: usize::MAX,
                    all_entries: usize::MAX,
                };
                request::read(message, &bounds).map_err(|invalid| invalid.to_string())
            }
            LineContent::Entries { domain, descriptors, hits } => Ok(Request {
                domain,
                descriptors: descriptors.iter().map(|pairs| of_pairs(pairs, *hits)).collect(),
            }),
        }
    }
}

fn of_pairs(pairs: &[(String, String)], hits: Hits) -> Descriptor<'_> {
    let entries =
        pairs.iter().map(|(key, value)| Entry { key: key.as_bytes(), value: value.as_bytes() });
    Descriptor::new(entries.collect(), hits, hits.amount(), None)
}

/// Returns a field of a line by its name: a literal key, or a path of keys separated by dots.
fn field<'l>(line: &'l Value, name: &str) -> Option<&'l Value> {
    let into = || name.split('.').try_fold(line, |value, part| value.get(part));
    line.get(name).or_else(into)
}

/// Returns the value of an entry; `None` if the line has no value there, which Envoy writes as null
/// or `-`.
fn text(from: &TextSource, line: &Value) -> Option<String> {
    match from {
        TextSource::Literal(text) => Some(text.clone()),
        TextSource::Field { name, without } => {
            let text = match field(line, name)? {
                Value::String(text) if text == "-" => None,
                Value::String(text) => Some(text.clone()),
                Value::Number(number) => Some(number.to_string()),
                Value::Bool(truth) => Some(truth.to_string()),
                Value::Null | Value::Array(_) | Value::Object(_) => None,
            }?;
            Some(without.map_or(text.as_str(), |without| without.cut(&text)).to_owned())
        }
    }
}

/// Parses RFC 3339 text, or a number in units of `scale` microseconds, which may have a fraction
/// and be quoted.
fn instant(at: &Value, scale: u64) -> Option<Timestamp> {
    let of_number = |text: &str| {
        let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
        let digits =
            |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        // Digits beyond the sixth are cut off.
        let fraction = fraction.get(..6).unwrap_or(fraction);
        let millionths: u64 =
            digits(fraction).then(|| format!("{fraction:0<6}").parse().ok()).flatten()?;
        let whole: u64 = digits(whole).then(|| whole.parse().ok()).flatten()?;
        let part = millionths.checked_mul(scale)?.checked_div(1_000_000)?;
        whole.checked_mul(scale)?.checked_add(part)
    };
    let us = match at {
        Value::Number(number) => of_number(&number.to_string()),
        Value::String(text) => match text.parse::<jiff::Timestamp>() {
            Ok(at) => u64::try_from(at.as_microsecond()).ok(),
            Err(_) => of_number(text),
        },
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    };
    us.map(Timestamp::from_micros)
}

fn not_an_instant(name: &str, at: &Value) -> String {
    format!("`{name}` must be a number or RFC 3339 text, found {at}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_instant_is_text_or_a_number_in_a_unit() {
        let us = |at: Value, scale| instant(&at, scale).map(Timestamp::as_micros);
        assert_eq!(us(json!("2026-05-28T20:26:40.0001372Z"), 1), Some(1_780_000_000_000_137));
        assert_eq!(us(json!("1780000000.123"), 1_000_000), Some(1_780_000_000_123_000));
        assert_eq!(us(json!(1_780_000_000_123_u64), 1_000), Some(1_780_000_000_123_000));
        assert_eq!(us(json!(1_780_000_000_000_137_u64), 1), Some(1_780_000_000_000_137));
        for wrong in [json!("tomorrow"), json!(-1), json!(null), json!("1."), json!(1e300)] {
            assert_eq!(us(wrong.clone(), 1_000_000), None, "{wrong}");
        }
    }

    #[test]
    fn fields_become_entries_and_a_missing_field_omits_its_descriptor() {
        let of = |name: &str| TextSource::Field { name: name.to_owned(), without: None };
        let entries = |key: &str, from| vec![(key.to_owned(), from)];
        let map = AccessLogMap {
            time: "t".into(),
            scale: 1_000_000,
            domain: TextSource::Literal("d".into()),
            descriptors: vec![
                entries("user", of("who")),
                entries("deep", of("a.b")),
                entries("dotted", of("c.d")),
            ],
            hits: Some(of("cost")),
        };
        let read = |line: Value| Format::AccessLog(map.clone()).read(line.to_string().as_bytes());
        let line = read(json!({ "t": 5, "who": "-", "a": { "b": true }, "c.d": 7, "cost": 3 }))
            .unwrap()
            .unwrap();
        let request = line.request().unwrap();
        let entries: Vec<_> =
            request.descriptors.iter().flat_map(|descriptor| &descriptor.entries).collect();
        assert_eq!(
            (entries[0].value, entries[1].value, entries.len()),
            (b"true".as_slice(), b"7".as_slice(), 2)
        );
        assert_eq!(request.descriptors[0].hits, Hits::Charge(3));
        assert!(read(json!({ "t": 5, "who": null })).unwrap().is_none());
        assert!(read(json!({ "who": "ann" })).is_err_and(|error| error.starts_with("`t` must be")));
        assert!(
            read(json!({ "t": 5, "who": "ann", "cost": -1 }))
                .is_err_and(|error| error.contains("`hits`"))
        );
    }
}
