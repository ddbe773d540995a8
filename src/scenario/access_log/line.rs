//! The request and the time of a line of an access log.

use serde_json::Value;

use super::{AccessLogMap, LineMapping, LoggedHttp, TextSource};
use crate::algorithm::judge::Hits;
use crate::algorithm::time::Timestamp;
use crate::descriptor::{Descriptor, Entry, Request};
use crate::policy::requests::Unmappable;

/// The request of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LineContents {
    /// A request to a limiter.
    Line(LineRequest),
    /// An HTTP request, which policies map to one.
    Http(LoggedHttp),
}

/// A request to a limiter, with its values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LineRequest {
    domain: String,
    descriptors: Vec<LineDescriptor>,
}

/// Entries of a descriptor, keys and values, and its hits.
#[derive(Clone, Debug, PartialEq, Eq)]
struct LineDescriptor {
    entries: Vec<(Vec<u8>, Vec<u8>)>,
    hits: Hits,
}

/// The reason why a line of an access log is no request.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[allow(missing_docs, reason = "the text of each variant says what its fields are")]
pub enum LogLineError {
    /// The hits are no number.
    #[error("`hits` must be a whole number below 2^32, found `{found}`")]
    Hits { found: String },
    /// The time cannot be parsed.
    #[error(
        "`{field}` must be a number or RFC 3339 text, such as `$msec` or `$time_iso8601` of nginx, found {found}"
    )]
    Time { field: String, found: Value },
    /// The policies do not have the mapping.
    #[error(
        "the policies have no request mapping `{name}` (mappings: {})",
        known.join(", ")
    )]
    NoMapping { name: String, known: Vec<String> },
    /// The mapping denies the request.
    #[error("denied: {0}")]
    Denied(#[from] Unmappable),
}

impl AccessLogMap {
    /// Returns the time of a line, as written; null if the field is missing.
    pub fn time_of(&self, line: &Value) -> Value {
        field(line, &self.time).cloned().unwrap_or_default()
    }

    /// Returns the request of a line; `None` if the line contains none: the field of its domain is
    /// missing, or none of its descriptors has all of its fields.
    ///
    /// # Errors
    /// The hits are no number.
    pub fn request_of(&self, line: &Value) -> Result<Option<LineContents>, LogLineError> {
        let (domain, descriptors, hits) = match &self.mapping {
            LineMapping::Http(fields) => {
                return Ok(fields.request_of(line).map(LineContents::Http));
            }
            LineMapping::Descriptors { domain, descriptors, hits } => (domain, descriptors, hits),
        };
        let Some(domain) = text(domain, line) else { return Ok(None) };
        let entries: Vec<_> =
            descriptors.iter().filter_map(|entries| values(entries, line)).collect();
        let found =
            hits.as_ref().and_then(|hits| text(hits, line)).unwrap_or_else(|| "1".to_owned());
        let hits = match found.parse::<u32>() {
            Ok(0) => Hits::Peek(0),
            Ok(hits) => Hits::Charge(hits),
            Err(_) => return Err(LogLineError::Hits { found }),
        };
        let descriptors: Vec<_> =
            entries.into_iter().map(|entries| LineDescriptor { entries, hits }).collect();
        let is_any = !descriptors.is_empty();
        Ok(is_any.then_some(LineContents::Line(LineRequest { domain, descriptors })))
    }
}

/// Returns the entries of a descriptor; `None` if the line has no value for one of them.
fn values(entries: &[(String, TextSource)], line: &Value) -> Option<Vec<(Vec<u8>, Vec<u8>)>> {
    let entries = entries.iter();
    entries
        .map(|(key, from)| Some((key.clone().into_bytes(), text(from, line)?.into_bytes())))
        .collect()
}

impl LineRequest {
    /// Keeps a request to a domain; `None` has no descriptors.
    pub(super) fn of(domain: &str, request: Option<&Request<'_>>) -> Self {
        let descriptors = request.into_iter().flat_map(|request| &request.descriptors);
        let descriptors = descriptors.map(|descriptor| {
            let entries = descriptor.entries.iter();
            let entries = entries.map(|entry| (entry.key.to_vec(), entry.value.to_vec())).collect();
            LineDescriptor { entries, hits: descriptor.hits }
        });
        Self { domain: domain.to_owned(), descriptors: descriptors.collect() }
    }

    /// Returns the request.
    pub fn request(&self) -> Request<'_> {
        Request {
            domain: &self.domain,
            descriptors: self.descriptors.iter().map(LineDescriptor::descriptor).collect(),
        }
    }
}

