//! Parsers for sizes, shares, durations and counts, which the standard library does not parse.

use std::time::Duration;

use super::FlagError;

/// Parses a number of bytes: `268435456`, `256MiB` or `1GiB`.
pub(super) fn bytes(text: &str) -> Result<usize, FlagError> {
    const UNITS: [(&str, usize); 4] =
        [("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30), ("", 1)];
    let trimmed = text.trim();
    let (number, unit) = UNITS
        .iter()
        .find_map(|(suffix, unit)| Some((trimmed.strip_suffix(suffix)?, unit)))
        .unwrap_or((trimmed, &1));
    let bytes = number.trim().parse::<usize>().ok().and_then(|number| number.checked_mul(*unit));
    bytes
        .filter(|bytes| *bytes > 0)
        .ok_or_else(|| FlagError::unexpected("a size such as 256MiB", text))
}

/// Parses a share in thousandths, from `0.5` or `50%`.
pub(super) fn share(text: &str) -> Result<Thousandths, FlagError> {
    const ALLOWED: &str = "a share above 0 and up to 1, such as 0.5 or 50%";
    let trimmed = text.trim();
    let (number, scale) = match trimmed.strip_suffix('%') {
        Some(percent) => (percent, 10.0),
        None => (trimmed, 1000.0),
    };
    let share = number.trim().parse::<f64>().ok().and_then(|number| {
        (1..=1000u16).find(|whole| (f64::from(*whole) - number * scale).abs() <= 0.5)
    });
    share.map(Thousandths).ok_or_else(|| FlagError::unexpected(ALLOWED, text))
}

/// A share in thousandths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Thousandths(u16);

impl Thousandths {
    /// Returns that share of `whole`.
    pub(super) fn of(self, whole: usize) -> usize {
        whole.saturating_mul(self.0.into()) / 1000
    }
}

/// Parses a duration: `15ms`, `3s` or `1m30s`.
pub(super) fn duration(text: &str) -> Result<Duration, FlagError> {
    let length = text.trim().parse::<jiff::SignedDuration>().ok();
    let length = length.and_then(|length| Duration::try_from(length).ok());
    length.ok_or_else(|| FlagError::unexpected("a duration such as 500ms or 10s", text))
}

/// Parses a duration above zero.
pub(super) fn some_time(text: &str) -> Result<Duration, FlagError> {
    let length = duration(text)?;
    (!length.is_zero())
        .then_some(length)
        .ok_or_else(|| FlagError::unexpected("a duration above 0", text))
}

/// Parses a whole number of at least 1.
pub(super) fn count(text: &str) -> Result<usize, FlagError> {
    let number = text.trim().parse().ok().filter(|number| *number > 0);
    number.ok_or_else(|| FlagError::unexpected("a whole number of at least 1", text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_shares_and_durations_read_as_people_write_them() {
        assert_eq!(bytes("32MiB"), Ok(32 << 20));
        assert_eq!(bytes("1024"), Ok(1024));
        assert_eq!(share("50%"), Ok(Thousandths(500)));
        assert_eq!(share("0.25").map(|share| share.of(4000)), Ok(1000));
        assert_eq!(duration("1m30s"), Ok(Duration::from_secs(90)));
        assert_eq!(duration("0s"), Ok(Duration::ZERO));
    }

    #[test]
    fn invalid_values_are_reported_with_the_text_found() {
        for error in [
            bytes("-1").err(),
            bytes("0").err(),
            share("1.5").err(),
            share("NaN").err(),
            duration("-1s").err(),
        ] {
            assert!(error.is_some_and(|error| error.to_string().contains("found `")));
        }
    }
}
