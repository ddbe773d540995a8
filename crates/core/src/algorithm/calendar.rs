//! Windows that begin at local midnight: days, weeks, months and years of a time zone.
//!
//! Days have 23 to 25 hours when clocks change; weeks begin on Monday. Zone data is compiled in.

use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{Span, ToSpan};

use super::time::{Micros, Timestamp};

/// The unit of a calendar window, which sets its boundaries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CalendarUnit {
    /// Local midnight to local midnight.
    Day,
    /// Monday to Monday.
    Week,
    /// The first of a month to the first of the next.
    Month,
    /// The first of January to the next.
    Year,
}

impl CalendarUnit {
    /// Returns the name of the unit: `day`, `week`, `month` or `year`.
    pub fn word(self) -> &'static str {
        match self {
            Self::Day => "day",
            Self::Week => "week",
            Self::Month => "month",
            Self::Year => "year",
        }
    }
}

/// A calendar unit in a time zone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Calendar {
    unit: CalendarUnit,
    zone: TimeZone,
}

impl Calendar {
    /// Creates a calendar of one `unit` in the IANA time zone `zone` (`Europe/Berlin`).
    ///
    /// # Errors
    /// If the zone does not exist, with its name.
    pub fn new(unit: CalendarUnit, zone: &str) -> Result<Self, UnknownZone> {
        let zone = TimeZone::get(zone).map_err(|_| UnknownZone(zone.to_owned()))?;
        Ok(Self { unit, zone })
    }

    /// Returns the unit.
    pub fn unit(&self) -> CalendarUnit {
        self.unit
    }

    /// Returns the IANA name of the zone.
    pub fn zone_name(&self) -> &str {
        self.zone.iana_name().unwrap_or("UTC")
    }

    /// Returns the nominal length of a window: 1, 7, 30 or 365 days.
    pub(super) fn nominal_length(&self) -> Micros {
        Micros::from_secs(match self.unit {
            CalendarUnit::Day => 86_400,
            CalendarUnit::Week => 7 * 86_400,
            CalendarUnit::Month => 30 * 86_400,
            CalendarUnit::Year => 365 * 86_400,
        })
    }

    /// Returns the start of the window that contains `now`, and the start of the next one. Every
    /// instant is in exactly one window.
    ///
    /// After the year 9999, which no clock reaches, there is one last window without an end.
    pub fn bounds(&self, now: Timestamp) -> (Timestamp, Timestamp) {
        let forever = (Timestamp::EPOCH, Timestamp::from_micros(u64::MAX));
        self.checked_bounds(now).unwrap_or(forever)
    }

    fn checked_bounds(&self, now: Timestamp) -> Option<(Timestamp, Timestamp)> {
        let us = i64::try_from(now.as_micros()).ok()?;
        let date = jiff::Timestamp::from_microsecond(us).ok()?.to_zoned(self.zone.clone()).date();
        let (mut first, length): (Date, Span) = match self.unit {
            CalendarUnit::Day => (date, 1.day()),
            CalendarUnit::Week => {
                let since_monday = i64::from(date.weekday().to_monday_zero_offset());
                (date.checked_sub(since_monday.days()).ok()?, 1.week())
            }
            CalendarUnit::Month => (date.first_of_month(), 1.month()),
            CalendarUnit::Year => (date.first_of_year(), 1.year()),
        };
        loop {
            let next = first.checked_add(length).ok()?;
            let start = self.midnight(first)?;
            let end = self.midnight(next)?;
            // If clocks are set back across midnight, the previous day's date occurs a second time.
            if now < end {
                return Some((start, end));
            }
            first = next;
        }
    }

    /// Returns the first instant of a local day: midnight, or the end of a gap that skips it.
    fn midnight(&self, date: Date) -> Option<Timestamp> {
        let us = date.to_zoned(self.zone.clone()).ok()?.timestamp().as_microsecond();
        // Local days that began before 1970 begin with the epoch.
        Some(Timestamp::from_micros(u64::try_from(us).unwrap_or(0)))
    }
}

/// An error for a time zone that is not in the compiled-in IANA database.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown time zone `{0}`, expected a name from the IANA database such as Europe/Berlin")]
pub struct UnknownZone(pub String);

#[cfg(test)]
mod tests {
    use super::*;

    fn hours(unit: CalendarUnit, zone: &str, at: &str) -> (String, u64) {
        let calendar = Calendar::new(unit, zone).unwrap();
        let at: jiff::Timestamp = at.parse().unwrap();
        let now = Timestamp::from_micros(u64::try_from(at.as_microsecond()).unwrap());
        let (start, end) = calendar.bounds(now);
        assert!(start <= now && now < end);
        let start_us = i64::try_from(start.as_micros()).unwrap();
        (
            jiff::Timestamp::from_microsecond(start_us).unwrap().to_string(),
            end.since(start).get() / 3_600_000_000,
        )
    }

