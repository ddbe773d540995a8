//! Parsers for values of variables, with the rules of Go.

use std::time::Duration;

use tollgate_yaml::scalar;

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
pub(crate) fn boolean(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "TRUE" | "true" | "True" => Some(true),
        "0" | "f" | "F" | "FALSE" | "false" | "False" => Some(false),
        _ => None,
    }
}

/// Parses a whole number, also as `0x10`, `0b11`, `0o17`, `017` or `1_000`.
pub(crate) fn integer(text: &str) -> Option<i64> {
    // The YAML of that service parses numbers by the same rules of Go; variables also accept
    // `0X10`.
    scalar::integer(&text.to_ascii_lowercase()).and_then(|number| i64::try_from(number).ok())
}

/// Parses a finite number.
pub(crate) fn float(text: &str) -> Option<f64> {
    text.parse().ok().filter(|number: &f64| number.is_finite())
}

/// Parses `150us`, `10s`, `1h30m`, `1.5s` or `0`.
pub(crate) fn duration(text: &str) -> Option<Duration> {
    Duration::try_from_secs_f64(seconds(text)?).ok()
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
pub(crate) fn map(text: &str) -> Option<Vec<(&str, &str)>> {
    let pairs = list(text).into_iter().map(|item| item.split_once(':'));
    pairs.map(|pair| pair.filter(|(_, value)| !value.contains(':'))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_those_of_go() {
        assert_eq!(["1", "t", "TRUE"].map(boolean), [Some(true), Some(true), Some(true)]);
        assert!(["yes", "", "tRUE"].into_iter().all(|text| boolean(text).is_none()));
        assert_eq!(
            ["0x10", "017", "1_000", "-5", "0"].map(integer),
            [Some(16), Some(15), Some(1000), Some(-5), Some(0)]
        );
        assert!(["", "ten", "1.5", "08", "--1"].into_iter().all(|text| integer(text).is_none()));
        let lengths = [
            ("150us", 150),
            ("10s", 10_000_000),
            ("1h30m", 5_400_000_000),
            ("0", 0),
            ("1.5ms", 1_500),
        ];
        for (text, micros) in lengths {
            assert_eq!(duration(text), Some(Duration::from_micros(micros)), "{text}");
        }
        assert!(["", "10", "-1s", "s", "1d", "."].into_iter().all(|text| duration(text).is_none()));
        assert_eq!(map("a:b,c:d"), Some(vec![("a", "b"), ("c", "d")]));
        assert!(map("a:b:c").is_none() && map("a").is_none());
        assert_eq!(map(""), Some(vec![]));
    }
}
