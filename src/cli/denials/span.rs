//! The period of a query, and whether denials of that period are kept.

use jiff::civil::Time;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};

/// Retention of denials, not counting the current minute.
const KEPT: SignedDuration = SignedDuration::from_mins(15);
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

impl SpanArgs {
    /// Returns the period, and a note if it was shortened.
    ///
    /// # Errors
    /// No denials of that period are kept: it is too long ago, or in the future.
    pub(super) fn span(self, now: Timestamp) -> Result<(TimeRange, Option<String>), String> {
        let minute = SignedDuration::from_micros(59_999_999);
        let (since, until) = match (self.at, self.last) {
            (Some(at), _) => (Some(at), at.checked_add(minute).ok()),
            (None, Some(last)) => (now.checked_sub(last).ok(), self.until),
            (None, None) => (self.since, self.until),
        };
        let kept = "denials are kept for 15 minutes";
        if let Some(late) = since.filter(|since| *since > now) {
            return Err(format!(
                "{} is in the future (now {})",
                moment(late, now),
                moment(now, now)
            ));
        }
        if let Some(early) = until.filter(|until| *until < oldest(now)) {
            // A minute is named by its start.
            let early = self.at.unwrap_or(early);
            let when = moment(early, now);
            let ago = length(now.duration_since(early));
            return Err(format!("{when} is {ago} ago; {kept} (now {})", moment(now, now)));
        }
        if let Some((since, until)) = since.zip(until).filter(|(since, until)| since > until) {
            return Err(format!(
                "the end {} is before the start {}",
                moment(until, now),
                moment(since, now)
            ));
        }
        let is_cut = since.is_some_and(|since| since < oldest(now));
        let note = is_cut.then(|| match self.last {
            Some(last) => format!("{kept}: --last {last:#} reduced to 15m"),
            None => format!("{kept}: showing those since {}", moment(oldest(now), now)),
        });
        Ok((TimeRange { since, until }, note))
    }
}

/// Returns the start of the earliest minute that is kept.
fn oldest(now: Timestamp) -> Timestamp {
    let whole = now.as_second().saturating_sub(now.as_second().rem_euclid(MINUTE));
    let minute = Timestamp::from_second(whole).unwrap_or(now);
    minute.checked_sub(KEPT).unwrap_or(minute)
}

/// Formats `12:03 UTC`, with the date if it is not today's.
fn moment(at: Timestamp, now: Timestamp) -> String {
    let day = |at: Timestamp| at.strftime("%Y-%m-%d").to_string();
    let time = at.strftime("%H:%M UTC");
    if day(at) == day(now) { time.to_string() } else { format!("{} {time}", day(at)) }
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
pub(super) fn instant(text: &str) -> Result<Timestamp, String> {
    if let Ok(at) = text.parse() {
        return Ok(at);
    }
    let error = || format!("expected a time such as 12:03 or 2026-06-01T12:03:00Z, found `{text}`");
    let time: Time = text.parse().map_err(|_| error())?;
    let now = Timestamp::now();
    let at = now
        .to_zoned(TimeZone::UTC)
        .date()
        .to_datetime(time)
        .to_zoned(TimeZone::UTC)
        .map_err(|_| error())?;
    let at = at.timestamp();
    if at <= now {
        Ok(at)
    } else {
        at.checked_sub(SignedDuration::from_hours(24)).map_err(|_| error())
    }
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
        assert!(instant("noon").unwrap_err().contains("found `noon`"));
        assert_eq!(instant("2026-06-01T12:03:00Z").unwrap().to_string(), "2026-06-01T12:03:00Z");
    }

    #[test]
    fn a_period_without_kept_denials_is_reported() {
        let now = at("18:59:30");
        let early = SpanArgs { at: Some(at("11:03:00")), ..SpanArgs::default() };
        let expected = "11:03 UTC is 7h ago; denials are kept for 15 minutes (now 18:59 UTC)";
        assert_eq!(early.span(now).unwrap_err(), expected);
        let late = SpanArgs { since: Some(at("19:03:00")), ..SpanArgs::default() };
        assert_eq!(late.span(now).unwrap_err(), "19:03 UTC is in the future (now 18:59 UTC)");
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
