//! Parsers of periods and lease sizes.

use tollgate_core::algorithm::calendar::CalendarUnit;
use tollgate_core::algorithm::time::Micros;

use crate::rule::LeaseSize;

/// A period and its calendar unit, if it has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PeriodUnit {
    pub(super) period: Micros,
    pub(super) calendar: Option<CalendarUnit>,
}

const DAY: u64 = 86_400;

/// Names of periods in envoyproxy/ratelimit, with their lengths there in seconds.
pub(super) const WORDS: [(&str, u64, Option<CalendarUnit>); 7] = [
    ("second", 1, None),
    ("minute", 60, None),
    ("hour", 3_600, None),
    ("day", DAY, Some(CalendarUnit::Day)),
    ("week", 7 * DAY, Some(CalendarUnit::Week)),
    ("month", 30 * DAY, Some(CalendarUnit::Month)),
    ("year", 365 * DAY, Some(CalendarUnit::Year)),
];

const SUFFIXES: [(&str, u64); 5] = [
    ("ms", 1_000),
    ("s", 1_000_000),
    ("m", 60_000_000),
    ("h", 3_600_000_000),
    ("d", DAY * 1_000_000),
];

/// Description of the valid values of `unit`.
pub(super) const ALLOWED: &str = "expected second, minute, hour, day, week, month or year, or a whole number of ms, s, m, h or d such as 250ms or 15m";

/// Parses a unit such as `minute`, in any case, or `15m`.
pub(super) fn unit(text: &str) -> Option<PeriodUnit> {
    let word = WORDS.iter().find(|(word, ..)| word.eq_ignore_ascii_case(text));
    word.map(|(_, seconds, calendar)| PeriodUnit {
        period: Micros::from_secs(*seconds),
        calendar: *calendar,
    })
    .or_else(|| duration(text).map(|period| PeriodUnit { period, calendar: None }))
}

/// Returns the name of a period, if it has one.
pub(crate) fn word(period: Micros) -> Option<&'static str> {
    WORDS
        .iter()
        .find(|(_, seconds, _)| Micros::from_secs(*seconds) == period)
        .map(|(word, ..)| *word)
}

/// Parses a duration: `250ms`, `10s`, `15m`, `6h`, `7d`. A number that does not fit saturates, and
/// exceeds every bound.
pub fn duration(text: &str) -> Option<Micros> {
    let digits = text.find(|letter: char| !letter.is_ascii_digit())?;
    let (number, suffix) = text.split_at_checked(digits)?;
    let (_, size) = SUFFIXES.iter().find(|(name, _)| *name == suffix)?;
    if number.is_empty() {
        return None;
    }
    Some(Micros::new(number.parse::<u64>().unwrap_or(u64::MAX).saturating_mul(*size)))
}

fn all_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Parses `1%`, with up to two decimals, or a number of hits; from 0.01 % to 100 %, or from 1.
pub(super) fn lease_size(text: &str) -> Option<LeaseSize> {
    let Some(percent) = text.strip_suffix('%') else {
        let hits = all_digits(text).then(|| text.parse().ok()).flatten()?;
        return Some(LeaseSize::Hits(hits));
    };
    let (whole, decimals) = percent.split_once('.').unwrap_or((percent, "0"));
    if !all_digits(whole) || !all_digits(decimals) || decimals.len() > 2 {
        return None;
    }
    let hundredths: u16 = format!("{decimals:0<2}").parse().ok()?;
    let basis_points = whole.parse::<u16>().ok()?.checked_mul(100)?.checked_add(hundredths)?;
    let in_bounds = (1..=10_000).contains(&basis_points);
    in_bounds.then_some(()).and(std::num::NonZeroU16::new(basis_points)).map(LeaseSize::BasisPoints)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_words_in_any_case_or_lengths() {
        assert_eq!(unit("MiNuTe").unwrap().period, Micros::from_secs(60));
        assert_eq!(unit("month").unwrap().calendar, Some(CalendarUnit::Month));
        assert_eq!(
            unit("30d").unwrap(),
            PeriodUnit { period: Micros::from_secs(30 * DAY), calendar: None }
        );
        let lengths =
            ["250ms", "10s", "15m", "6h", "7d"].map(|text| unit(text).unwrap().period.to_string());
        assert_eq!(lengths, ["250ms", "10s", "15m", "6h", "7d"]);
        for text in [
            "", "60", "s", "1.5s", "-1s", "10S", "minutes", " minute", "1h30m", "10 s", "１s",
            "unknown",
        ] {
            assert_eq!(unit(text), None, "{text}");
        }
    }

    #[test]
    fn a_lease_is_a_part_of_the_limit_or_hits() {
        let part =
            |points| Some(LeaseSize::BasisPoints(std::num::NonZeroU16::new(points).unwrap()));
        assert_eq!(
            ["1%", "0.5%", "12.25%", "100%"].map(lease_size),
            [part(100), part(50), part(1_225), part(10_000)]
        );
        assert_eq!(lease_size("20"), Some(LeaseSize::Hits(std::num::NonZeroU32::new(20).unwrap())));
        assert_eq!(["0", "0%", "101%", "1.001%", "%", "x", "-1", "1.%"].map(lease_size), [None; 8]);
    }
}