    #[test]
    fn windows_begin_at_local_midnight_and_end_with_the_next_one() {
        use CalendarUnit::{Day, Month, Week, Year};
        const ST_JOHNS: &str = "America/St_Johns";
        for (unit, zone, at, start, length) in [
            (Day, "UTC", "2026-11-21T23:59:59.999999Z", "2026-11-21T00:00:00Z", 24),
            (Week, "UTC", "2026-11-22T12:00:00Z", "2026-11-16T00:00:00Z", 168),
            (Month, "UTC", "2026-02-10T00:00:00Z", "2026-02-01T00:00:00Z", 28 * 24),
            (Year, "UTC", "2028-02-10T00:00:00Z", "2028-01-01T00:00:00Z", 366 * 24),
            // Clocks change within the day.
            (Day, "Europe/Berlin", "2026-03-29T10:00:00Z", "2026-03-28T23:00:00Z", 23),
            (Day, "Europe/Berlin", "2026-10-25T10:00:00Z", "2026-10-24T22:00:00Z", 25),
            // Clocks went forward from 2026-04-24 00:00 to 01:00.
            (Day, "Africa/Cairo", "2026-04-24T10:00:00Z", "2026-04-23T22:00:00Z", 23),
            // Clocks went back from 2010-11-07 00:01 to 2010-11-06 23:01.
            (Day, ST_JOHNS, "2010-11-07T02:30:00Z", "2010-11-07T02:30:00Z", 25),
            (Day, ST_JOHNS, "2010-11-07T02:31:00Z", "2010-11-07T02:30:00Z", 25),
            (Day, ST_JOHNS, "2010-11-07T03:29:59Z", "2010-11-07T02:30:00Z", 25),
            (Day, ST_JOHNS, "2010-11-07T20:00:00Z", "2010-11-07T02:30:00Z", 25),
            (Month, ST_JOHNS, "2010-11-07T02:31:00Z", "2010-11-01T02:30:00Z", 30 * 24 + 1),
        ] {
            assert_eq!(hours(unit, zone, at), (start.to_owned(), length), "{zone} {at}");
        }
    }

    #[test]
    fn every_instant_is_in_one_window_in_every_zone() {
        use CalendarUnit::{Day, Month, Week, Year};
        let in_range = |at: &jiff::Timestamp| (0..2_500_000_000).contains(&at.as_second());
        for name in jiff::tz::db().available() {
            let zone = TimeZone::get(name.as_str()).unwrap();
            let changes =
                zone.following(jiff::Timestamp::UNIX_EPOCH).map(|change| change.timestamp());
            let before = |at: jiff::Timestamp| zone.to_datetime(at - 1.nanosecond());
            let near_midnight = |at: &jiff::Timestamp| {
                [before(*at), zone.to_datetime(*at)]
                    .iter()
                    .any(|local| [23, 0].contains(&local.hour()))
            };
            for change in changes.take_while(in_range).filter(near_midnight) {
                let change = u64::try_from(change.as_microsecond()).unwrap();
                for (unit, after) in
                    [(Day, 0), (Day, 1_800_000_000), (Week, 0), (Month, 60_000_000), (Year, 0)]
                {
                    let calendar = Calendar::new(unit, name.as_str()).unwrap();
                    let now = Timestamp::from_micros(change + after);
                    let (start, end) = calendar.bounds(now);
                    assert!(start <= now && now < end, "{} {unit:?} {now:?}", name.as_str());
                    assert_eq!(calendar.bounds(start), (start, end), "{} {unit:?}", name.as_str());
                    assert_eq!(calendar.bounds(end).0, end, "{} {unit:?}", name.as_str());
                }
            }
        }
    }

    #[test]
    fn no_instant_has_no_window() {
        let calendar = Calendar::new(CalendarUnit::Year, "Asia/Tokyo").unwrap();
        for us in [0, 1, u64::MAX / 2, u64::MAX] {
            let (start, end) = calendar.bounds(Timestamp::from_micros(us));
            assert!(start < end);
        }
    }

    #[test]
    fn units_have_the_words_of_policies() {
        use CalendarUnit::{Day, Month, Week, Year};
        let words = [Day, Week, Month, Year].map(CalendarUnit::word);
        assert_eq!(words, ["day", "week", "month", "year"]);
    }
}
