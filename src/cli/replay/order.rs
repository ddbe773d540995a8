//! Times of the lines, which are replayed in the order of the file.

use jiff::Timestamp as Instant;

use crate::algorithm::time::{Micros, Timestamp};
use crate::cli::counter::date_and;
use crate::printable::counted;

/// Time by which a line may be earlier than those before it without a note: access logs are in the
/// order in which requests end.
const TOLERANCE: Micros = Micros::new(1_000_000);

/// The times of lines, in the order in which they were replayed.
#[derive(Debug, Default)]
pub(super) struct TimeOrder {
    /// The earliest and the latest time; `None` before the first line.
    span: Option<TimeSpan>,
    /// Number of lines that were much earlier than one before them, and the longest such time.
    earlier: u64,
    longest: Micros,
}

/// A span of time.
#[derive(Clone, Copy, Debug)]
pub(super) struct TimeSpan {
    pub(super) first: Timestamp,
    pub(super) last: Timestamp,
}

impl TimeOrder {
    /// Adds the time of the next line.
    pub(super) fn add(&mut self, at: Timestamp) {
        let span = self.span.get_or_insert(TimeSpan::of(at));
        let earlier = span.last.since(at);
        if earlier > TOLERANCE {
            self.earlier += 1;
            self.longest = self.longest.max(earlier);
        }
        span.extend(at);
    }

    /// Returns the time of all lines; `None` if there were none.
    pub(super) fn span(&self) -> Option<TimeSpan> {
        self.span
    }

    /// Returns a note if lines were not in the order of their times.
    pub(super) fn note(&self) -> Option<String> {
        (self.earlier > 0).then(|| {
            let lines = counted(self.earlier, "line");
            let longest = self.longest;
            format!(
                "note: {lines} up to {longest} earlier than a previous line; counters that it used decide at its time; \
                 sort the file by time"
            )
        })
    }
}

impl TimeSpan {
    pub(super) fn of(at: Timestamp) -> Self {
        Self { first: at, last: at }
    }

    pub(super) fn extend(&mut self, at: Timestamp) {
        self.first = self.first.min(at);
        self.last = self.last.max(at);
    }

    /// Formats the span, with dates where they differ from that of `other`'s beginning.
    pub(super) fn text(self, other: Option<Self>) -> String {
        let start = instant(other.unwrap_or(self).first);
        let first = instant(self.first);
        let last = instant(self.last);
        let time = |at: Instant| at.strftime("%H:%M:%S").to_string();
        let first_text = match other {
            Some(_) => date_and(first, time(first), start),
            None => format!("{} {}", first.strftime("%Y-%m-%d"), time(first)),
        };
        format!("{first_text} to {}", date_and(last, time(last), start))
    }

    /// Returns both instants as in RFC 3339.
    pub(super) fn rfc3339(self) -> [String; 2] {
        [self.first, self.last].map(|at| instant(at).to_string())
    }
}

/// Returns an instant of the calendar, at most its last one.
fn instant(at: Timestamp) -> Instant {
    let micros = i64::try_from(at.as_micros()).unwrap_or(i64::MAX);
    Instant::from_microsecond(micros).unwrap_or(Instant::MAX)
}
