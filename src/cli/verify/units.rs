//! Durations that a plain number may give too, as in release 0.1.0.

use std::ops::RangeInclusive;
use std::time::Duration;

use jiff::SignedDuration;

use crate::cli::duration::duration;

/// Units of flags, in milliseconds.
pub(super) const SECOND: u64 = 1_000;
pub(super) const MILLISECOND: u64 = 1;

/// Parses a duration, or a plain number of units, each of so many milliseconds. Returns the number
/// of units.
pub(super) fn in_units(text: &str, unit: u64, allowed: RangeInclusive<u64>) -> Result<u64, String> {
    let units_of = |length: SignedDuration| {
        let units = u64::try_from(length.as_millis()).ok()?.checked_div(unit)?;
        (duration_of(units, unit) == Some(length)).then_some(units)
    };
    let units = text.parse().ok().or_else(|| units_of(duration(text).ok()?));
    units.filter(|units| allowed.contains(units)).ok_or_else(|| {
        let name = |units| duration_of(units, unit).map(|length| format!("{length:#}"));
        let [from, to] =
            [name(*allowed.start()), name(*allowed.end())].map(Option::unwrap_or_default);
        format!("must be a duration from {from} to {to}")
    })
}

fn duration_of(units: u64, unit: u64) -> Option<SignedDuration> {
    Duration::from_millis(units.checked_mul(unit)?).try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_numbers_are_of_the_unit() {
        let seconds = |text| in_units(text, SECOND, 1..=86_400);
        for (text, expected) in [("10", 10), ("10s", 10), ("2m", 120), ("1h30m", 5400)] {
            assert_eq!(seconds(text), Ok(expected), "{text}");
        }
        for text in ["0", "", "s", "-1s", "1500ms", "24h1s", "99999999999999999999"] {
            let problem = seconds(text).unwrap_err();
            assert_eq!(problem, "must be a duration from 1s to 24h", "{text}");
        }
        assert_eq!(in_units("1s", MILLISECOND, 0..=5000), Ok(1000));
    }
}
