//! The period of a query, and whether denials of that period are kept.

use jiff::civil::Time;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};

use crate::cli::counter::date_and;

/// Retention of denials, not counting the current minute.
const KEPT: SignedDuration = SignedDuration::from_mins(15);
const KEPT_TEXT: &str = "denials are kept for 15 minutes";
const MINUTE: i64 = 60;

/// The period flags of the query.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SpanArgs {
    pub(super) at: Option<Timestamp>,
    pub(super) since: Option<Timestamp>,
    pub(super) until: Option<Timestamp>,
    pub(super) last: Option<SignedDuration>,
}

/// A period; without an end, up to the latest denial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TimeRange {
    pub(super) since: Option<Timestamp>,
    pub(super) until: Option<Timestamp>,
}

/// The reason why a text is no time, or why a period has no denials.
#[derive(Debug, thiserror::Error)]
pub(super) enum PeriodError {
    #[error("expected a time such as 12:03 or 2026-06-01T12:03:00Z, found `{found}`")]
    NoTime { found: String },
    #[error("{} is in the future (now {})", moment(*start, *now), moment(*now, *now))]
    Future { start: Timestamp, now: Timestamp },
    #[error(
        "{} is {} ago; {KEPT_TEXT} (now {})",
        moment(*end, *now),
        length(now.duration_since(*end)),
        moment(*now, *now)
    )]
    Past { end: Timestamp, now: Timestamp },
    #[error("the end {} is before the start {}", moment(*end, *now), moment(*start, *now))]
    Reversed { start: Timestamp, end: Timestamp, now: Timestamp },
}

impl SpanArgs {
    /// Returns the period, and a note if it was shortened.
    ///
    /// # Errors
    /// No denials of that period are kept: it is too long ago, or in the future.
    pub(super) fn span(self, now: Timestamp) -> Result<(TimeRange, Option<String>), PeriodError> {
        let minute = SignedDuration::from_micros(59_999_999);
        let (since, until) = match (self.at, self.last) {
            (Some(at), _) => (Some(at), at.checked_add(minute).ok()),
            (None, Some(last)) => (now.checked_sub(last).ok(), self.until),
            (None, None) => (self.since, self.until),
        };
        if let Some(start) = since.filter(|since| *since > now) {
            return Err(PeriodError::Future { start, now });
        }
        if let Some(early) = until.filter(|until| *until < oldest(now)) {
            // A minute is named by its start.
            return Err(PeriodError::Past { end: self.at.unwrap_or(early), now });
        }
        if let Some((start, end)) = since.zip(until).filter(|(since, until)| since > until) {
            return Err(PeriodError::Reversed { start, end, now });
        }
        let is_cut = since.is_some_and(|since| since < oldest(now));
        let note = is_cut.then(|| match self.last {
            Some(last) => format!("{KEPT_TEXT}: --last {last:#} reduced to 15m"),
            None => format!("{KEPT_TEXT}: showing those since {}", moment(oldest(now), now)),
        });
        Ok((TimeRange { since, until }, note))
    }
}

/// Returns the start of the earliest minute that is kept.
fn oldest(now: Timestamp) -> Timestamp {
    let whole = now.as_second() - now.as_second().rem_euclid(MINUTE);
    let minute = Timestamp::from_second(whole).unwrap_or(now);
    minute.checked_sub(KEPT).unwrap_or(minute)
}

/// Formats `12:03 UTC`, with the date if it is not today's.
fn moment(at: Timestamp, now: Timestamp) -> String {
    date_and(at, at.strftime("%H:%M UTC"), now)
}

/// Formats `7h` or `20m`.
fn length(length: SignedDuration) -> String {
    if length.as_hours() > 0 {
        format!("{}h", length.as_hours())
    } else {
        format!("{}m", length.as_mins())
    }
}

/// Parses an instant, or a time of day, which means its latest occurrence.
pub(super) fn instant(text: &str) -> Result<Timestamp, PeriodError> {
    let at = text.parse().ok().or_else(|| latest(text.parse().ok()?, Timestamp::now()));
    at.ok_or_else(|| PeriodError::NoTime { found: text.to_owned() })
}

/// Returns the latest occurrence of a time of day.
fn latest(time: Time, now: Timestamp) -> Option<Timestamp> {
    let today = now.to_zoned(TimeZone::UTC).date();
    let at = today.to_datetime(time).to_zoned(TimeZone::UTC).ok()?.timestamp();
    if at <= now { Some(at) } else { at.checked_sub(SignedDuration::from_hours(24)).ok() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        format!("2026-06-01T{text}Z").parse().unwrap()
    }

    #[test]
    fn a_time_of_day_is_its_latest_occurrence() {
        for time in ["00:00", "12:03", "23:59:59"] {
            let at = instant(time).unwrap();
            let now = Timestamp::now();
            assert!(at <= now && now.duration_since(at) < SignedDuration::from_hours(24));
            assert!(at.to_string().contains(time));
        }
        assert!(instant("noon").unwrap_err().to_string().contains("found `noon`"));
        assert_eq!(instant("2026-06-01T12:03:00Z").unwrap().to_string(), "2026-06-01T12:03:00Z");
    }

    #[test]
    fn a_period_without_kept_denials_is_reported() {
        let now = at("18:59:30");
        let early = SpanArgs { at: Some(at("11:03:00")), ..SpanArgs::default() };
        let expected = "11:03 UTC is 7h ago; denials are kept for 15 minutes (now 18:59 UTC)";
        assert_eq!(early.span(now).unwrap_err().to_string(), expected);
        let late = SpanArgs { since: Some(at("19:03:00")), ..SpanArgs::default() };
        assert_eq!(
            late.span(now).unwrap_err().to_string(),
            "19:03 UTC is in the future (now 18:59 UTC)"
        );
        let oldest = SpanArgs { at: Some(at("18:44:00")), ..SpanArgs::default() };
        assert_eq!(oldest.span(now).unwrap().1, None);
        let cut = SpanArgs { last: Some(SignedDuration::from_hours(1)), ..SpanArgs::default() };
        assert_eq!(
            cut.span(now).unwrap().1.unwrap(),
            "denials are kept for 15 minutes: --last 1h reduced to 15m"
        );
        let cut = SpanArgs { since: Some(at("18:00:00")), ..SpanArgs::default() };
        let note = cut.span(now).unwrap().1.unwrap();
        assert_eq!(note, "denials are kept for 15 minutes: showing those since 18:44 UTC");
    }
}
