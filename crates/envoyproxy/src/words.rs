//! Parsers for values of variables, with the rules of Go.

use std::time::Duration;

use tollgate_yaml::scalar;

/// A value that is not of the type of its variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum InvalidValue {
    /// Not of the forms of [`boolean`].
    #[error("expected true or false")]
    Bool,
    /// Not of the forms of [`integer`].
    #[error("expected a whole number")]
    Int,
    /// Not a finite number.
    #[error("expected a number")]
    Float,
    /// Not of the forms of [`duration`].
    #[error("expected a length of time such as 150us, 10s or 24h")]
    Duration,
    /// Not pairs.
    #[error("expected key:value,key:value")]
    Map,
}

/// Units of durations, with their seconds.
const UNITS: [(&str, f64); 7] = [
    ("ns", 1e-9),
    ("us", 1e-6),
    ("µs", 1e-6),
    ("ms", 1e-3),
    ("s", 1.0),
    ("m", 60.0),
    ("h", 3600.0),
];

/// Parses `true`, `1`, `t` and other forms that Go accepts.
pub(crate) fn boolean(text: &str) -> Result<bool, InvalidValue> {
    match text {
        "1" | "t" | "T" | "TRUE" | "true" | "True" => Ok(true),
        "0" | "f" | "F" | "FALSE" | "false" | "False" => Ok(false),
        _ => Err(InvalidValue::Bool),
    }
}

/// Parses a whole number, also as `0x10`, `0b11`, `0o17`, `017` or `1_000`.
pub(crate) fn integer(text: &str) -> Result<i64, InvalidValue> {
    // The YAML of that service parses numbers by the same rules of Go; variables also accept
    // `0X10`.
    let number =
        scalar::integer(&text.to_ascii_lowercase()).and_then(|number| i64::try_from(number).ok());
    number.ok_or(InvalidValue::Int)
}

/// Parses a finite number.
pub(crate) fn float(text: &str) -> Result<f64, InvalidValue> {
    text.parse().ok().filter(|number: &f64| number.is_finite()).ok_or(InvalidValue::Float)
}

/// Parses `150us`, `10s`, `1h30m`, `1.5s` or `0`.
pub(crate) fn duration(text: &str) -> Result<Duration, InvalidValue> {
    let seconds = seconds(text).ok_or(InvalidValue::Duration)?;
    Duration::try_from_secs_f64(seconds).map_err(|_| InvalidValue::Duration)
}

/// Returns the seconds of a duration; `None` if it is empty, or a part has no number or no unit.
fn seconds(text: &str) -> Option<f64> {
    let mut rest = text.strip_prefix('+').unwrap_or(text);
    if rest == "0" {
        return Some(0.0);
    }
    let mut seconds = 0.0;
    while !rest.is_empty() {
        let end = rest.find(|letter: char| !letter.is_ascii_digit() && letter != '.')?;
        let (number, after) = rest.split_at(end);
        let (unit, length) = UNITS.into_iter().find(|(unit, _)| after.starts_with(unit))?;
        seconds += number.parse::<f64>().ok()? * length;
        rest = after.strip_prefix(unit)?;
    }
    (!text.is_empty()).then_some(seconds)
}

/// Splits `a,b`; items are not trimmed, and empty ones are dropped.
pub(crate) fn list(text: &str) -> Vec<&str> {
    text.split(',').filter(|item| !item.is_empty()).collect()
}

/// Parses `key:value,key:value`.
pub(crate) fn map(text: &str) -> Result<Vec<(&str, &str)>, InvalidValue> {
    list(text).into_iter().map(pair).collect()
}

fn pair(item: &str) -> Result<(&str, &str), InvalidValue> {
    let (key, value) = item.split_once(':').ok_or(InvalidValue::Map)?;
    if value.contains(':') { Err(InvalidValue::Map) } else { Ok((key, value)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_those_of_go() {
        assert_eq!(["1", "t", "TRUE"].map(boolean), [Ok(true), Ok(true), Ok(true)]);
        assert!(["yes", "", "tRUE"].into_iter().all(|text| boolean(text).is_err()));
        assert_eq!(
            ["0x10", "017", "1_000", "-5", "0"].map(integer),
            [Ok(16), Ok(15), Ok(1000), Ok(-5), Ok(0)]
        );
        assert!(["", "ten", "1.5", "08", "--1"].into_iter().all(|text| integer(text).is_err()));
        let lengths = [
            ("150us", 150),
            ("10s", 10_000_000),
            ("1h30m", 5_400_000_000),
            ("0", 0),
            ("1.5ms", 1_500),
        ];
        for (text, micros) in lengths {
            assert_eq!(duration(text), Ok(Duration::from_micros(micros)), "{text}");
        }
        assert!(["", "10", "-1s", "s", "1d", "."].into_iter().all(|text| duration(text).is_err()));
        assert_eq!(map("a:b,c:d"), Ok(vec![("a", "b"), ("c", "d")]));
        assert!(map("a:b:c").is_err() && map("a").is_err());
        assert_eq!(map(""), Ok(vec![]));
    }
}
