//! Parsers for values of variables, with the rules of Go.

use std::time::Duration;

use crate::yaml::scalar;

/// Parses `true`, `1`, `t` and other forms that Go accepts.
pub(super) fn boolean(text: &str) -> Result<bool, String> {
    match text {
        "1" | "t" | "T" | "TRUE" | "true" | "True" => Ok(true),
        "0" | "f" | "F" | "FALSE" | "false" | "False" => Ok(false),
        _ => Err("expected true or false".to_owned()),
    }
}

/// Parses a whole number, also as `0x10`, `0b11`, `0o17`, `017` or `1_000`.
pub(super) fn integer(text: &str) -> Result<i64, String> {
    // The YAML of that service parses numbers by the same rules of Go; variables also accept
    // `0X10`.
    let number =
        scalar::integer(&text.to_ascii_lowercase()).and_then(|number| i64::try_from(number).ok());
    number.ok_or_else(|| "expected a whole number".to_owned())
}

/// Parses a finite number.
pub(super) fn float(text: &str) -> Result<f64, String> {
    text.parse()
        .ok()
        .filter(|number: &f64| number.is_finite())
        .ok_or_else(|| "expected a number".to_owned())
}

/// Parses `150us`, `10s`, `1h30m`, `1.5s` or `0`.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    const UNITS: [(&str, f64); 7] = [
        ("ns", 1e-9),
        ("us", 1e-6),
        ("µs", 1e-6),
        ("ms", 1e-3),
        ("s", 1.0),
        ("m", 60.0),
        ("h", 3600.0),
    ];
    let error = || "expected a length of time such as 150us, 10s or 24h".to_owned();
    let mut rest = text.strip_prefix('+').unwrap_or(text);
    if rest == "0" {
        return Ok(Duration::ZERO);
    }
    let mut seconds = 0.0;
    while !rest.is_empty() {
        let end = rest
            .find(|letter: char| !letter.is_ascii_digit() && letter != '.')
            .ok_or_else(error)?;
        let (number, after) = rest.split_at(end);
        let number: f64 = number.parse().map_err(|_| error())?;
        let (unit, length) =
            UNITS.into_iter().find(|(unit, _)| after.starts_with(unit)).ok_or_else(error)?;
        seconds += number * length;
        rest = after.strip_prefix(unit).unwrap_or_default();
    }
    if text.is_empty() {
        Err(error())
    } else {
        Duration::try_from_secs_f64(seconds).map_err(|_| error())
    }
}

/// Splits `a,b`; items are not trimmed, and empty ones are dropped.
pub(super) fn list(text: &str) -> Vec<&str> {
    text.split(',').filter(|item| !item.is_empty()).collect()
}

/// Parses `key:value,key:value`.
pub(super) fn map(text: &str) -> Result<Vec<(&str, &str)>, String> {
    let pair = |item| match list_of(item, ':').as_slice() {
        [key, value] => Ok((*key, *value)),
        _ => Err("expected key:value,key:value".to_owned()),
    };
    list(text).into_iter().map(pair).collect()
}

fn list_of(text: &str, separator: char) -> Vec<&str> {
    text.split(separator).collect()
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