impl LineDescriptor {
    fn descriptor(&self) -> Descriptor<'_> {
        let entries = self.entries.iter().map(|(key, value)| Entry { key, value });
        Descriptor::new(entries.collect(), self.hits, self.hits.amount(), None)
    }
}

/// Returns a field of a line by its name: a literal key, or a path of keys separated by dots.
fn field<'l>(line: &'l Value, name: &str) -> Option<&'l Value> {
    line.get(name).or_else(|| name.split('.').try_fold(line, |value, part| value.get(part)))
}

/// Returns the value of an entry; `None` if the line has no value there, which Envoy writes as null
/// or `-`.
pub(super) fn text(from: &TextSource, line: &Value) -> Option<String> {
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

/// Parses the time of a line, the value of the field `name`: RFC 3339 text, or a number in units of
/// `scale` microseconds, which may have a fraction and be quoted.
///
/// # Errors
/// The value is neither.
pub fn instant(name: &str, at: &Value, scale: u64) -> Result<Timestamp, LogLineError> {
    match micros(at, scale) {
        Some(micros) => Ok(Timestamp::from_micros(micros)),
        None => Err(LogLineError::Time { field: name.to_owned(), found: at.clone() }),
    }
}

fn micros(at: &Value, scale: u64) -> Option<u64> {
    match at {
        Value::Number(number) => micros_of_number(&number.to_string(), scale),
        Value::String(text) => match text.parse::<jiff::Timestamp>() {
            Ok(at) => u64::try_from(at.as_microsecond()).ok(),
            Err(_) => micros_of_number(text, scale),
        },
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    }
}

fn micros_of_number(text: &str, scale: u64) -> Option<u64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    if !are_digits(whole) || !are_digits(fraction) {
        return None;
    }
    // Digits beyond the sixth are cut off.
    let fraction = fraction.get(..6).unwrap_or(fraction);
    let millionths: u64 = format!("{fraction:0<6}").parse().ok()?;
    let whole: u64 = whole.parse().ok()?;
    let part = millionths.checked_mul(scale)?.checked_div(1_000_000)?;
    whole.checked_mul(scale)?.checked_add(part)
}

fn are_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::scenario::access_log::AccessLogMap;

    #[test]
    fn an_instant_is_text_or_a_number_in_a_unit() {
        let us = |at: Value, scale| instant("t", &at, scale).ok().map(Timestamp::as_micros);
        assert_eq!(us(json!("2026-05-28T20:26:40.0001372Z"), 1), Some(1_780_000_000_000_137));
        assert_eq!(us(json!("1780000000.123"), 1_000_000), Some(1_780_000_000_123_000));
        assert_eq!(us(json!(1_780_000_000_123_u64), 1_000), Some(1_780_000_000_123_000));
        assert_eq!(us(json!(1_780_000_000_000_137_u64), 1), Some(1_780_000_000_000_137));
        assert_eq!(us(json!("1.1234567"), 1_000_000), Some(1_123_456));
        let wrong = [json!("tomorrow"), json!(-1), json!(null), json!("1."), json!(1e300)];
        for wrong in wrong.into_iter().chain([json!("1.123456x"), json!("1.1234567.8")]) {
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
            mapping: LineMapping::Descriptors {
                domain: TextSource::Literal("d".into()),
                descriptors: vec![
                    entries("user", of("who")),
                    entries("deep", of("a.b")),
                    entries("dotted", of("c.d")),
                ],
                hits: Some(of("cost")),
            },
        };
        let read = |line: Value| {
            let request = map.request_of(&line)?;
            Ok::<_, LogLineError>(request.map(|request| match request {
                LineContents::Line(request) => request,
                LineContents::Http(_) => panic!("a request to a limiter"),
            }))
        };
        let logged = read(json!({ "t": 5, "who": "-", "a": { "b": true }, "c.d": 7, "cost": 3 }))
            .unwrap()
            .unwrap();
        let request = logged.request();
        let entries: Vec<_> =
            request.descriptors.iter().flat_map(|descriptor| &descriptor.entries).collect();
        assert_eq!(
            (entries[0].value, entries[1].value, entries.len()),
            (b"true".as_slice(), b"7".as_slice(), 2)
        );
        assert_eq!(request.descriptors[0].hits, Hits::Charge(3));
        assert!(read(json!({ "t": 5, "who": null })).unwrap().is_none());
        let error = read(json!({ "t": 5, "who": "ann", "cost": -1 })).err().unwrap().to_string();
        assert!(error.contains("`hits`"), "{error}");
        let missing = map.time_of(&json!({ "who": "ann" }));
        let error = instant("t", &missing, 1).unwrap_err().to_string();
        assert!(error.starts_with("`t` must be a number"), "{error}");
    }
}
